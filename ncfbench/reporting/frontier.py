"""Frontier: the arm with the best recall at every training time, among those of an answer."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ncfbench.reporting.answers import Answer
from ncfbench.reporting.quality import RECALL


@dataclass(frozen=True)
class Step:
    """A stretch of training time in which one arm has the best recall.

    Attributes:
        since: seconds of training at which it took the lead.
        recall_since: recall@50 then.
        recall_until: its largest recall@50 before another arm took the lead, or at the end.
    """

    name: str
    since: float
    recall_since: float
    recall_until: float


def frontier(answer: Answer) -> list[Step]:
    """Return the arms that have the best test recall@50 at some time, in the order of time.

    An arm's recall at a time is the largest that it had up to then: means over its seeds at common
    evaluations, whose time is iterations times the seconds of an iteration (full account).
    """
    points = sorted(
        (seconds, recall, each.contender.name)
        for each in answer.standings
        if not each.contender.has_diverged
        for seconds, recall in each.contender.means(f"test_{RECALL}")
    )
    steps: list[Step] = []
    best = -math.inf
    for seconds, recall, name in points:
        if recall <= best:
            continue
        best = recall
        if steps and steps[-1].name == name:
            last = steps.pop()
            steps.append(Step(name, last.since, last.recall_since, recall))
        else:
            steps.append(Step(name, seconds, recall, recall))
    return steps
