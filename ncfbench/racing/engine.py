"""The engine of a race: arms take turns by their clocks, rungs end, some leave, the best repeat.

Arms are commands (:mod:`ncfbench.racing.arm`) or runs of a data set. One trains at a time, the one
that trained least, so that a disturbance of the machine meets all. At the end of a rung all have
trained alike and are judged by :mod:`ncfbench.racing.rule`; the rest is planned anew.
"""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, ClassVar, Generic, TypeVar

from ncfbench.errors import UsageError
from ncfbench.racing.rule import Standing, decide
from ncfbench.racing.rungs import FINALISTS, GROWTH, Pace, arms_of_rungs, plan_rungs
from ncfbench.reporting.formats import three_digits


class Status(StrEnum):
    """The state of an arm; its reason says why it left, failed, did not begin or how it ended."""

    WAITING = "not begun"
    RACING = "racing"
    ENDED = "ended"
    LEFT = "left"
    DIVERGED = "diverged"
    FAILED = "failed"


@dataclass
class Clock:
    """Wall time of a race.

    Attributes:
        reserve_seconds: kept for the end of the race.

    Raises:
        UsageError: the budget is no time.
    """

    budget_seconds: float
    reserve_seconds: float
    began: float = field(default_factory=lambda: time.perf_counter())

    def __post_init__(self) -> None:
        if not 0 < self.budget_seconds < math.inf:
            raise UsageError("--budget must be positive, for example 10m.")

    @property
    def spent(self) -> float:
        """Seconds spent."""
        return time.perf_counter() - self.began

    @property
    def left(self) -> float:
        """Seconds left for the race."""
        return self.budget_seconds - self.reserve_seconds - self.spent


@dataclass(eq=False)
class Arm(ABC):
    """An arm of a race with one seed.

    Attributes:
        seed: 0 for the first one, else the number of a repeat.
        reason: why it left, failed or did not begin, or how it ended.
    """

    name: str
    seed: int = 0
    status: Status = Status.WAITING
    reason: str = ""

    @property
    @abstractmethod
    def seconds(self) -> float:
        """Seconds that it has trained."""

    @property
    @abstractmethod
    def standing(self) -> Standing | None:
        """Its curve so far, as the rule judges it; None while nothing is known."""

    @property
    @abstractmethod
    def can_train(self) -> bool:
        """True if it waits for a turn."""

    @abstractmethod
    def advance(self, seconds: float, is_over: Over) -> None:
        """Train for some seconds, or until it is over."""

    @abstractmethod
    def measure(self) -> None:
        """Measure what a turn does not, such as the memory of the arm or its recall."""

    def ask_to_end(self) -> None:  # noqa: B027
        """Ask for the end, which others are asked for meanwhile."""

    @abstractmethod
    def end(self) -> None:
        """Give back what it holds."""


Over = Callable[[Any], bool]
"""Tells whether an arm need not train on."""
A = TypeVar("A", bound=Arm)


