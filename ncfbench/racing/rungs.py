"""Rungs of a race, planned backwards from the end of its budget. Pure: no clock, no file."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

GROWTH = 2.0
"""Usual growth of the training clock from rung to rung."""
GROWTHS = (1.25, 6.0)
"""Growth that a plan may have at all: with less, a rung shows nothing new."""
MOST_RUNGS = 10
FINALISTS = 3
"""Arms of the last rung: the leader, its rival with another sampler, and one more."""


@dataclass(frozen=True)
class Pace:
    """Wall seconds that the parts of a race take; guesses before anything is measured.

    Attributes:
        opening: a run: compile its step and its probe, and evaluate it once.
        training: one second of training clock, with probes and evaluations.
        saving: a run at the end of a rung.
    """

    opening: float = 5.0
    training: float = 1.5
    saving: float = 0.3


def arms_of_rungs(arms: int, rungs: int, finalists: int = FINALISTS) -> list[int]:
    """Return how many arms train in each rung: all, then half, and so on, to the finalists."""
    return [max(math.ceil(arms / 2**rung), min(arms, finalists)) for rung in range(rungs)]


def plan_rungs(
    seconds: float,
    clock: float,
    arms: int,
    pace: Pace,
    *,
    finalists: int = FINALISTS,
    wanted_growth: float = GROWTH,
) -> list[float]:
    """Return the clocks at which the rungs of the rest of a race end; none if no rung has time.

    Of all numbers of rungs the one is chosen whose clock grows most nearly as wanted from rung to
    rung and which uses the time up.

    Args:
        seconds: wall time left.
        clock: training clock of the arms now, above 0.
    """
    plans = []
    for rungs in range(1, MOST_RUNGS + 1):
        growth = _growth(seconds, clock, arms, pace, rungs, finalists)
        if growth is not None:
            plans.append((abs(math.log(growth / wanted_growth)), rungs, growth))
    _, rungs, growth = min(plans, default=(0.0, 0, 1.0))
    return [clock * growth**rung for rung in range(1, rungs + 1)]


def wall_seconds(
    clocks: Sequence[float],
    clock: float,
    arms: int,
    pace: Pace,
    finalists: int = FINALISTS,
) -> float:
    """Return what rungs take that end at these clocks."""
    total, before = 0.0, clock
    for count, end in zip(arms_of_rungs(arms, len(clocks), finalists), clocks, strict=True):
        total += count * (pace.training * (end - before) + pace.saving)
        before = end
    return total


def _growth(
    seconds: float, clock: float, arms: int, pace: Pace, rungs: int, finalists: int
) -> float | None:
    """Return the growth with which some rungs use the time up; None if it is out of bounds."""

    def needs(growth: float) -> float:
        clocks = [clock * growth**rung for rung in range(1, rungs + 1)]
        return wall_seconds(clocks, clock, arms, pace, finalists)

    low, high = GROWTHS
    if needs(low) > seconds:
        return None
    if needs(high) <= seconds:
        return high
    from scipy.optimize import brentq

    return float(brentq(lambda growth: needs(growth) - seconds, low, high, xtol=1e-14))
