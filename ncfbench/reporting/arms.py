"""Arms of an answer, and their order by the time to the best ranking quality.

An arm is a model, a loss and a sampler with settings, with a run for each seed. One rule serves a
report and a race: recommended is the soonest arm of those with about the best quality
(:func:`ncfbench.statistics.ranking.soonest`). The mean over seeds that all arms have decides, as
far as the shortest trained, else the first seed of each. In a race the arms that were repeated are
compared among themselves.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import fmean as mean
from typing import Any, Self

from ncfbench.config import RunConfig
from ncfbench.reporting.frames import Run
from ncfbench.reporting.quality import Quality, quality_of
from ncfbench.runs.reported import reported_row, validation_recall
from ncfbench.statistics import ranking, speedups
from ncfbench.statistics.curves import Curve
from ncfbench.statistics.intervals import interval_columns
from ncfbench.statistics.seeds import Curves, Ratio, status_beside, times_to_level

PLACES = {"recommended": 0, "tied": 1, "undecided": 1, "lower": 1, "slower": 2, "left": 2}
"""Order of the statuses in an answer; those that are not here come last."""


@dataclass(frozen=True, kw_only=True)
class Arm:
    """An arm; seconds are those to the level that decides.

    Attributes:
        runs: its rows of the frame ``arms``, by seed.
        measured: its curves in what decides.
        status: recommended, tied, slower, or lower where it is sooner and its best is lower; left,
            diverged, failed or not begun in a race; undecided where no arm is recommended, or this
            one trained for less than that took.
        reason: why it left a race.
        seconds: None if it never came to the level.
        seeds: those that decide; the first one where none is named.
        learned_at: training clock at which its first seed was better than chance; None before.
        behind: how many times sooner the recommended one reaches the level; None where one of them
            does not.
        expected: the same as the answer orders by it; infinity of an arm that never comes there.
    """

    name: str
    config: RunConfig
    runs: Mapping[int, Run]
    measured: Curves
    status: str = "tied"
    reason: str = ""
    seconds: float | None = None
    seeds: Sequence[int] = ()
    learned_at: float | None = None
    behind: Ratio | None = None
    expected: float = math.inf

    @property
    def has_diverged(self) -> bool:
        """True if any of its seeds diverged."""
        return any(run.has_diverged for run in self.runs.values())

    @property
    def has_run(self) -> bool:
        """True if it has a curve with times."""
        return bool(self.measured.curves)

    @property
    def feature_seconds(self) -> float:
        """Seconds that the derived item features took which its runs read, on average."""
        return mean(run.feature_seconds for run in self.runs.values()) if self.runs else 0.0

    @property
    def total_seconds(self) -> float | None:
        """Seconds to the level, those of the item features included."""
        return None if self.seconds is None else self.feature_seconds + self.seconds

    @property
    def spread(self) -> float:
        """Largest spread of the times of a run's blocks."""
        spreads = (speedups.spread(run.timing, "full") for run in self.runs.values())
        return max((spread or 0.0 for spread in spreads), default=0.0)

    @property
    def deciding(self) -> Sequence[int]:
        """The seeds that decide; none where it has not run."""
        return self.seeds or [*self.measured.curves][:1]

    @property
    def shown(self) -> Mapping[int, Run]:
        """The runs of the seeds that decide; of the first one where none has a curve."""
        return {seed: self.runs[seed] for seed in self.deciding or [*self.runs][:1]}

    @property
    def deployed(self) -> Run:
        """The run of the seeds that decide with the most recall of validation links."""
        return max(self.shown.values(), key=reported_validation)

    @property
    def first(self) -> Run:
        """The run of its first seed, if it has begun."""
        return next(iter(self.runs.values()))

    @property
    def curve(self) -> Curve:
        """The curve that decides, if it :attr:`has_run`."""
        return self.measured.mean(self.deciding)

    @property
    def level(self) -> float:
        """The lowest value of the curve that decides; infinity of an arm that was not evaluated."""
        return self.curve.level if self.has_run else math.inf

    @property
    def facts(self) -> dict[str, Any]:
        """Its times in JSON."""
        return {
            "seeds": len(self.measured.curves),
            "clock_seconds": self.curve.clock if self.has_run else None,
            "learned_seconds": self.learned_at,
            "level": self.level if math.isfinite(self.level) else None,
            **interval_columns("times_slower", self.behind),
            "runs": [run.name for run in self.runs.values()],
        }

    @cached_property
    def reported(self) -> Quality | None:
        """Its quality on test links at the epoch that each seed reports, which is that of the arm
        wherever one number stands for it; None where some seed was not evaluated.
        """
        return quality_of(self.shown.values())

    @property
    def epoch(self) -> float | None:
        """The epoch that is reported, the mean over seeds."""
        return None if self.reported is None else self.reported.epoch

    def means(self, column: str) -> list[tuple[float, float]]:
        """Return a column of the curve, the mean over seeds, at the evaluations at which all have
        it, by seconds of training (full account) after those of the item features; none if it has
        no times.
        """
        runs = self.shown.values()
        if not runs or not all(run.is_timed for run in runs):
            return []
        begin, length = (
            mean(getattr(run, name) for run in runs) for name in ("feature_seconds", "seconds")
        )
        curves = [
            {row["iteration"]: row[column] for row in run.curve if row[column] is not None}
            for run in runs
        ]
        common = sorted(set.intersection(*map(set, curves)))
        return [(begin + at * length, mean(curve[at] for curve in curves)) for at in common]

    def to_level(self, level: float) -> Self:
        """Return it with its seconds to a level, if it comes there."""
        return replace(self, seconds=self.curve.time_to(level) if self.has_run else None)

    @property
    def place(self) -> tuple[int, float, float]:
        """Its key in the order of an answer."""
        return PLACES.get(self.status, len(PLACES)), self.expected, self.level


def reported_validation(run: Run) -> float:
    """Return a run's recall of validation links at the epoch that it reports; 0 without one."""
    row = reported_row(run)
    return (None if row is None else validation_recall(row)) or 0.0


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
            if index in able and arm.seconds is not None:
                behind = times_to_level(able[best].measured, arm.measured, level)
            expected = math.inf if behind is None else behind.value
            needed = able[best].seconds or 0.0
            ended = [run.summary["status"] == "finished" for run in arm.runs.values()]
            had_time = not arm.has_run or arm.curve.clock >= needed or (all(ended) and bool(ended))
            status = status_beside(arm.status, behind, had_time=had_time)
            arm = replace(arm, behind=behind, status=status, expected=expected)
        ranked.append(arm)
    return ranked, level
