"""Arms ranked by the time to the best ranking quality: one rule for a report and for a race.

The arm is recommended that is the soonest of those with about the best quality
(:func:`ncfbench.timing.ranking.soonest`). The mean over the seeds that all arms have decides, as
far as the shortest trained, else the first seed of each. In a race the arms that were repeated are
compared among themselves. How many times sooner it is than another arm is the ratio of their times
to one level within a seed. Its interval assumes a spread of seeds
(:func:`ncfbench.timing.intervals.with_assumed_spread`), and the noise of the machine's times is
added.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Self, TypeVar

import numpy as np

from ncfbench.data.content import Split
from ncfbench.reporting.arms import ArmResult
from ncfbench.reporting.frames import Run, falling
from ncfbench.reporting.quality import CLEAR_ERRORS, RECALL, quality_of
from ncfbench.runs.folder import RunRecord, clock_at
from ncfbench.timing import ranking, speedups
from ncfbench.timing.curves import Curve
from ncfbench.timing.intervals import (
    QUALITY_SPREAD,
    Estimate,
    Spread,
    with_assumed_spread,
)

LEARNED = 0.25
"""A run has learned something when its recall is above chance by
:data:`ncfbench.reporting.quality.CLEAR_ERRORS`, and by this share of chance, or of what is missing
to 1 where that is less.
"""
QUARTILES_OF_NORMAL = 1.349
"""Interquartile range of a normal distribution, in standard deviations."""
MEDIAN_OVER_MEAN = 1.25
"""Standard error of a median over that of a mean, for normal values."""
PLACES = {"recommended": 0, "tied": 1, "undecided": 1, "lower": 1, "slower": 2, "left": 2}
"""Order of the statuses in an answer; those that are not here come last."""


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


@dataclass(frozen=True, kw_only=True)
class RankedArm(ArmResult):
    """An arm beside the recommended one; iterations and seconds are those to the level.

    Attributes:
        measured: its curves in what decides.
        status: recommended, tied, slower, or lower where it is sooner and its best is lower; left,
            diverged, failed or not begun in a race; undecided where no arm is recommended.
        seeds: those that decide; the first one where none is named.
        learned_at: training clock at which its first seed was better than chance; None before.
        behind: how many times sooner the recommended one reaches the level; None where one of them
            does not.
        expected: the same as the answer orders by it; infinity of an arm that never comes there.
    """

    measured: Runs
    seeds: Sequence[int] = ()
    learned_at: float | None = None
    behind: Ratio | None = None
    expected: float = math.inf

    @property
    def has_run(self) -> bool:
        """True if it has a curve with times."""
        return bool(self.measured.curves)

    @property
    def deciding(self) -> Sequence[int]:
        """The seeds that decide; none where it has not run."""
        return self.seeds or [*self.measured.curves][:1]

    @property
    def curve(self) -> Curve:
        """The curve that decides, if it :attr:`has_run`."""
        return self.measured.mean(self.deciding)

    @property
    def level(self) -> float:
        """The lowest value of the curve that decides; infinity of an arm that was not evaluated."""
        return self.curve.level if self.has_run else math.inf

    @property
    def first(self) -> Run:
        """The run of its first seed, if it has begun."""
        return next(iter(self.runs.values()))

    @property
    def shown(self) -> Mapping[int, Run]:
        """The runs of the seeds that decide; of the first one where none has a curve."""
        return {seed: self.runs[seed] for seed in self.deciding or [*self.runs][:1]}

    def with_quality(self) -> Self:
        """Return it with its quality, that of the seeds that decide."""
        return replace(self, reported=quality_of(self.shown.values()))

    def to_level(self, level: float) -> Self:
        """Return it with its iterations and seconds to a level, if it comes there."""
        seconds = self.curve.time_to(level) if self.has_run else None
        if seconds is None:
            return self
        return replace(self, iterations=self.curve.iterations_at(seconds), seconds=seconds)

    @property
    def place(self) -> tuple[int, float, float]:
        """Its key in the order of an answer."""
        return PLACES.get(self.status, len(PLACES)), self.expected, self.level


Arm = TypeVar("Arm", bound=RankedArm)


def rank_soonest(
    arms: Sequence[Arm], finalists: Collection[str] = ()
) -> tuple[list[Arm], float | None]:
    """Return the arms with how they stand to the one that ranks best soonest, and the level that
    decides; None where no arm was evaluated and is known to be better than chance.

    Args:
        finalists: arms with further seeds, of which one is recommended, by the seeds they share; by
            default all are.
    """
    able = {
        index: arm
        for index, arm in enumerate(arms)
        if arm.learned_at is not None and math.isfinite(arm.level) and arm.status in PLACES
    }
    if not able:
        undecided = [
            replace(arm, status="undecided") if arm.status == "tied" else arm for arm in arms
        ]
        return undecided, None
    chosen = [index for index, arm in able.items() if arm.name in finalists] or [*able]
    seeds = sorted(set.intersection(*(set(able[index].measured.curves) for index in chosen)))
    able.update({index: replace(able[index], seeds=seeds) for index in chosen})
    tops = {index: -able[index].level for index in chosen}
    level = -ranking.SHARE * max(tops.values())
    able = {index: arm.to_level(level) for index, arm in able.items()}
    seconds = {
        index: math.inf if arm.seconds is None else arm.measured.feature_seconds + arm.seconds
        for index, arm in able.items()
    }
    best = ranking.soonest(tops, seconds)
    ranked = []
    for index, arm in enumerate(arms):
        behind = None
        if index == best:
            arm = replace(able[best], status="recommended", expected=1.0)
        else:
            arm = able.get(index) or arm.to_level(level)
            if index in able:
                behind = times_to_level(able[best].measured, arm.measured, level)
            expected = math.inf if behind is None else behind.value
            status = status_beside(arm.status, behind)
            arm = replace(arm, behind=behind, status=status, expected=expected)
        ranked.append(arm)
    return ranked, level


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


def above_chance_at(record: RunRecord, split: Split, chance: float) -> float | None:
    """Return the training clock at which the recall@50 of a run's links of a split was first seen
    to be better than chance; None where it never was, 0 where recall cannot tell: there is none, or
    all items are among the first 50.
    """
    if chance >= 1 or record.summary["recall_reason"] is not None:
        return 0.0
    column = f"{split}_{RECALL}"
    least = LEARNED * min(chance, 1 - chance)
    for row in record.curve:
        if row[column] is not None:
            errors = [row[f"{column}{of}_error"] or 0.0 for of in ("", "_item")]
            if row[column] - chance > max(least, CLEAR_ERRORS * math.hypot(*errors)):
                return clock_at(record, row["iteration"])
    return None


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
