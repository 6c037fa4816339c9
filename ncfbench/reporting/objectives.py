"""Arms that minimise different things, compared by recall against training time.

The probes of two objectives do not compare; the recall of their models does. All arms of a data
set, encoder and model stand in one list, by the seconds to a recall that each of them reached.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ncfbench.reporting.answers import TRIED, Answer
from ncfbench.reporting.contenders import Contender
from ncfbench.reporting.quality import RECALL
from ncfbench.runs.arms import shared_settings

OBJECTIVE = ("loss", "gamma", "lambda", "noise", "mask")
"""Settings of every run that say what is minimised."""
COMMON_SHARE = 0.9
"""Share of the smallest best recall of all arms: the level that their times are compared at."""


@dataclass(frozen=True)
class Racer:
    """An arm beside those of other objectives.

    Attributes:
        recall: its largest test recall@50, on average over seeds at common evaluations.
        seconds: training until that was reached (full account).
        to_level: training until the first evaluation at or above the common level.
    """

    answer: Answer
    contender: Contender
    recall: float
    seconds: float
    to_level: float


@dataclass(frozen=True)
class Field:
    """The arms of several objectives on one data set and model, the soonest at the level first."""

    level: float
    racers: Sequence[Racer]

    @property
    def first(self) -> Answer:
        """Some answer of the field."""
        return self.racers[0].answer


def find_fields(answers: Sequence[Answer]) -> list[Field]:
    """Return a field for each data set and model with timed arms of two objectives or more."""
    groups: dict[tuple[object, ...], list[Answer]] = {}
    for answer in answers:
        config = answer.config
        left_out = {*TRIED, *OBJECTIVE, *config.objective_settings}
        shared = shared_settings(config)
        key = [(name, str(shared[name])) for name in sorted(shared) if name not in left_out]
        groups.setdefault((answer.data_fingerprint, *key), []).append(answer)
    return [field for own in groups.values() if len(own) > 1 for field in _field(own)]


def _field(answers: Sequence[Answer]) -> list[Field]:
    curves = [
        (answer, standing.contender, points)
        for answer in answers
        for standing in answer.main
        if standing.status != "diverged"
        if (points := standing.contender.means(f"test_{RECALL}"))
    ]
    if len({id(answer) for answer, _, _ in curves}) < 2:
        return []
    level = COMMON_SHARE * min(max(recall for _, recall in points) for _, _, points in curves)
    racers = []
    for answer, contender, points in curves:
        best, when = max((recall, -seconds) for seconds, recall in points)
        reached = next(seconds for seconds, recall in points if recall >= level)
        racers.append(Racer(answer, contender, best, -when, reached))
    return [Field(level, sorted(racers, key=lambda each: each.to_level))]
