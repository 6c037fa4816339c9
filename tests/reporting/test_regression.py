"""Comparison of two folders of results: what became worse, and what was lost."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from folders import write_folder
from invoked import check, invoke
from literal_runs import record

from ncfbench.reporting.frames import group
from ncfbench.reporting.regression import Change, changes
from ncfbench.runs.folder import RunRecord

RATIOS = ("iterations_speedup", "total_speedup")
IID = ("iid", [9, 5, 3], 200, 0.3)
NS = ("ns", [9, 4, 2], 20, 0.3)
"""ns is 10 times as fast and needs 150 of 200 iterations."""


def compared(
    own: list[RunRecord], other: list[RunRecord], limit: float = 0.1, *, allow_mixed: bool = False
) -> dict[tuple[str, str], Change]:
    """Changes by sampler and measure."""
    found = changes(group(own), group(other), limit=limit, allow_mixed=allow_mixed)
    return {(one.sampler, one.measure): one for one in found}


def seeds(*given: Any, **more: Any) -> list[RunRecord]:
    return [record(*given, seed=seed, **more) for seed in range(2)]


def regressed(found: dict[tuple[str, str], Change]) -> dict[tuple[str, str], str]:
    return {key: one.note for key, one in found.items() if one.regressed}


def test_a_slower_folder_ends_with_6(tmp_path: Path) -> None:
    folder, slow = (
        write_folder(tmp_path / name, slower=slower) for name, slower in (("a", 1.0), ("b", 1.2))
    )
    again = Path(shutil.copytree(folder, tmp_path / "again"))
    same = invoke("report", again, "--against", folder, "--json")
    assert same.exit_code == 0
    rows = json.loads(same.stdout)["changes"]
    assert all(row["gain"] == pytest.approx(1) for row in rows)
    assert {row["seeds"] for row in rows if row["sampler"] == "ns"} == {3}
    worse = invoke("report", slow, "--against", folder)
    check(worse, 6, "REGRESSED", "more than 10 %", "0.833 [0.833, 0.833]")
    check(invoke("report", slow, "--against", folder, "--regression", "25%"), 0)
    document = json.loads(invoke("report", slow, "--against", folder, "--json").stdout)
    found = {(row["sampler"], row["measure"]): row for row in document["changes"]}
    row = found["ns", "full_iteration_seconds"]
    assert row["gain"] == pytest.approx(1 / 1.2)
    assert row["lower"] == pytest.approx(row["upper"]), "every seed by the same factor"
    times = ("full_iteration_seconds", "step_iteration_seconds", "per_iteration_speedup")
    assert {key for key, one in found.items() if one["regressed"]} == {
        ("ns", name) for name in (*times, "total_speedup")
    }
    check(invoke("report", folder, "--against", slow), 0)


@pytest.mark.parametrize(
    ("factors", "clear"),
    [((1.2,), None), ((1.2, 1.2), True), ((1.0, 1.5, 1.1), False), ((1.05,) * 3, True)],
)
def test_one_rule_for_any_number_of_seeds(factors: tuple[float, ...], clear: bool | None) -> None:
    """One seed, several that agree and several that do not regress by the same mean."""
    slow, usual = (
        [record("iid", [9, 5, 3], ms, seed=seed) for seed, ms in enumerate(lengths)]
        for lengths in ([200 * factor for factor in factors], [200] * len(factors))
    )
    row = compared(slow, usual)["iid", "full_iteration_seconds"]
    assert (row.regressed, row.clear) == (row.gain < 1 / 1.1, clear)
    assert row.regressed == (factors[0] != 1.05)
    assert ("interval holds 1" in row.note) == (clear is False)
    assert not regressed(compared(slow, usual, 0.21))
    assert not regressed(compared(usual, slow)), "faster is no regression"


def test_a_lost_sampler_regresses() -> None:
    without, with_ns = seeds(*IID), [*seeds(*IID), *seeds(*NS)]
    note = "lost: no finished run; only in the second folder"
    assert regressed(compared(without, with_ns)) == {("ns", ""): note}
    found = compared(with_ns, without)
    assert (regressed(found), found["ns", ""].note) == ({}, "only in the first folder")


def test_a_lost_reference_regresses() -> None:
    """Seed 1 ends above iid's loss, after all 200 iterations: at most 10 instead of 13.33."""
    first = [*seeds(*IID), record(*NS, seed=0), record("ns", [9, 4, 3.1], 20, 0.3, seed=1)]
    second = [*seeds(*IID), *seeds(*NS)]
    found = compared(first, second, 0.99)
    note = "lost: not reached (1 of 2 seeds)"
    assert regressed(found) == {("ns", ratio): note for ratio in RATIOS}
    row = found["ns", "total_speedup"]
    assert (row.own, row.gain) == (None, None)
    assert row.other == pytest.approx(10 * 200 / 150)
    assert row.gain_at_most == pytest.approx((150 / 200) ** 0.5), "seed 0 is as it was"
    back = compared(second, first)["ns", "total_speedup"]
    assert (back.regressed, back.seeds) == (False, 1), "what the second lacks is not lost"


