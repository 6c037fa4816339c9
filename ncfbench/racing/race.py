"""A race of commands: how they begin, who leaves, and repeats with further seeds."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from ncfbench.errors import CheckFailedError
from ncfbench.racing import engine
from ncfbench.racing.arm import CommandArm
from ncfbench.racing.engine import Clock, Over, Status, end_all
from ncfbench.racing.metric import HINT
from ncfbench.racing.question import FINALISTS, Question
from ncfbench.racing.rungs import Pace

FIRST_SHARE, GROWTH = 0.6, 1.6
"""Share of the time left that the first rung takes, and the wanted growth of the clock from there:
early order misleads, so that a first rung that takes more and rungs that follow sooner find a
sooner arm on recorded curves than rungs of equal times do (benchmarks/README.md).
"""
LEAST_CLOCK = 0.01
"""Seconds of the first rung at least, where lines come at once."""
TURN_SECONDS = 5.0
BEGIN_SHARE = 0.1
"""Share of the budget that the first turns of all take at most, but for:"""
SHOW_SHARE = 0.25
"""the first arm's, which shows with its first line how much memory one holds."""
OPEN_GROWTH = 1.25
"""Growth of the clock up to which arms run whose lines are awaited."""
OPEN_SHARE = 1 / 3
"""Share of the budget after which two arms with one line are enough to judge."""
NO_LINE = "no metric yet, and too little time to wait"
LATER = 1.25
"""Time that is kept for a repeat, over that of the first seed."""
MOST_REPEATS = 0.5
"""Share of the time left that repeats may take; else there are none."""
RESERVE = (2.5, 0.01, 0.2)
"""Kept for the end of the processes: seconds and a share of the budget, at most this share."""


STAYED = (Status.RACING, Status.ENDED)
"""States of arms that can be the answer."""


def make_clock(budget_seconds: float) -> Clock:
    """Return the clock of a race, with the reserve for its end."""
    least, share, most = RESERVE
    return Clock(budget_seconds, min(least + share * budget_seconds, most * budget_seconds))


