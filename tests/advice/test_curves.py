"""Entrants compared by their curves: how many times sooner, ties, and the best."""

from __future__ import annotations

import math
from functools import partial
from pathlib import Path

import pytest
from folders import write_run

from ncfbench.advice import curves
from ncfbench.advice.curves import best_of, is_ahead, times_sooner
from ncfbench.racing.rule import Curve
from ncfbench.reporting.frames import Run
from ncfbench.runs import folder as runs
from ncfbench.timing.intervals import LOSS_SPREAD, QUALITY_SPREAD

Runs = partial(curves.Runs, spread=LOSS_SPREAD)


def straight(slope: float, end: float = 10.0) -> Curve:
    """A loss that falls from 10 by ``slope`` a second."""
    seconds = [float(t) for t in range(int(end) + 1)]
    return Curve(seconds, [10 - slope * t for t in seconds])


def test_the_ratio_is_taken_at_the_latest_common_level() -> None:
    """The slow one ends at 5, which the fast one reaches after 2.5 s."""
    found = times_sooner(Runs({0: straight(2, end=4)}), Runs({0: straight(0.5)}))
    assert found is not None
    assert found.value == pytest.approx(10 / 2.5)
    # One seed: eight assumed degrees of freedom, t = 2.306, 0.1 for either.
    assert found.upper / found.value == pytest.approx(
        math.exp(2.306 * 0.1 * math.sqrt(2)), rel=1e-3
    )
    assert found.lower * found.upper == pytest.approx(found.value**2)
    assert not found.is_tie


def test_times_to_a_recall_are_less_sure_than_those_to_a_loss(tmp_path: Path) -> None:
    run = Run.of(runs.read(write_run(tmp_path, "ns", [9, 5, 4], 4.0, [0, 0.1, 0.2])))
    found = {
        column: curves.Runs.of([run], column).spread
        for column in ("probe_loss", "test_recall_at_50")
    }
    assert [*found.values()] == [LOSS_SPREAD, QUALITY_SPREAD]


def test_more_seeds_and_quiet_times_narrow_the_interval() -> None:
    one, two = ({seed: straight(1.0) for seed in range(count)} for count in (1, 2))
    slow = {seed: straight(0.9) for seed in range(2)}
    widths = [
        math.log(found.upper / found.lower)
        for found in (
            times_sooner(Runs(two), Runs(slow)),
            times_sooner(Runs(one), Runs(slow)),
            times_sooner(Runs(one, time_noise=0.3), Runs(slow)),
        )
        if found is not None
    ]
    assert widths == sorted(widths)
    assert len(set(widths)) == 3


def test_only_common_seeds_are_compared() -> None:
    assert times_sooner(Runs({0: straight(1)}), Runs({1: straight(1)})) is None
    found = times_sooner(Runs({0: straight(1), 1: straight(9, 1)}), Runs({1: straight(1)}))
    assert found is not None
    assert found.seeds == 1
    assert found.value == pytest.approx(9)


@pytest.mark.parametrize(("clock", "ahead"), [(1.3, False), (1.4, True)])
def test_one_that_stands_still_is_no_tie(clock: float, ahead: bool) -> None:
    """Both reach 9 after 1 s, and only one goes on. The other one's clock counts as its time to
    lower levels; a tie of one seed allows for exp(2.306 * 0.1 * sqrt(2)) = 1.386.
    """
    moving, still = Runs({0: straight(1)}), Runs({0: Curve([0, 1, clock], [10, 9, 9])})
    ratio = times_sooner(moving, still)
    assert ratio is not None
    assert ratio.is_tie
    assert is_ahead(moving, still) is ahead
    assert not is_ahead(still, moving)


def test_the_best_is_sooner_than_the_others() -> None:
    entrants = {name: Runs({0: straight(slope)}) for name, slope in (("a", 1), ("b", 3), ("c", 2))}
    assert best_of(entrants) == "b"
