"""The question of a race: the metric, the time for it, and which of some curves is the answer."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from ncfbench.racing.entry import Entry
from ncfbench.racing.metric import Metric
from ncfbench.timing.curves import Curve
from ncfbench.timing.ranking import SHARE, soonest


@dataclass(frozen=True)
class Question:
    """The question of a race, and its time.

    Attributes:
        target: value to reach soonest; None for 95 % of the best.
        seeds: of the finalists.
        count_startup: count start-up and compilation as training.
    """

    metric: Metric
    budget_seconds: float
    target: float | None = None
    seeds: int = 1
    turn_seconds: float = 5.0
    count_startup: bool = False

    @property
    def goal(self) -> float | None:
        """The target as a value that curves fall to."""
        if self.target is None or self.metric.is_less_better:
            return self.target
        return -self.target

    def curve(self, entry: Entry) -> Curve | None:
        """Return the curve of an entry; None without a line."""
        return entry.curve(
            is_less_better=self.metric.is_less_better, count_startup=self.count_startup
        )

    def start_of(self, curves: Sequence[Curve]) -> float:
        """Return the value from which quality is measured: 0 for a metric that rises from 0 or
        more, else the median of the first values.
        """
        if not self.metric.is_less_better and all(max(curve.losses) <= 0 for curve in curves):
            return 0.0
        return statistics.median(curve.losses[0] for curve in curves) if curves else 0.0

    def winner(self, entries: Sequence[Entry]) -> tuple[str, float] | None:
        """Return the name of the soonest arm and the level that decides, by first seeds; None
        while no arm has a line, or none reached the target.
        """
        curves = {each.name: self.curve(each) for each in entries if not each.seed}
        known = {name: curve for name, curve in curves.items() if curve is not None}
        goal = self.goal
        if goal is not None:
            times = {name: curve.time_to(goal) for name, curve in known.items()}
            reached = {name: at for name, at in times.items() if at is not None}
            return (min(reached, key=reached.__getitem__), goal) if reached else None
        if not known:
            return None
        start = self.start_of([*known.values()])
        tops = {name: start - curve.level for name, curve in known.items()}
        level = start - SHARE * max(tops.values())
        times = {name: curve.time_to(level) for name, curve in known.items()}
        seconds = {name: math.inf if at is None else at for name, at in times.items()}
        return soonest(tops, seconds), level
