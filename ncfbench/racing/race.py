"""A race of entries: turns, rungs, those that leave, and repeats with further seeds."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from ncfbench.errors import CheckFailedError
from ncfbench.racing.clock import doubt
from ncfbench.racing.entry import STAYED, Entry, Status
from ncfbench.racing.field import Field, Over
from ncfbench.racing.question import FINALISTS, Question
from ncfbench.racing.rungs import Pace, Plan, plan_rungs
from ncfbench.reporting.formats import three_digits

FIRST_SHARE, GROWTH = 0.6, 1.6
"""Share of the time left that the first rung takes, and the wanted growth of the clock from there:
early order misleads, so that a first rung that takes more and rungs that follow sooner find a
sooner arm on recorded curves than rungs of equal times do (benchmarks/README.md).
"""
LEAST_CLOCK = 0.01
"""Seconds of the first rung at least, where lines come at once."""
TURN_SECONDS, LEAST_TURN = 5.0, 0.05
"""Seconds of a turn, and of the shortest one, which ends a rung."""
BEGIN_SHARE = 0.1
"""Share of the budget that the first turns of all take at most, but for:"""
SHOW_SHARE = 0.25
"""the first entry's, which shows with its first line how much memory one holds."""
OPEN_GROWTH = 1.25
"""Growth of the clock up to which entries run whose lines are awaited."""
OPEN_SHARE = 1 / 3
"""Share of the budget after which two arms with one line are enough to judge."""
NO_LINE = "no line yet, and no time for all"
LATER = 1.25
"""Time that is kept for a repeat, over that of the first seed."""
MOST_REPEATS = 0.5
"""Share of the time left that repeats may take; else there are none."""
LATE_SHARE = 0.5
"""Share of the time left that an entry which had to wait for memory may take to catch up."""
RESERVE = (2.5, 0.01, 0.2)
"""Kept for the end of the processes: seconds and a share of the budget, at most this share."""