@dataclass
class Race(engine.Race[CommandArm]):
    """A race of commands.

    Arms begin one after the other, as long as there is memory. Once half of them have two lines,
    rungs begin.

    Args:
        judged: called after each rung.
    """

    question: Question = field(kw_only=True)
    judged: Callable[[], object] = lambda: None
    finalists: ClassVar[int] = FINALISTS
    growth: ClassVar[float] = GROWTH
    least_turn: ClassVar[float] = 0.05

    def __post_init__(self) -> None:
        self.turn_seconds = TURN_SECONDS
        self._wall = self._ran = 0.0
        self._latest = math.inf
        """Clock from which an arm can no longer tie with the first at the target."""

    @property
    def active(self) -> list[CommandArm]:
        """Arms of the first seed that can train on and change the answer."""
        return [arm for arm in self.firsts if arm.can_train and not self.is_settled(arm)]

    @property
    def stayed(self) -> list[CommandArm]:
        """Arms of the first seed that can be the answer."""
        return [arm for arm in self.firsts if arm.status in STAYED]

    def is_settled(self, arm: CommandArm) -> bool:
        """Return whether an arm can no longer tie with the first, or has reached the target and has
        the two lines that tell when; repeats always train on.
        """
        is_late = arm.seconds > self._latest
        is_there = self.question.time_to_goal(arm) is not None and len(arm.readings) > 1
        return not arm.seed and (is_late or is_there)

    def begin(self) -> None:
        """Let arms run until half of them have two lines, or after a third of the budget until two
        have one. One has two lines then, which tell start-up from training.

        Those whose lines come late train on before they are judged, or leave without one.

        Raises:
            CheckFailedError: no arm printed a metric.
        """
        clock = self._start(self.firsts)
        while self.clock.left > 0:
            is_late = self.clock.spent > OPEN_SHARE * self.clock.budget_seconds
            is_enough = _is_known if is_late else _is_paced
            silent = [arm for arm in self.active if not is_enough(arm)]
            wanted = 2 if is_late else max(math.ceil(len(self.firsts) / 2), 2)
            if not silent or sum(map(is_enough, self.firsts)) >= wanted:
                break
            clock *= OPEN_GROWTH
            self.train(silent, clock, is_enough)
        known = [*filter(_is_known, self.active)]
        if known and not any(map(_is_paced, known)):
            self.train(known[:1], GROWTH * known[0].seconds, _is_paced)
        if not any(arm.readings for arm in self.firsts):
            first = self.firsts[0]
            has_printed = first.process is not None and first.process.last_lines
            hint = HINT if has_printed else "Give a larger --budget"
            why = first.reason or f"it ran {first.running_seconds:.0f} s. {hint}"
            raise CheckFailedError(f"No arm printed a metric. {first.name}: {why}.")
        self.reached = self._first_clock()

    def _first_clock(self) -> float:
        """Return the clock before the first rung, to which those without a line have trained."""
        active = self.active
        silent = [arm.seconds for arm in active if not arm.lines]
        trained = silent or [arm.seconds for arm in active] or [0.0]
        share = (
            FIRST_SHARE * self.clock.left / (self.pace().training * max(len(active), 1) * GROWTH)
        )
        return max(statistics.median(trained), share, LEAST_CLOCK)

    def _start(self, arms: Sequence[CommandArm]) -> float:
        """Start arms, as many as there is time and memory for, each with a short turn, whose
        seconds are returned; the first one's lasts until its line, to show the memory of all.
        """
        budget = self.clock.budget_seconds
        most, show = BEGIN_SHARE * budget, SHOW_SHARE * budget
        seconds = min(TURN_SECONDS, most / max(len(arms), 1))
        for arm in arms:
            if self.clock.left <= 0:
                arm.reason = arm.reason or "no time to begin"
            elif arm.start():
                self.turn(arm, show if arm is arms[0] else seconds, _is_known)
                if arm is arms[0]:
                    self._say_what_is_no_metric(arm)
                arm.measure()
        return seconds

    def _say_what_is_no_metric(self, arm: CommandArm) -> None:
        """Say early that the first arm prints other lines."""
        lines = [*arm.process.last_lines] if arm.process and arm.can_train else ()
        if lines and not arm.readings:
            self.say(
                f"{self.clock.spent:.0f} s: {arm.name} has printed no metric yet, but:"
                f" {' | '.join(lines)}. {HINT}."
            )

    def turn(self, arm: CommandArm, seconds: float, is_over: Over) -> None:
        """Give an arm a turn, and say how it ended."""
        began, before = self.clock.spent, arm.running_seconds
        try:
            super().turn(arm, min(seconds, max(self.clock.left, 0.0)), is_over)
        finally:
            self._wall += self.clock.spent - began
            self._ran += arm.running_seconds - before
            self._expect_startup()
        times = [self.question.time_to_goal(first) for first in self.firsts]
        first = min((at for at in times if at is not None), default=math.inf)
        self._latest = self.question.spread.factor * first
        if not arm.can_train:
            self.say(f"{self.clock.spent:.0f} s: {arm.name}: {arm.status}, {arm.reason}.")
            end_all([arm])

    def _expect_startup(self) -> None:
        """Let arms whose start-up is not known yet expect that of others."""
        timelines = [arm.timeline for arm in self.arms]
        known = [line.startup_seconds for line in timelines if len(line.readings) > 1]
        for timeline in timelines:
            timeline.expected_startup = statistics.median(known) if known else 0.0

    @property
    def rung_seconds(self) -> float:
        """Seconds left once all have trained alike, less those of repeats."""
        behind = sum(max(self.reached - arm.seconds, 0.0) for arm in self.active)
        left = self.clock.left - self.pace().training * behind
        finalists = self.question.finalists(self.stayed)
        repeats = LATER * (self.question.seeds - 1) * self._seconds_of(finalists)
        return left - (repeats if repeats < MOST_REPEATS * left else 0.0)

    def _seconds_of(self, finalists: Mapping[CommandArm, float]) -> float:
        """Return the wall seconds that one more seed of each takes."""
        pace = self.pace()
        return sum(pace.opening + pace.training * at for at in finalists.values())

    def pace(self, arms: Sequence[CommandArm] = ()) -> Pace:
        """Return the mean pace of all arms: some alone tell too little."""
        startup = [arm.timeline.startup_seconds for arm in self.firsts if arm.readings]
        training = self._wall / self._ran if self._ran else 1.0
        return Pace(statistics.mean(startup) if startup else 0.0, training, 0.0)

    def measure(self) -> None:
        """Require that the metric's direction is known.

        Raises:
            UsageError: nothing says whether less of it is better, and it falls.
        """
        self.question.require_direction(self.firsts)

    def judge(self) -> None:
        """Judge the arms, and answer."""
        super().judge()
        self.judged()

    def leaving(
        self, dropped: Mapping[CommandArm, str], keep: int, *, is_last: bool
    ) -> Mapping[CommandArm, str]:
        """Keep the soonest, though it may not be the lowest; of those without a line as many stay
        as there is time for. After the last rung nobody leaves: all have trained as long as any.
        """
        if is_last:
            return {}
        racing = [*filter(_is_known, self.active)]
        ended = [arm for arm in self.firsts if arm.status is Status.ENDED and arm.lines]
        best, _ = self.question.winner([*racing, *ended]) or (None, 0.0)
        leaving = {arm: reason for arm, reason in dropped.items() if arm is not best}
        room = max(keep - (len(racing) - len(leaving)), 0)
        silent = [arm for arm in self.active if not arm.lines]
        return leaving | dict.fromkeys(silent[room:], NO_LINE)

    def repeat(self) -> None:
        """Train further seeds of the finalists, to the level that decides."""
        self.leave(dict.fromkeys([arm for arm in self.active if not arm.lines], NO_LINE))
        finalists = self.question.finalists(self.stayed)
        _, level = self.question.winner(self.stayed) or (None, -math.inf)
        most = 2 * LATER * max(finalists.values(), default=0.0)
        for seed in range(1, self.question.seeds if finalists else 1):
            if self.clock.left < self._seconds_of(finalists):
                break
            more = [type(arm)(arm.command, arm.field, arm.number, seed) for arm in finalists]
            self.say(f"Seed {seed} of {', '.join(arm.command.name for arm in more)}.")
            self.arms += more
            self._start(more)
            self.train(more, math.inf, lambda arm: arm.lowest <= level or arm.seconds > most)
            for arm in more:
                if arm.can_train:
                    arm.status = Status.ENDED
                    arm.reason = "at the level" if arm.lowest <= level else "in time"
            end_all([arm for arm in more if arm.is_open])
        self.question.require_direction(self.firsts, is_last=True)


def _is_known(arm: CommandArm) -> bool:
    return arm.lines > 0


def _is_paced(arm: CommandArm) -> bool:
    return arm.lines > 1
