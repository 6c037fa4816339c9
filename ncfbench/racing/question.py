"""The question of a race: the metric, the time for it, who leaves, and who is the answer. Pure."""

from __future__ import annotations

import math
import statistics
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ncfbench.errors import UsageError
from ncfbench.racing import direction, rule
from ncfbench.racing.entry import Entry, Status
from ncfbench.racing.metric import Metric
from ncfbench.racing.rungs import Plan, arms_of_rungs
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

    def curve(self, entry: Entry) -> Curve | None:
        """Return the curve of an entry; None without a line."""
        return entry.timeline.curve(is_less_better=self.metric.is_less_better)

    def is_known(self, entry: Entry) -> bool:
        """Return whether an entry has a line after training began: one at step 0 tells nothing."""
        return self._lines(entry) > 0

    def is_paced(self, entry: Entry) -> bool:
        """Return whether an entry has two lines after training began, which tell its pace."""
        return self._lines(entry) > 1

    def _lines(self, entry: Entry) -> int:
        curve = self.curve(entry)
        return 0 if curve is None else len(curve.seconds) - bisect_right(curve.seconds, 0.0)

    def lowest(self, entry: Entry) -> float:
        """Return the lowest value of an entry as a curve has it; infinity without a line."""
        return entry.timeline.lowest(is_less_better=self.metric.is_less_better)

    def time_to_goal(self, entry: Entry) -> float | None:
        """Return the seconds of an entry to the target; None before it is there, or without one.

        Its curve is made only when a line is past the target: this is asked many times a second.
        """
        goal = self.goal
        if goal is None or self.lowest(entry) > goal:
            return None
        curve = self.curve(entry)
        return None if curve is None else curve.time_to(goal)

    def is_there(self, entry: Entry) -> bool:
        """Return whether an entry has reached the target, and has the two lines that tell when."""
        return self.time_to_goal(entry) is not None and len(entry.readings) > 1

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

    def goes_wrong(self, entries: Iterable[Entry], *, is_last: bool = False) -> bool:
        """Return whether the values of half of the arms or more that show a trend go the way that
        is taken to be worse.

        Args:
            is_last: as for :func:`~ncfbench.racing.direction.trend`.
        """
        values = [[each.value for each in arm.timeline.counted] for arm in entries]
        known = [direction.trend(own, is_last=is_last) for own in values if len(own) > 1]
        worse = 1 if self.metric.is_less_better else -1
        return worse in known and 2 * known.count(worse) >= len(known)

    def require_direction(self, entries: Iterable[Entry], *, is_last: bool = False) -> None:
        """Refuse to choose an arm where nothing says that more is better, and values fall.

        Raises:
            UsageError: they do.
        """
        name = self.metric.name
        if self.metric.known_direction is None and self.goes_wrong(entries, is_last=is_last):
            raise UsageError(
                f"The values of {name} fall, and its name does not say whether less is better:"
                " race again with --minimize, or with --maximize if more is."
            )

    def curves(self, entries: Iterable[Entry]) -> dict[Entry, Curve]:
        """Return the curves of the entries that have a line."""
        return {each: curve for each in entries if (curve := self.curve(each)) is not None}

    def winner(self, entries: Iterable[Entry]) -> tuple[Entry, float] | None:
        """Return the soonest entry and the level that decides, by first seeds; None while no arm
        has a line, or none reached the target.
        """
        curves, goal = self.curves(each for each in entries if not each.seed), self.goal
        if goal is not None:
            times = _times_to(goal, curves)
            return (min(times, key=times.__getitem__), goal) if times else None
        if not curves:
            return None
        start = self.start_of([*curves.values()])
        tops = {each: start - curve.level for each, curve in curves.items()}
        level = start - SHARE * max(tops.values())
        times = _times_to(level, curves)
        return soonest(tops, {each: times.get(each, math.inf) for each in tops}), level

    def finalists(self, entries: Sequence[Entry]) -> dict[Entry, float]:
        """Return the arms to repeat and their seconds to the level that decides, the best first."""
        found = self.winner(entries)
        if found is None:
            return {}
        best, level = found
        times = _times_to(level, self.curves(entries))
        order = sorted(times, key=lambda each: (each is not best, times[each]))
        return {each: times[each] for each in order[:FINALISTS]}

    def judge(
        self, active: Sequence[Entry], ended: Sequence[Entry], plan: Plan | None, clock: float
    ) -> tuple[str, dict[Entry, str]] | None:
        """Judge entries that have all trained to a clock: return the leader's name, and the reason
        of each entry that leaves, empty for want of a line; None while none of them has a line.

        Those leave that cannot win, or for whom there is no time; nobody after the last rung, where
        all have trained as long as any.

        Args:
            active: entries that can train on.
            ended: others; the best of those that ended by themselves is one to be beaten.
            plan: of the rest of the race; None where nothing can train on.
        """
        known = self.curves(each for each in [*active, *ended] if self.is_known(each))
        racing = [each for each in active if each in known]
        over = [each for each in ended if each in known and each.status is Status.ENDED]
        over.sort(key=lambda each: known[each].level)
        arms = {
            each.name: rule.Arm(known[each], "", learning_rate=each.arm.learning_rate)
            for each in [*racing, *over[:1]]
        }
        if not arms:
            return None
        is_last = plan is None or not plan.clocks
        horizon = clock if plan is None else plan.horizon
        keep = arms_of_rungs(len(active), 2, FINALISTS)[1]
        leader, leaving = rule.decide(arms, horizon, keep + len(over[:1]))
        if is_last:
            return leader, {}
        # One that comes to rest early can be the soonest though it will not be the lowest.
        best, _ = self.winner([*racing, *over]) or (None, 0.0)
        dropped = {
            each: leaving[each.name] for each in racing if each.name in leaving and each is not best
        }
        room = max(keep - (len(racing) - len(dropped)), 0)
        silent = [each for each in active if each not in known]
        return leader, dropped | dict.fromkeys(silent[room:], "")


def _times_to(level: float, curves: Mapping[Entry, Curve]) -> dict[Entry, float]:
    """Return the seconds to a level of those that reached it."""
    times = {each: curve.time_to(level) for each, curve in curves.items()}
    return {each: at for each, at in times.items() if at is not None}
