"""Comparisons of entrants over their seeds: how much sooner one is than another, with an interval.

Within a seed two entrants share parameters and data. The ratio of their times is taken at the
*latest* level that both have reached: the higher of their two lowest values. Nothing is
extrapolated, and what happened at easier levels does not count.

The interval assumes a spread of seeds (:func:`ncfbench.timing.intervals.with_assumed_spread`), and
the noise of the machine's times is added.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ncfbench.advice.rule import Curve
from ncfbench.timing.intervals import Estimate, with_assumed_spread
from ncfbench.timing.ranking import most_wins


@dataclass(frozen=True)
class Runs:
    """The runs of an entrant.

    Attributes:
        curves: by seed.
        time_noise: standard error of the logarithm of the seconds of an iteration.
    """

    curves: Mapping[int, Curve]
    time_noise: float = 0.0


@dataclass(frozen=True)
class Ratio(Estimate):
    """How many times sooner one entrant is than another; above 1 it is sooner."""

    lower: float
    upper: float

    @property
    def is_tie(self) -> bool:
        """True if the interval holds 1: the two cannot be told apart."""
        return self.lower <= 1 <= self.upper


def times_sooner(one: Runs, other: Runs) -> Ratio | None:
    """Return how many times sooner one entrant reaches the latest common level than the other.

    None where no seed has a level that both reached after the start.
    """
    logs = []
    for own, theirs in _pairs(one, other):
        level = max(own.level, theirs.level)
        time, their_time = own.time_to(level), theirs.time_to(level)
        if time and their_time:
            logs.append(math.log(their_time / time))
    return _interval(logs, one.time_noise, other.time_noise) if logs else None


def is_ahead(one: Runs, other: Runs) -> bool:
    """Return whether one entrant can be told to be sooner than another.

    Not so if :func:`times_sooner` ties, unless the other one has stood still since: its whole clock
    counts as the time to come below its level, and it must be longer than what one took by more
    than a tie allows, in all seeds together.
    """
    ratio = times_sooner(one, other)
    if ratio is not None and not ratio.is_tie:
        return ratio.value > 1
    logs = []
    for own, theirs in _pairs(one, other):
        passed = own.time_to(theirs.level)
        if own.level < theirs.level and passed:
            logs.append(math.log(theirs.clock / passed))
    return bool(logs) and _interval(logs, one.time_noise, other.time_noise).lower > 1


def best_of(entrants: Mapping[str, Runs]) -> str:
    """Return the name of the entrant that is sooner than most others; of equal ones the lowest."""

    def ahead(name: str, other: str) -> float | None:
        ratio = times_sooner(entrants[name], entrants[other])
        return None if ratio is None else math.log(ratio.value)

    def level(name: str) -> float:
        return min(curve.level for curve in entrants[name].curves.values())

    return most_wins(list(entrants), ahead, level)


def _pairs(one: Runs, other: Runs) -> list[tuple[Curve, Curve]]:
    """Return the curves of the seeds that both have."""
    common = sorted(one.curves.keys() & other.curves.keys())
    return [(one.curves[seed], other.curves[seed]) for seed in common]


def _interval(logs: Sequence[float], *noises: float) -> Ratio:
    return Ratio(**vars(with_assumed_spread(logs, noises)))
