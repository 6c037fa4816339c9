"""Arms that minimise different things, compared by recall against training time.

The probes of two objectives do not compare; the recall of their models does. All arms of a data
set, encoder and model stand in one list, by the seconds to shares of the best recall of all.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean as mean

from ncfbench.reporting.answers import TRIED, Answer
from ncfbench.reporting.contenders import Contender
from ncfbench.reporting.quality import RECALL
from ncfbench.runs.arms import shared_settings

OBJECTIVE = ("loss", "gamma", "lambda", "noise", "mask")
"""Settings of every run that say what is minimised."""
LEVEL_SHARES = (0.5, 0.9)
"""Shares of the best recall of all arms: the levels that their times are compared at."""


@dataclass(frozen=True)
class Racer:
    """An arm beside those of other objectives.

    Attributes:
        recalls: test recall@50 of each seed at the evaluation where their mean is largest.
        seconds: training until then (full account).
        to_levels: training until the first evaluation at or above each level; None if never.
    """

    answer: Answer
    contender: Contender
    recalls: Sequence[float]
    seconds: float
    to_levels: Sequence[float | None]

    @property
    def recall(self) -> float:
        """Its largest test recall@50, on average over seeds at common evaluations."""
        return mean(self.recalls)


@dataclass(frozen=True)
class Field:
    """The arms of several objectives on one data set and model.

    Those that reach the highest level come first, the soonest before the others.
    """

    levels: Sequence[float]
    racers: Sequence[Racer]

    @property
    def first(self) -> Answer:
        """Some answer of the field."""
        return self.racers[0].answer


def find_fields(answers: Sequence[Answer], *, allow_mixed: bool = False) -> list[Field]:
    """Return a field for each data set and model with timed arms of two objectives or more.

    Args:
        allow_mixed: compare times of different environments too; else each has fields of its own.
    """
    groups: dict[tuple[object, ...], list[Answer]] = {}
    for answer in answers:
        config = answer.config
        left_out = {*TRIED, *OBJECTIVE, *config.objective_settings}
        shared = shared_settings(config)
        key = [(name, str(shared[name])) for name in sorted(shared) if name not in left_out]
        environments = () if allow_mixed else _environments(answer)
        groups.setdefault((answer.data_fingerprint, environments, *key), []).append(answer)
    return [field for own in groups.values() if len(own) > 1 for field in _field(own)]


def _environments(answer: Answer) -> tuple[str, ...]:
    runs = [run for each in answer.standings for run in each.contender.runs.values()]
    return tuple(sorted({str(run.environment["key"]) for run in runs}))


def _field(answers: Sequence[Answer]) -> list[Field]:
    curves = [
        (answer, standing.contender, points)
        for answer in answers
        for standing in answer.main
        if not standing.contender.has_diverged
        if (points := standing.contender.points(f"test_{RECALL}"))
    ]
    if len({id(answer) for answer, _, _ in curves}) < 2:
        return []
    best = max(mean(values) for _, _, points in curves for _, values in points)
    levels = [share * best for share in LEVEL_SHARES]
    racers = []
    for answer, contender, points in curves:
        seconds, recalls = max(points, key=lambda point: (mean(point[1]), -point[0]))
        reached = [
            next((seconds for seconds, values in points if mean(values) >= level), None)
            for level in levels
        ]
        racers.append(Racer(answer, contender, recalls, seconds, reached))
    return [Field(levels, sorted(racers, key=_rank))]


def _rank(racer: Racer) -> tuple[float, ...]:
    """Order by the seconds to the highest level, then to the next, then by recall."""
    times = (math.inf if each is None else each for each in reversed(racer.to_levels))
    return (*times, -racer.recall)
