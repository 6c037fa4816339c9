"""Curves of an arm's seeds, and how many times sooner one arm reaches a level than another.

That is the ratio of their times within a seed. Its interval assumes a spread of seeds
(:func:`ncfbench.statistics.intervals.with_assumed_spread`), and the noise of the machine's times is
added.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean as mean

import numpy as np

from ncfbench.statistics.curves import Curve
from ncfbench.statistics.intervals import QUALITY_SPREAD, Estimate, Spread, with_assumed_spread


@dataclass(frozen=True)
class Ratio(Estimate):
    """How many times sooner one arm is than another; above 1 it is sooner."""

    lower: float
    upper: float

    @property
    def is_tie(self) -> bool:
        """True if the interval holds 1: the two cannot be told apart."""
        return self.lower <= 1 <= self.upper


@dataclass(frozen=True)
class Curves:
    """The curves of an arm, by seed.

    Attributes:
        curves: by seed.
        time_noise: standard error of the logarithm of the seconds of an iteration.
        feature_seconds: that the derived item features took which they read.
        spread: of seeds, which is assumed.
    """

    curves: Mapping[int, Curve]
    time_noise: float = 0.0
    feature_seconds: float = 0.0
    spread: Spread = QUALITY_SPREAD

    def ratio(self, other: Curves, logs: Sequence[float]) -> Ratio | None:
        """Return how many times sooner it is than another arm, from the logarithm in each seed;
        None without any.
        """
        if not logs:
            return None
        noises = self.time_noise, other.time_noise
        return Ratio(**vars(with_assumed_spread(logs, noises, self.spread)))

    def mean(self, seeds: Sequence[int]) -> Curve:
        """Return the mean of the curves of some seeds, as far as the shortest goes: linear between
        the evaluations of each.
        """
        curves = [self.curves[seed] for seed in seeds]
        end = min(curve.iterations[-1] for curve in curves)
        moments = sorted({at for curve in curves for at in curve.iterations if at <= end})
        losses = [np.interp(moments, curve.iterations, curve.losses) for curve in curves]
        seconds = mean(curve.full_iteration_seconds for curve in curves)
        return Curve(moments, np.mean(losses, axis=0).tolist(), seconds)

    def times_to(self, level: float) -> dict[int, float]:
        """Return the seconds to a level, those of the features included, of each seed that reached
        it.
        """
        times = {seed: curve.time_to(level) for seed, curve in self.curves.items()}
        return {seed: self.feature_seconds + at for seed, at in times.items() if at is not None}


def times_to_level(one: Curves, other: Curves, level: float) -> Ratio | None:
    """Return how many times sooner one arm reaches a level than the other, those of derived
    features included; None where one of them did not, or was there before training.

    Times are compared within seeds. Where the two have no seed in common, their mean times are, as
    those of one seed.
    """
    times, other_times = one.times_to(level), other.times_to(level)
    pairs = [(times[seed], other_times[seed]) for seed in sorted(times.keys() & other_times.keys())]
    if times and other_times and one.curves.keys().isdisjoint(other.curves):
        pairs = [(mean(times.values()), mean(other_times.values()))]
    # Both may have been there before training.
    logs = [
        math.log(at / first) if first else 0.0 for first, at in pairs if bool(first) == bool(at)
    ]
    return one.ratio(other, logs)


def status_beside(status: str, behind: Ratio | None, *, had_time: bool) -> str:
    """Return the status of an arm, given how the recommended one compares: a clear gap is no tie.

    Args:
        behind: how many times sooner the recommended one is; None where it alone is there.
        had_time: whether the arm trained for as long as the recommended one took.
    """
    if status != "tied":
        return status
    if behind is None and not had_time:
        return "undecided"
    if behind is None or behind.lower > 1:
        return "slower"
    return "lower" if behind.upper < 1 else "tied"
