"""Speedups of runs whose times come from a profile: figures of plain arithmetic."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from folders import filled, write_run

from ncfbench.paper.claims import ClaimVerdict, judge_claims
from ncfbench.reporting.comparison import group
from ncfbench.reporting.evidence import find_evidence
from ncfbench.reporting.profiles import ProfiledComparison, find_profiled
from ncfbench.reporting.rows import speedup_rows
from ncfbench.reporting.views.profiled import profiled_tables
from ncfbench.runs.folder import read_all
from ncfbench.storage import schemas
from ncfbench.timing.seed_statistics import Estimate, product


def profile(*samplers: tuple[str, float], **more: Any) -> list[dict[str, Any]]:
    """Rows of the cost model: milliseconds by sampler, intervals of 10 % around the ratios."""
    common = {
        "dataset": "citeulike",
        "encoder": "cnn",
        "loss": "sg",
        "batch_size": 512,
        "baseline": "iid",
        "unusual_settings": "",
        "rounds": 7,
        "data_fingerprint": "f" * 64,
        "settings": "one",
    }
    slowest = max(ms for _, ms in samplers)
    return [
        filled(
            schemas.COSTMODEL,
            **common
            | {
                "sampler": name,
                "negatives": 10 if name in ("iid", "neg", "strat") else None,
                "stratum_size": 4 if name.startswith("strat") else None,
                "measured_full_iteration_seconds": ms / 1e3,
                "measured_full_speedup": slowest / ms,
                "lower_full_speedup": slowest / ms / (1 if name == "iid" else 1.1),
                "upper_full_speedup": slowest / ms * (1 if name == "iid" else 1.1),
            }
            | more,
        )
        for name, ms in samplers
    ]


def joined(
    folder: Path, rows: list[dict[str, Any]], baseline: str | None = None
) -> list[ProfiledComparison]:
    found = group(read_all(folder)[0])
    comparisons = [replace(each, chosen_baseline=baseline) for each in found]
    speedups = [speedup_rows(each, allow_mixed=False, locations={}) for each in comparisons]
    return find_profiled(comparisons, speedups, rows)


def test_the_runs_give_iterations_and_the_profile_their_length(tmp_path: Path) -> None:
    """IID ends at 3, where N.S. is after 150 of 200 iterations; both runs were slowed down."""
    for seed in (0, 1):
        write_run(tmp_path, "iid", [9, 5, 3], 400, seed=seed)
        write_run(tmp_path, "ns", [9, 4, 2], 4000, seed=seed)
        write_run(tmp_path, "strat", [9, 5, 4], 1, seed=seed)
    (found,) = joined(tmp_path, profile(("iid", 40), ("ns", 10), ("strat", 8), ("neg", 40)))
    assert found.computation == ""
    by_sampler = {each.speedup["sampler"]: each for each in found.speedups}
    assert list(by_sampler) == ["iid", "ns", "strat"]  # neg has no run
    shared = by_sampler["ns"]
    assert shared.iterations is not None
    assert shared.total is not None
    assert shared.iterations.value == pytest.approx(200 / 150)
    assert shared.seconds == pytest.approx(0.01)
    assert shared.total.value == pytest.approx(200 / 150 * 4)
    # Equal seeds have no spread: the interval is the profile's.
    assert shared.total.upper == pytest.approx(200 / 150 * 4.4)
    strata = by_sampler["strat"]
    assert strata.total is None
    assert strata.at_most == pytest.approx(1 * 5)
    (table,) = profiled_tables([found])
    assert [[cell.text for cell in row] for row in table.rows] == [
        ["IID", "40", "1.00", "1.00", "1.00", "2"],
        ["N.S.", "10", "4.00 [3.64, 4.40]", "1.33", "5.33 [4.85, 5.87]", "2"],
        ["Stratified", "8", "5.00 [4.55, 5.50]", "< 1.00", "< 5.00", "2"],
    ]


def test_profiles_of_two_machines_have_names_of_their_own(tmp_path: Path) -> None:
    write_run(tmp_path, "iid", [9, 5, 3], 40)
    write_run(tmp_path, "ns", [9, 4, 2], 10)
    one, other = (
        profile(("iid", 40), ("ns", ms), environment_key=key)
        for ms, key in ((10, "a" * 64), (20, "b" * 64))
    )
    found = profiled_tables(joined(tmp_path, [*one, *other]))
    assert [table.name[-7:] for table in found] == ["-aaaaaa", "-bbbbbb"]
    assert all(
        table.title.endswith(f"environment {key * 6}")
        for table, key in zip(found, "ab", strict=True)
    )
    assert "environment" not in profiled_tables(joined(tmp_path, one))[0].title


def test_another_computation_has_the_iterations_of_the_runs_there_are(tmp_path: Path) -> None:
    write_run(tmp_path, "iid", [9, 5, 3], 40)
    write_run(tmp_path, "ns", [9, 4, 2], 10)
    plain = profile(("iid", 200), ("ns", 20), unusual_settings="convolution=plain", settings="two")
    usual = profile(("iid", 40), ("ns", 10))
    found = {each.computation: each for each in joined(tmp_path, [*usual, *plain])}
    assert set(found) == {"", "convolution=plain"}
    total = found["convolution=plain"].speedups[1].total
    assert total is not None
    assert (total.value, total.lower) == (pytest.approx(200 / 150 * 10), None)  # one seed
    tables = profiled_tables(list(found.values()))
    assert len({table.name for table in tables}) == 2
    # Runs with the profile's own computation are preferred.
    write_run(tmp_path, "iid", [9, 5, 3], 40, convolution="plain")
    write_run(tmp_path, "ns", [9, 4, 1], 10, convolution="plain")
    (own,) = joined(tmp_path, plain)
    assert own.speedups[1].total is not None
    assert own.speedups[1].total.value == pytest.approx(200 / (100 + 100 / 3) * 10)


@pytest.mark.parametrize(
    "more",
    [
        {"data_fingerprint": "e" * 64},
        {"loss": "mse"},
        {"encoder": "bow"},
        {"batch_size": 256},
        {"unusual_settings": "noise=uniform"},
        {"unusual_settings": "negatives=20", "negatives": 20},
    ],
)
def test_profiles_of_something_else_are_left_out(tmp_path: Path, more: dict[str, Any]) -> None:
    write_run(tmp_path, "iid", [9, 5, 3], 40)
    write_run(tmp_path, "neg", [9, 4, 2], 10)
    assert joined(tmp_path, profile(("iid", 40), ("neg", 10)))
    assert not joined(tmp_path, profile(("iid", 40), ("neg", 10), **more))


def test_another_baseline_than_the_profile_s_is_left_out(tmp_path: Path) -> None:
    """The profile's ratios are over IID: over N.S. they would be other ones."""
    write_run(tmp_path, "iid", [9, 5, 3], 40)
    write_run(tmp_path, "ns", [9, 4, 2], 10)
    write_run(tmp_path, "strat-ns", [9, 4, 2], 5)
    rows = profile(("iid", 40), ("ns", 10), ("strat-ns", 5))
    assert joined(tmp_path, rows)
    assert not joined(tmp_path, rows, baseline="ns")