def test_a_diverged_seed_regresses() -> None:
    lost = record("ns", [9, 4], 20, None, seed=1, status="diverged")
    first, second = [*seeds(*IID), record(*NS, seed=0), lost], [*seeds(*IID), *seeds(*NS)]
    found = compared(first, second)
    assert regressed(found) == {
        ("ns", name): "lost: diverged (1 of 2 seeds)"
        for name in ("smallest_probe_loss", "test_recall_at_50", *RATIOS)
    }
    assert found["ns", "per_iteration_speedup"].gain == pytest.approx(1)
    assert not regressed(compared(second, first))


def test_other_things_to_lose() -> None:
    first = [record(*IID), record("ns", [9, 4, 2], 20, None, key="two")]
    second = [record(*IID), record(*NS)]
    found = compared(first, second)
    assert found["ns", "test_recall_at_50"].note == "lost: no recall"
    apart = "lost: arm and baseline of different environments"
    assert found["ns", "total_speedup"].note == apart
    gain = found["ns", "iterations_speedup"].gain
    assert gain == pytest.approx(1), "iterations are the same on any machine"
    found = compared(first[1:], second)
    assert found["ns", "iterations_speedup"].note == "lost: no baseline of this seed"
    assert found["iid", ""].regressed


def test_seeds_not_run_are_named() -> None:
    found = compared([*seeds(*IID), record(*NS, seed=0)], [*seeds(*IID), *seeds(*NS)])
    assert not regressed(found)
    assert found["ns", "total_speedup"].note == "1 of the second's 2 seeds"
    apart = compared([record(*IID)], [record(*IID, seed=4)])
    assert {one.note for one in apart.values()} == {"no seed in common"}


@pytest.mark.parametrize(
    ("own", "other", "worse"), [(0.5, 0.0, True), (0.0, 0.5, False), (0.0, 0.0, False)]
)
def test_zeros_are_compared(own: float, other: float, worse: bool) -> None:
    """A loss of 0 is the best, a recall of 0 the worst."""
    losses = ([record("ns", [9, loss], 20)] for loss in (own, other))
    recalls = ([record("ns", [9, 4], 20, recall)] for recall in (other, own))
    for row in (
        compared(*losses)["ns", "smallest_probe_loss"],
        compared(*recalls)["ns", "test_recall_at_50"],
    ):
        assert (row.regressed, row.note) == (worse, "a value is 0: no ratio")


def test_other_machines_are_not_divided() -> None:
    own, other = [record(*IID)], [record("iid", [9, 5, 3], 100, 0.4, key="two")]
    found = compared(own, other)
    assert regressed(found).keys() == {("iid", "test_recall_at_50")}, "recall is of any machine"
    row = found["iid", "full_iteration_seconds"]
    assert (row.gain, row.note[:22]) == (None, "different environments")
    mixed = compared(own, other, allow_mixed=True)["iid", "full_iteration_seconds"]
    assert mixed.gain == pytest.approx(0.5)
