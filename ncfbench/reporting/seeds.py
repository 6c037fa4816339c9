"""Curves of an arm by seed, and how many times sooner one arm is than another.

That is the ratio of their times to one level within a seed. Its interval assumes a spread of seeds
(:func:`ncfbench.timing.intervals.with_assumed_spread`), and the noise of the machine's times is
added.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ncfbench.reporting.frames import Run, falling
from ncfbench.runs.folder import RunRecord
from ncfbench.timing import speedups
from ncfbench.timing.curves import Curve
from ncfbench.timing.intervals import (
    QUALITY_SPREAD,
    Estimate,
    Spread,
    with_assumed_spread,
)

QUARTILES_OF_NORMAL = 1.349
"""Interquartile range of a normal distribution, in standard deviations."""
MEDIAN_OVER_MEAN = 1.25
"""Standard error of a median over that of a mean, for normal values."""


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
class Runs:
    """The curves of an arm.

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

    @classmethod
    def of(cls, runs: Sequence[Run], column: str, chance: float | None = None) -> Runs:
        """Return the curves in a column of the runs that have times and did not diverge.

        Args:
            chance: as for :func:`curve_of`.
        """
        if not runs:
            return cls({})
        # The spread of the times of blocks over the square root of their number.
        noises = [
            (speedups.spread(run.timing, "full") or 0.0)
            / math.sqrt(max(sum(row["kind"] == "full" for row in run.timing), 1))
            for run in runs
        ]
        return cls(
            {
                run.config.seed: curve_of(run, column, chance)
                for run in runs
                if run.is_timed and not run.has_diverged
            },
            MEDIAN_OVER_MEAN / QUARTILES_OF_NORMAL * statistics.fmean(noises),
            statistics.fmean(run.feature_seconds for run in runs),
        )

    def ratio(self, other: Runs, logs: Sequence[float]) -> Ratio | None:
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
        seconds = statistics.fmean(curve.full_iteration_seconds for curve in curves)
        return Curve(moments, np.mean(losses, axis=0).tolist(), seconds)

    def times_to(self, level: float) -> dict[int, float]:
        """Return the seconds to a level, those of the features included, of each seed that reached
        it.
        """
        times = {seed: curve.time_to(level) for seed, curve in self.curves.items()}
        return {seed: self.feature_seconds + at for seed, at in times.items() if at is not None}


def times_to_level(one: Runs, other: Runs, level: float) -> Ratio | None:
    """Return how many times sooner one arm reaches a level than the other, those of derived
    features included; None where one of them did not, or was there before training.

    Times are compared within seeds. Where the two have no seed in common, their mean times are, as
    those of one seed.
    """
    own, theirs = one.times_to(level), other.times_to(level)
    pairs = [(own[seed], theirs[seed]) for seed in sorted(own.keys() & theirs.keys())]
    if own and theirs and one.curves.keys().isdisjoint(other.curves):
        pairs = [(statistics.fmean(own.values()), statistics.fmean(theirs.values()))]
    # Both may have been there before training.
    logs = [
        math.log(at / first) if first else 0.0 for first, at in pairs if bool(first) == bool(at)
    ]
    return one.ratio(other, logs)


def status_beside(status: str, behind: Ratio | None) -> str:
    """Return the status of an arm beside the recommended one: what can be told from it is no tie.

    Args:
        behind: how many times sooner the recommended one is; None where it alone is there.
    """
    if status != "tied":
        return status
    if behind is None or behind.lower > 1:
        return "slower"
    return "lower" if behind.upper < 1 else "tied"


def curve_of(record: RunRecord, column: str, chance: float | None = None) -> Curve:
    """Return probe loss, or a metric with its sign changed and its chance before training, against
    iterations times the median seconds of an iteration, or the clock where iterations are not
    alike; one value of infinity where nothing was evaluated.

    Args:
        column: of the curve, ``probe_loss`` or such as ``validation_recall_at_50``.
        chance: of a run that keeps none.
    """
    arm = falling(record, column)
    points = [*zip(arm.iterations, arm.losses, strict=True)]
    if points and points[0][0] and column != "probe_loss":
        evaluated = (row for row in record.curve if row[column] is not None)
        kept = next(evaluated).get(f"{column}_chance")
        known = chance if kept is None else kept
        points[:0] = [] if known is None else [(0, -known)]
    if not arm.full_iteration_seconds:
        points = points[:1]
    iterations, losses = zip(*(points or [(0, math.inf)]), strict=True)
    return Curve(iterations, losses, arm.full_iteration_seconds or 0.0)
