"""The question of a race: the metric, the time for it, who leaves, and who is the answer. Pure."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ncfbench.errors import UsageError
from ncfbench.racing import direction
from ncfbench.racing.arm import CommandArm
from ncfbench.racing.metric import Metric
from ncfbench.statistics.curves import Curve
from ncfbench.statistics.intervals import LOSS_SPREAD, QUALITY_SPREAD, Spread
from ncfbench.statistics.ranking import SHARE, soonest

FINALISTS = 2
"""Arms of the last rung, which further seeds repeat."""


@dataclass(frozen=True)
class Question:
    """The question of a race, and its time.

    Attributes:
        target: value to reach soonest; None for 95 % of the best.
        seeds: of the finalists.
    """

    metric: Metric
    budget_seconds: float
    target: float | None = None
    seeds: int = 1

    @property
    def spread(self) -> Spread:
        """How much the times of an arm's seeds to a level are assumed to differ."""
        return LOSS_SPREAD if self.metric.is_less_better else QUALITY_SPREAD

    @property
    def goal(self) -> float | None:
        """The target as a value that curves fall to."""
        if self.target is None or self.metric.is_less_better:
            return self.target
        return -self.target

    def time_to_goal(self, arm: CommandArm) -> float | None:
        """Return the seconds of an arm to the target; None before it is there, or without one.

        Its curve is made only when a line is past the target: this is asked many times a second.
        """
        if self.goal is None or arm.lowest > self.goal or arm.curve is None:
            return None
        return arm.curve.time_to(self.goal)

    def start_of(self, curves: Sequence[Curve]) -> float:
        """Return the value from which quality is measured: 0 for a metric that rises from 0 or
        more, and 0.5 for an area under a ROC curve; the median of the first values for others, and
        where it is past :data:`SHARE` of the best.
        """
        if not curves:
            return 0.0
        first = statistics.median(curve.losses[0] for curve in curves)
        if self.metric.is_less_better or any(max(curve.losses) > 0 for curve in curves):
            return first
        best = min(curve.level for curve in curves)
        unit = 100.0 if best < -1 else 1.0  # percent
        start = -unit * (direction.chance_of(self.metric.name) or 0.0)
        is_past = best >= start or first <= start + SHARE * (best - start)
        return first if is_past else start

    def goes_wrong(self, arms: Iterable[CommandArm], *, is_last: bool = False) -> bool:
        """Return whether the values of half of the arms or more that show a trend go the way that
        is taken to be worse.

        Args:
            is_last: as for :func:`~ncfbench.racing.direction.trend`.
        """
        values = [[line.value for line in arm.readings[:]] for arm in arms]
        known = [direction.trend(series, is_last=is_last) for series in values if len(series) > 1]
        worse = 1 if self.metric.is_less_better else -1
        return worse in known and 2 * known.count(worse) >= len(known)

    def require_direction(self, arms: Iterable[CommandArm], *, is_last: bool = False) -> None:
        """Refuse to choose an arm where nothing says that more is better, and values fall.

        Raises:
            UsageError: they do.
        """
        name = self.metric.name
        if self.metric.known_direction is None and self.goes_wrong(arms, is_last=is_last):
            raise UsageError(
                f"The values of {name} fall, and its name does not say whether less is better:"
                " race again with --minimize, or with --maximize if more is."
            )

    def winner(self, arms: Iterable[CommandArm]) -> tuple[CommandArm, float] | None:
        """Return the soonest arm and the level that decides, by first seeds; None while no arm
        has a line, or none reached the target.
        """
        curves, goal = curves_of(arm for arm in arms if not arm.seed), self.goal
        if goal is not None:
            times = _times_to(goal, curves)
            return (min(times, key=times.__getitem__), goal) if times else None
        if not curves:
            return None
        start = self.start_of([*curves.values()])
        tops = {arm: start - curve.level for arm, curve in curves.items()}
        level = start - SHARE * max(tops.values())
        times = _times_to(level, curves)
        return soonest(tops, {arm: times.get(arm, math.inf) for arm in tops}), level

    def finalists(self, arms: Sequence[CommandArm]) -> dict[CommandArm, float]:
        """Return the arms to repeat and their seconds to the level that decides, the best first."""
        if (winner := self.winner(arms)) is None:
            return {}
        best, level = winner
        times = _times_to(level, curves_of(arms))
        order = sorted(times, key=lambda arm: (arm is not best, times[arm]))
        return {arm: times[arm] for arm in order[:FINALISTS]}


def curves_of(arms: Iterable[CommandArm]) -> dict[CommandArm, Curve]:
    """Return the curves of the arms that have a line."""
    return {arm: curve for arm in arms if (curve := arm.curve) is not None}


def _times_to(level: float, curves: Mapping[CommandArm, Curve]) -> dict[CommandArm, float]:
    """Return the seconds to a level of those that reached it."""
    times = {arm: curve.time_to(level) for arm, curve in curves.items()}
    return {arm: at for arm, at in times.items() if at is not None}
