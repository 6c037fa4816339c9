"""Frontier: the arm with the best recall at every training time, among those of an answer."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ncfbench.reporting.answers import Answer, Contender
from ncfbench.reporting.quality import CUTOFF


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
        if each.status != "diverged"
        for seconds, recall in _recalls(each.contender)
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


def _recalls(contender: Contender) -> list[tuple[float, float]]:
    """Return training seconds and mean recall at the evaluations that all seeds have."""
    column = f"test_{CUTOFF}"
    curves = [
        {row["iteration"]: row[column] for row in run.curve if row[column] is not None}
        for run in contender.runs.values()
    ]
    if not contender.is_timed:
        return []
    common = set.intersection(*(set(curve) for curve in curves))
    return [
        (
            iteration * contender.seconds,
            math.fsum(curve[iteration] for curve in curves) / len(curves),
        )
        for iteration in sorted(common)
    ]