def soonest(folder: Path, rows: list[dict[str, Any]]) -> list[ClaimVerdict]:
    """Verdicts by profiles; the runs' own differ in words."""
    comparisons = group(read_all(folder)[0])
    speedups = [speedup_rows(each, allow_mixed=False, locations={}) for each in comparisons]
    evidence = find_evidence(comparisons, speedups, {}, joined(folder, rows))
    return [one for one in judge_claims(evidence) if "profile" in one.evidence]


def test_the_soonest_is_judged_by_the_profile_s_times(tmp_path: Path) -> None:
    """The runs' own times say the opposite. The profile has 40, 10 and 5 ms."""
    for seed in (0, 1):
        write_run(tmp_path, "iid", [9, 5, 3], 400, seed=seed)
        write_run(tmp_path, "ns", [9, 4, 2], 10, seed=seed)
        write_run(tmp_path, "strat-ns", [9, 4, 2], 1000, seed=seed)
    rows = profile(("iid", 40), ("ns", 10), ("strat-ns", 5))
    (found,) = soonest(tmp_path, rows)
    assert (found.claim, found.verdict) == ("soonest", "reproduced")
    assert found.value == pytest.approx(2)
    # Both ratios over IID are known to 10 %, so theirs is to the root of two such errors.
    assert found.lower == pytest.approx(2 / 1.1 ** math.sqrt(2))
    assert "2.00 times sooner than the next, N.S., with iterations as long as in" in found.evidence
    (slower,) = soonest(tmp_path, profile(("iid", 40), ("ns", 5), ("strat-ns", 10)))
    assert slower.verdict == "not reproduced"
    (unknown,) = soonest(tmp_path, profile(("iid", 40), ("strat-ns", 10)))
    assert unknown.evidence == "an iteration of N.S. was not profiled"
    assert not soonest(tmp_path, [row | {"rounds": 3} for row in rows])


def test_few_rounds_give_no_interval(tmp_path: Path) -> None:
    for seed in (0, 1):
        write_run(tmp_path, "iid", [9, 5, 3], 40, seed=seed)
        write_run(tmp_path, "ns", [9, 4, 2 - seed], 10, seed=seed)
    (found,) = joined(tmp_path, profile(("iid", 40), ("ns", 10), rounds=3))
    shared = found.speedups[1]
    assert shared.iterations is not None
    assert shared.iterations.lower is not None
    assert shared.total is not None
    assert shared.total.lower is None
    assert "too few for an interval" in profiled_tables([found])[0].notes[0]


def test_errors_of_independent_ratios_add_up() -> None:
    one, other = Estimate(2.0, 1.6, 2.5, 3), Estimate(5.0, 4.0, 6.0, 7)
    found = product(one, other)
    assert found.seeds == 3
    assert found.value == pytest.approx(10)
    assert found.lower == pytest.approx(10 * math.exp(-math.sqrt(2) * math.log(1.25)))
    above = math.sqrt(math.log(1.25) ** 2 + math.log(1.2) ** 2)
    assert found.upper == pytest.approx(10 * math.exp(above))
    assert product(one, Estimate(5.0, None, None, 1)).lower is None
