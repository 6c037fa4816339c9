"""Answers and figures with a profile's times, where the runs' own are not to be trusted."""

from __future__ import annotations

from pathlib import Path

import pytest
from folders import write_run
from test_profiled_speedups import joined, profile

from ncfbench.reporting import profiles
from ncfbench.reporting.answers import Answer, find_answers
from ncfbench.reporting.comparison import group
from ncfbench.reporting.profiles import with_profile_times
from ncfbench.reporting.targets import sensitivity
from ncfbench.reporting.views.answers import trust
from ncfbench.runs.folder import read_all

PROFILE = profile(("iid", 40), ("ns", 10))


def answer_of(folder: Path, rounds: int = 7) -> Answer:
    """The answer of a folder's runs beside :data:`PROFILE`."""
    rows = [row | {"rounds": rounds} for row in PROFILE]
    profiled = joined(folder, rows)
    found = [each.comparison for each in profiled] or group(read_all(folder)[0])
    (answer,) = find_answers(with_profile_times(found, profiled))
    return answer


def two_machines(folder: Path) -> None:
    """IID ends at 3 after 200 iterations, where N.S. is after 150; N.S. ran on a slow machine."""
    for seed in (0, 1):
        write_run(folder, "iid", [9, 5, 3], 400, seed=seed)
        write_run(folder, "ns", [9, 4, 2], 4000, seed=seed, key="other")


def test_runs_of_two_machines_have_the_times_of_the_profile(tmp_path: Path) -> None:
    two_machines(tmp_path)
    answer = answer_of(tmp_path)
    assert (answer.rounds, answer.spread, answer.is_interleaved) == (7, 0.0, True)
    best, base = answer.best, answer.baseline
    assert best is not None
    assert base is not None
    assert best.name == "N.S."
    assert (best.iterations, base.iterations) == (150, 200)
    assert best.seconds == pytest.approx(150 * 0.010)
    assert base.seconds == pytest.approx(200 * 0.040)
    assert best.sooner is not None
    total = best.sooner.total
    assert total is not None
    # Equal seeds have no spread: the interval is the profile's, 10 % on both sides.
    assert (total.value, total.lower, total.upper) == pytest.approx(
        (200 / 150 * 4, 200 / 150 * 4 / 1.1, 200 / 150 * 4 * 1.1)
    )
    assert "as long as in a profile of 7 rounds" in " ".join(trust(answer, {}))


def test_curves_run_over_the_profile_s_time(tmp_path: Path) -> None:
    two_machines(tmp_path)
    answer = answer_of(tmp_path)
    for arm, ms in zip(answer.arms, (10, 40), strict=True):
        for run in arm.runs.values():
            times = [row["train_seconds"] for row in run.curve]
            assert times == pytest.approx([row["iteration"] * ms / 1e3 for row in run.curve])


def test_a_baseline_that_has_not_trained_has_the_profile_s_time_too(tmp_path: Path) -> None:
    """There is no speedup then, so no table of them; easier targets are compared all the same."""
    for seed in (0, 1):
        write_run(tmp_path, "iid", [9, 8, 7, 6, 5, 4, 3, 2, 1], 400, seed=seed)
        write_run(tmp_path, "ns", [9, 7, 5, 3, 2, 1, 1, 1, 1], 4000, seed=seed, key="other")
    (found,) = joined(tmp_path, PROFILE)
    assert [each.variant.sampler for each in found.speedups] == ["iid", "ns"]
    assert not found.has_totals
    (after,) = with_profile_times([found.comparison], [found])
    levels = {each.level: each.speedup.total for each in sensitivity(after, "probe_loss")}
    target = levels[5.0]
    assert target is not None
    assert target.value == pytest.approx(400 / 200 * 4)


def test_targets_of_two_machines_compare_by_the_profile(tmp_path: Path) -> None:
    two_machines(tmp_path)
    (before,) = group(read_all(tmp_path)[0])
    assert sensitivity(before, "probe_loss") == []
    profiled = joined(tmp_path, PROFILE)
    (after,) = with_profile_times([profiled[0].comparison], profiled)
    levels = {each.level: each.speedup.total for each in sensitivity(after, "probe_loss")}
    hardest = levels[3.0]
    assert hardest is not None
    assert hardest.value == pytest.approx(200 / 150 * 4)


def test_quiet_runs_keep_their_own_times(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_run(tmp_path, "iid", [9, 5, 3], 400, interleaved=["a"])
    write_run(tmp_path, "ns", [9, 4, 2], 100, interleaved=["a"])
    assert answer_of(tmp_path).rounds is None
    # The blocks of these runs spread by 15 %.
    monkeypatch.setattr(profiles, "BUSY_SPREAD", 0.14)
    assert answer_of(tmp_path).rounds == 7
    assert answer_of(tmp_path, rounds=6).rounds is None, "too few rounds for an interval"


def test_runs_that_took_no_turns_have_the_times_of_the_profile(tmp_path: Path) -> None:
    """A machine that is slower on the next day would be the sampler's fault."""
    write_run(tmp_path, "iid", [9, 5, 3], 400, interleaved=["a"])
    write_run(tmp_path, "ns", [9, 4, 2], 100, interleaved=["b"])
    assert answer_of(tmp_path).rounds == 7


def test_arms_that_the_profile_lacks_are_left_out_by_name(tmp_path: Path) -> None:
    two_machines(tmp_path)
    write_run(tmp_path, "strat", [9, 4, 1], 1)
    answer = answer_of(tmp_path)
    assert [each.name for each in answer.arms] == ["N.S.", "IID"]
    assert "1 run whose arms are not in the profile left out." in trust(answer, {})