@dataclass
class Race(ABC, Generic[A]):
    """A race of arms to the end of a budget.

    Attributes:
        arms: those of the first seed, and repeats of the best.
        say: shows a message.
        reached: training clock at the end of the last rung, in seconds; 0 before.
        horizon: clock at which the race is expected to end.
        finalists, growth: of the plan (:func:`ncfbench.racing.rungs.plan_rungs`).
        turn_seconds: of a turn; 0 for all that is missing.
        least_turn: seconds of the shortest turn, which ends a rung.
    """

    clock: Clock
    arms: list[A]
    say: Callable[[str], None] = lambda _: None
    reached: float = field(default=0.0, init=False)
    horizon: float = field(default=0.0, init=False)
    turn_seconds: float = field(default=0.0, init=False)
    finalists: ClassVar[int] = FINALISTS
    growth: ClassVar[float] = GROWTH
    least_turn: ClassVar[float] = 0.0

    @property
    def firsts(self) -> list[A]:
        """Arms of the first seed."""
        return [arm for arm in self.arms if not arm.seed]

    @property
    @abstractmethod
    def active(self) -> list[A]:
        """Arms of the first seed that train on and can change the answer."""

    def run(self) -> None:
        """Race until the budget is spent, or all that can decide is known."""
        self.begin()
        while (target := self.next_rung()) is not None:
            self.train(self.active, target)
            self.reached = target
            self.measure()
            self.judge()
        self.repeat()

    @abstractmethod
    def begin(self) -> None:
        """Let arms begin, up to the first rung."""

    @abstractmethod
    def measure(self) -> None:
        """Measure the arms at the end of a rung."""

    @abstractmethod
    def repeat(self) -> None:
        """Train further seeds of the best arms."""

    @abstractmethod
    def pace(self, arms: Sequence[A]) -> Pace:
        """Return the mean pace of some arms."""

    @property
    @abstractmethod
    def rung_seconds(self) -> float:
        """Wall seconds left for the rungs, less those that are kept for repeats."""

    @property
    def is_done(self) -> bool:
        """True if nothing is left to train."""
        return not self.active

    def left_for(self, arm: A) -> float:
        """Return the seconds that an arm may train now; none or fewer where there is no time."""
        return self.clock.left

    def is_settled(self, arm: A) -> bool:
        """Return whether an arm cannot change the answer any more."""
        return False

    def next_rung(self) -> float | None:
        """Return the clock of the next rung; None where there is no time for it."""
        plan = self.plan()
        return plan[0] if plan else None

    def plan(self) -> list[float]:
        """Return the clocks at which rungs end; none without time, or anything to train."""
        if not (active := self.active):
            return []
        return plan_rungs(
            self.rung_seconds,
            self.reached,
            len(active),
            self.pace(active),
            finalists=self.finalists,
            wanted_growth=self.growth,
        )

    def train(self, arms: Sequence[A], target: float, is_over: Over | None = None) -> None:
        """Give turns to the arms that trained least, until all have trained to a clock.

        Args:
            is_over: ends the training of an arm sooner.
        """
        stop = is_over or (lambda arm: arm.seconds >= target or self.is_settled(arm))
        waiting = [*arms]
        while behind := [
            arm
            for arm in waiting
            if arm.can_train
            and arm.seconds < target
            and not (is_over and is_over(arm))
            and not self.is_settled(arm)
        ]:
            least = min(behind, key=lambda arm: arm.seconds)
            if (left := self.left_for(least)) <= 0:
                waiting.remove(least)
                continue
            missing = max(target - least.seconds, self.least_turn)
            self.turn(least, min(self.turn_seconds or missing, missing, left), stop)

    def turn(self, arm: A, seconds: float, is_over: Over) -> None:
        """Give an arm a turn."""
        arm.advance(seconds, is_over)

    def judge(self) -> None:
        """Let those leave that cannot win, or for whom there is no time."""
        active, plan = self.active, self.plan()
        ended = [arm for arm in self.firsts if arm.status is Status.ENDED and arm not in active]
        known = {arm: standing for arm in [*active, *ended] if (standing := arm.standing)}
        ended = sorted(
            (arm for arm in ended if arm in known), key=lambda arm: known[arm].curve.level
        )
        racing = [arm for arm in active if arm in known]
        if not active or not known:
            return
        self.horizon = plan[-1] if plan else self.reached
        keep = arms_of_rungs(len(active), 2, self.finalists)[1] if plan else len(active)
        standings = {arm.name: known[arm] for arm in [*racing, *ended[:1]]}
        decision = decide(standings, self.horizon, keep + len(ended[:1]))
        dropped = {
            arm: decision.dropped[arm.name] for arm in racing if arm.name in decision.dropped
        }
        leaving = self.leaving(dropped, keep, is_last=not plan)
        self.leave(leaving)
        is_able = standings[decision.leader].learned_at is not None
        leads = f"{decision.leader} leads" if is_able else "none is better than chance yet"
        leave = f"{len(leaving)} leave, " if leaving else ""
        more = self.plan() if plan and not self.is_done else []
        rest = f", on to {three_digits(more[-1])} s" if more else ""
        self.say(
            f"{self.clock.spent:.0f} s: trained {three_digits(self.reached)} s each, {leads};"
            f" {leave}{len(self.active)} stay{rest}."
        )

    def leaving(self, dropped: Mapping[A, str], keep: int, *, is_last: bool) -> Mapping[A, str]:
        """Return the arms that leave with their reasons, of those that the rule drops.

        Args:
            keep: number of arms for which the next rung has time.
            is_last: no rung follows.
        """
        return dropped

    def leave(self, reasons: Mapping[A, str], reached: float | None = None) -> None:
        """Let arms leave, with the clock that they trained to: by default that of the race."""
        clock = three_digits(self.reached if reached is None else reached)
        for arm, reason in reasons.items():
            arm.status, arm.reason = Status.LEFT, f"after {clock} s: {reason}"
        end_all([*reasons])


def end_all(arms: Sequence[Arm]) -> None:
    """Let arms give back what they hold."""
    for arm in arms:
        arm.ask_to_end()
    for arm in arms:
        arm.end()
