"""Curves of a race, read from the records of its runs, and how much sooner one entrant is.

Within a seed two entrants share parameters and data. The ratio of their times is taken at the
latest level that both have reached (:func:`ncfbench.reporting.frames.latest_common_level`). Nothing
is extrapolated, and what happened at easier levels does not count. The interval assumes a spread of
seeds (:func:`ncfbench.timing.intervals.with_assumed_spread`), and the noise of the machine's times
is added.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ncfbench.advice.rule import Curve
from ncfbench.data import Dataset
from ncfbench.data.content import Split
from ncfbench.reporting.frames import falling, latest_common_level
from ncfbench.runs.folder import RunRecord
from ncfbench.timing import ranking
from ncfbench.timing.intervals import Estimate, with_assumed_spread
from ncfbench.timing.ranking import most_wins

CUTOFF = 50
ERRORS = 3.0
LEARNED = 0.25
"""A run has learned something when its recall is above chance by :data:`ERRORS` standard errors,
and by this share of chance, or of what is missing to 1 where that is less.
"""


@dataclass(frozen=True)
class Runs:
    """The runs of an entrant.

    Attributes:
        curves: by seed.
        time_noise: standard error of the logarithm of the seconds of an iteration.
        feature_seconds: that the derived item features took which they read.
    """

    curves: Mapping[int, Curve]
    time_noise: float = 0.0
    feature_seconds: float = 0.0

    def times_to(self, level: float) -> dict[int, float]:
        """Return the seconds to a level, those of the features included, of each seed that reached
        it.
        """
        times = {seed: curve.time_to(level) for seed, curve in self.curves.items()}
        return {seed: self.feature_seconds + at for seed, at in times.items() if at is not None}


@dataclass(frozen=True)
class Ratio(Estimate):
    """How many times sooner one entrant is than another; above 1 it is sooner."""

    lower: float
    upper: float

    @property
    def is_tie(self) -> bool:
        """True if the interval holds 1: the two cannot be told apart."""
        return self.lower <= 1 <= self.upper


def chance(dataset: Dataset, split: Split) -> float:
    """Return the expected recall@50 of a random order of the items that are ranked for a split's
    links, on average over users.
    """
    n_ranked = np.full(1, len(dataset.candidates(split)))
    if dataset.ranks_known_items:
        n_ranked = n_ranked - dataset.graph.user_degrees[np.unique(dataset.links(split)[0])]
    return float(np.mean(np.minimum(CUTOFF / np.maximum(n_ranked, 1), 1.0)))


def curve_of(record: RunRecord, column: str) -> Curve:
    """Return probe loss, or a metric with its sign changed and its chance before training, against
    iterations times the median seconds of an iteration; one value of infinity where nothing was
    evaluated.

    Args:
        column: of the curve, see :attr:`ncfbench.advice.question.Question.column`.
    """
    arm = falling(record, column)
    points = [*zip(arm.iterations, arm.losses, strict=True)]
    if points and points[0][0] and column != "probe_loss":
        evaluated = (row for row in record.curve if row[column] is not None)
        points.insert(0, (0, -next(evaluated)[f"{column}_chance"]))
    if not arm.full_iteration_seconds:
        points = points[:1]
    iterations, losses = zip(*(points or [(0, math.inf)]), strict=True)
    return Curve(iterations, losses, arm.full_iteration_seconds or 0.0)


def learned_at(record: RunRecord, dataset: Dataset) -> float | None:
    """Return the training clock at which a run was first seen to be better than chance; None where
    it never was, 0 where recall cannot tell: there is none, or all items are among the first 50.
    """
    split: Split = "validation" if dataset.holds_out("validation") else "test"
    by_chance = chance(dataset, split)
    column = f"{split}_recall_at_{CUTOFF}"
    if by_chance >= 1 or record.summary["recall_reason"] is not None:
        return 0.0
    least = LEARNED * min(by_chance, 1 - by_chance)
    seconds = record.summary["full_iteration_seconds"] or 0.0
    for row in record.curve:
        if row[column] is not None:
            errors = [row[f"{column}{of}_error"] or 0.0 for of in ("", "_item")]
            if row[column] - by_chance > max(least, ERRORS * math.hypot(*errors)):
                return float(row["iteration"] * seconds)
    return None


def times_sooner(one: Runs, other: Runs) -> Ratio | None:
    """Return how many times sooner one entrant reaches the latest common level than the other.

    None where no seed has a level that both reached after the start.
    """
    logs = []
    for own, theirs in _pairs(one, other):
        level = latest_common_level(own, theirs)
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


def soonest(entrants: Mapping[str, Runs]) -> tuple[str, float] | None:
    """Return the soonest entrant of those with about the best ranking
    (:func:`ncfbench.timing.ranking.soonest`), and the level that decides; None where there is none.

    First seeds decide, which have trained the longest. Seconds of derived features count.
    """
    first = {name: next(iter(runs.curves)) for name, runs in entrants.items() if runs.curves}
    tops = {name: -entrants[name].curves[seed].level for name, seed in first.items()}
    if not tops:
        return None
    level = -ranking.SHARE * max(tops.values())
    seconds = {
        name: entrants[name].times_to(level).get(seed, math.inf) for name, seed in first.items()
    }
    return ranking.soonest(tops, seconds), level


def times_to_level(one: Runs, other: Runs, level: float) -> Ratio | None:
    """Return how many times sooner one entrant reaches a level than the other, those of derived
    features included; None where no seed of both did, or one was there before training.
    """
    own, theirs = one.times_to(level), other.times_to(level)
    pairs = [(own[seed], theirs[seed]) for seed in sorted(own.keys() & theirs.keys())]
    # Both may have been there before training.
    logs = [
        math.log(at / first) if first else 0.0 for first, at in pairs if bool(first) == bool(at)
    ]
    return _interval(logs, one.time_noise, other.time_noise) if logs else None


def best_of(entrants: Mapping[str, Runs]) -> str | None:
    """Return the name of the entrant that is sooner than most others; of equal ones the lowest.

    None where there is none.
    """

    def ahead(name: str, other: str) -> float | None:
        ratio = times_sooner(entrants[name], entrants[other])
        return None if ratio is None else math.log(ratio.value)

    def level(name: str) -> float:
        return min(curve.level for curve in entrants[name].curves.values())

    return most_wins(list(entrants), ahead, level) if entrants else None


def _pairs(one: Runs, other: Runs) -> list[tuple[Curve, Curve]]:
    common = sorted(one.curves.keys() & other.curves.keys())
    return [(one.curves[seed], other.curves[seed]) for seed in common]


def _interval(logs: Sequence[float], *noises: float) -> Ratio:
    return Ratio(**vars(with_assumed_spread(logs, noises)))