@dataclass
class Race:
    """A race over some entries of first seeds.

    Entries begin one after the other. The one that trained least has the next turn, so that a
    disturbance of the machine meets all. Once half of them have two lines, rungs begin: at the end
    of one all have trained alike and are judged; slow ones leave, and the rest is planned anew. An
    entry that lacks memory begins when others have left.

    Args:
        entries: to which repeats are added.
        judged: called after each rung.
        say: shows a message.
    """

    question: Question
    entries: list[Entry]
    field: Field
    judged: Callable[[], object] = lambda: None
    say: Callable[[str], None] = lambda _: None

    def __post_init__(self) -> None:
        self._wall = self._ran = 0.0
        self._said: set[str] = set()

    @property
    def spent(self) -> float:
        """Seconds spent."""
        return self.field.seconds

    @property
    def left(self) -> float:
        """Seconds left for turns."""
        budget, (least, share, most) = self.question.budget_seconds, RESERVE
        return budget - min(least + share * budget, most * budget) - self.spent

    @property
    def firsts(self) -> list[Entry]:
        """Entries of the first seed."""
        return [each for each in self.entries if not each.seed]

    @property
    def active(self) -> list[Entry]:
        """Entries of the first seed that can train on and change the answer."""
        latest = self._latest()
        return [each for each in self.firsts if each.can_train and not self._has_lost(each, latest)]

    def run(self) -> None:
        """Race until the budget is spent, or all that can decide is known.

        Raises:
            CheckFailedError: no entry printed a metric.
            KeyboardInterrupt: interrupted.
            UsageError: nothing says whether less of the metric is better, and it falls.
        """
        self._open()
        if not any(each.readings for each in self.firsts):
            first = self.firsts[0]
            lines = [*first.process.last_lines] if first.process else []
            hint = self.question.metric.advice(lines) if lines else "Give a larger --budget."
            why = (
                f"{first.reason}."
                if first.reason
                else f"it ran {first.running_seconds:.0f} s. {hint}"
            )
            raise CheckFailedError(f"No arm printed a metric. {first.name}: {why}")
        clock = self._first_clock()
        while (plan := self._admit(clock)) is not None:
            clock = plan.clocks[0]
            self._train(self.active, clock)
            self._judge(clock)
        self._leave({each: "" for each in self.active if not self.question.is_known(each)}, clock)
        self._repeat()
        self.question.require_direction(self.firsts, is_last=True)

    def _first_clock(self) -> float:
        """Return the clock before the first rung, to which those without a line have trained."""
        active = self.active
        silent = [each.trained_seconds for each in active if not self.question.is_known(each)]
        trained = silent or [each.trained_seconds for each in active] or [0.0]
        count = max(len(active) + len(self._waiting), 1)
        share = FIRST_SHARE * self.left / (self._pace().training * count * GROWTH)
        return max(statistics.median(trained), share, LEAST_CLOCK)

    def _begin(self, entries: Sequence[Entry]) -> float:
        """Start entries, as many as there is time and memory for, each with a short turn, whose
        seconds are returned; the first one's lasts until its line, to show the memory of all.
        """
        budget = self.question.budget_seconds
        most, show = BEGIN_SHARE * budget, SHOW_SHARE * budget
        seconds = min(TURN_SECONDS, most / max(len(entries), 1))
        for place, each in enumerate(entries):
            if self.left <= 0:
                each.reason = each.reason or "no time to begin"
            elif self.field.start(each):
                self._turn(each, seconds if place else show, self.question.is_known)
                if place == 0:
                    self._say_what_is_no_metric(each)
                self.field.measure(each)
        return seconds

    def _say_what_is_no_metric(self, entry: Entry) -> None:
        """Say early that the first arm prints other lines."""
        lines = [*entry.process.last_lines] if entry.process and entry.can_train else ()
        if lines and not entry.readings:
            self.say(
                f"{self.spent:.0f} s: {entry.name} has printed no metric yet, but:"
                f" {' | '.join(lines)}. {self.question.metric.advice(lines)}"
            )

    def _admit(self, clock: float) -> Plan | None:
        """Start entries that lacked memory, where there is some now and time to catch up; return
        the plan of the rest.
        """
        for each in self._waiting:
            needs = self._pace().opening + self._pace().training * clock
            if needs < LATE_SHARE * self._left_at(clock) and self.field.start(each):
                self._turn(each, TURN_SECONDS, self.question.is_known)
                self.field.measure(each)
        return self._plan(clock)

    def _open(self) -> None:
        """Let entries run until half of them have two lines, or after a third of the budget until
        two have one. One has two lines then, which tell start-up from training.

        Those whose lines come late train on before they are judged, or leave without one.
        """
        clock = self._begin(self.firsts)
        while self.left > 0:
            is_late = self.spent > OPEN_SHARE * self.question.budget_seconds
            is_enough = self.question.is_known if is_late else self.question.is_paced
            silent = [each for each in self.active if not is_enough(each)]
            wanted = 2 if is_late else max(math.ceil(len(self.firsts) / 2), 2)
            if not silent or sum(map(is_enough, self.firsts)) >= wanted:
                break
            clock *= OPEN_GROWTH
            self._train(silent, clock, is_enough)
        known = [each for each in self.active if self.question.is_known(each)]
        if known and not any(map(self.question.is_paced, known)):
            self._train(known[:1], GROWTH * known[0].trained_seconds, self.question.is_paced)

    def _turn(self, entry: Entry, seconds: float, is_over: Over) -> None:
        began, before = self.field.seconds, entry.running_seconds
        try:
            self.field.turn(entry, min(seconds, max(self.left, 0.0)), is_over)
        finally:
            self._wall += self.field.seconds - began
            self._ran += entry.running_seconds - before
            self._expect_startup()
        self._say_how_lines_are_read(entry)
        if not entry.can_train:
            self.say(f"{self.spent:.0f} s: {entry.name}: {entry.status}, {entry.reason}.")
            self.field.close([entry])

    def _expect_startup(self) -> None:
        """Let arms whose start-up is not known yet expect that of others."""
        lines = [each.timeline for each in self.entries]
        for each in lines:
            each.split = self.question.metric.split
        known = [each.startup_seconds for each in lines if len(each.readings) > 1]
        for each in lines:
            each.expected_startup = statistics.median(known) if known else 0.0

    def _say_how_lines_are_read(self, entry: Entry) -> None:
        """Say once how lines are read, and which of them seem to be of several series."""
        metric = self.question.metric
        if why := doubt(entry.timeline.counted):
            option = metric.narrowed(entry.readings[-1].source or "WORD")
            entry.doubt = (
                f"Lines of {entry.name} seem to be of several series, since {why}, and all"
                f" count. Choose one by a word of its lines, as in {option}."
            )
        doubts = [each.doubt for each in self.entries if each.doubt]
        for text in [*metric.notes, *doubts[:1]] if entry.readings else ():
            if text not in self._said:
                self._said.add(text)
                self.say(text)

    def _train(
        self,
        entries: Sequence[Entry],
        target: float,
        is_over: Over | None = None,
    ) -> None:
        """Give turns to those that have trained least, until all have trained to a clock."""
        while self.left > 0:
            latest = self._latest()
            behind = [
                each
                for each in entries
                if each.can_train
                and each.trained_seconds < target
                and not (is_over and is_over(each))
                and not self._has_lost(each, latest)
            ]
            if not behind:
                return
            least = min(behind, key=lambda each: each.trained_seconds)
            missing = max(target - least.trained_seconds, LEAST_TURN)
            stop = is_over or partial(self._is_done, target=target, latest=latest)
            self._turn(least, min(TURN_SECONDS, missing), stop)

    def _latest(self) -> float:
        """Return the clock from which an arm can no longer tie with the first at the target."""
        times = map(self.question.time_to_goal, self.firsts)
        first = min((at for at in times if at is not None), default=math.inf)
        return self.question.spread.factor * first

    def _has_lost(self, entry: Entry, latest: float) -> bool:
        """Return whether an entry can no longer tie with the first; repeats always train on."""
        is_late = entry.trained_seconds > latest
        return not entry.seed and (is_late or self.question.is_there(entry))

    def _is_done(self, entry: Entry, target: float, latest: float) -> bool:
        return entry.trained_seconds >= target or self._has_lost(entry, latest)

    def _leave(self, reasons: Mapping[Entry, str], clock: float) -> None:
        """Let entries leave at a clock; without a reason for want of a line."""
        for each, why in reasons.items():
            each.close(Status.LEFT, f"after {three_digits(clock)} s: {why or NO_LINE}")
        self.field.close([*reasons])

    def _plan(self, clock: float) -> Plan | None:
        """Plan the rest, less the time of repeats; None where nothing can train."""
        active, pace = self.active, self._pace()
        if not active:
            return None
        left = self._left_at(clock)
        finalists = self.question.finalists(self._stayed)
        repeats = LATER * (self.question.seeds - 1) * self._seconds_of(finalists)
        left -= repeats if repeats < MOST_REPEATS * left else 0.0
        return plan_rungs(left, clock, len(active), pace, finalists=FINALISTS, wanted_growth=GROWTH)

    def _left_at(self, clock: float) -> float:
        """Return the seconds left once all have trained to a clock."""
        behind = sum(max(clock - each.trained_seconds, 0.0) for each in self.active)
        return self.left - self._pace().training * behind

    @property
    def _waiting(self) -> list[Entry]:
        return [each for each in self.firsts if each.status is Status.WAITING]

    @property
    def _stayed(self) -> list[Entry]:
        return [each for each in self.firsts if each.status in STAYED]

    def _seconds_of(self, finalists: Mapping[Entry, float]) -> float:
        """Return the wall seconds that one more seed of each takes."""
        pace = self._pace()
        return sum(pace.opening + pace.training * at for at in finalists.values())

    def _pace(self) -> Pace:
        startup = [each.timeline.startup_seconds for each in self.firsts if each.readings]
        training = self._wall / self._ran if self._ran else 1.0
        return Pace(statistics.mean(startup) if startup else 0.0, training, 0.0)

    def _judge(self, clock: float) -> None:
        """Let those leave that cannot win, or for whom there is no time."""
        self.question.require_direction(self.firsts)
        active, plan = self.active, self._plan(clock)
        others = [each for each in self.firsts if each not in active]
        found = self.question.judge(active, others, plan, clock) if active else None
        if found is None:
            return
        leader, dropped = found
        self._leave(dropped, clock)
        left = len(dropped)
        rest = f"on to {three_digits(plan.horizon)} s" if plan else "last rung"
        leave = f"{left} leave, " if left else ""
        self.say(
            f"{self.spent:.0f} s: trained {three_digits(clock)} s each, {leader} leads;"
            f" {leave}{len(active) - left} stay, {rest}."
        )
        self.judged()

    def _repeat(self) -> None:
        """Train further seeds of the finalists, to the level that decides."""
        finalists, found = self.question.finalists(self._stayed), self.question.winner(self._stayed)
        most = 2 * LATER * max(finalists.values(), default=0.0)

        def is_there(entry: Entry) -> bool:
            return found is not None and self.question.lowest(entry) <= found[1]

        def is_over(entry: Entry) -> bool:
            return is_there(entry) or entry.trained_seconds > most

        for seed in range(1, self.question.seeds if finalists else 1):
            if self.left < self._seconds_of(finalists):
                return
            more = [Entry(each.arm, seed, each.number) for each in finalists]
            self.say(f"Seed {seed} of {', '.join(each.arm.name for each in more)}.")
            self.entries += more
            self._begin(more)
            self._train(more, math.inf, is_over)
            for each in more:
                if each.can_train:
                    each.close(Status.ENDED, "at the level" if is_there(each) else "in time")
            self.field.close([each for each in more if each.is_open])
