"""The answer of a race of commands: which arm is the soonest, how many times, and how surely."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ncfbench.racing.arm import CommandArm
from ncfbench.racing.engine import Status
from ncfbench.racing.question import Question, curves_of
from ncfbench.racing.race import STAYED
from ncfbench.statistics.curves import Curve
from ncfbench.statistics.seeds import Curves, Ratio, status_beside, times_to_level

FINISHED = ("recommended", "tied", "lower", "undecided", "slower", "alone")
"""Statuses of arms that stayed to the end. Lower: sooner at the level than the recommended one, but
its best is lower. Undecided: it trained for less than that took. Alone: others had no time or
memory to print a line.
"""
ORDER = (*FINISHED, "left", "diverged", "failed", "not begun")
"""Statuses of arms, in the order of the answer."""


@dataclass(frozen=True)
class ArmResult:
    """How an arm ended.

    Attributes:
        arm: of its first seed.
        status: one of :data:`ORDER`.
        runs: the curves of its seeds.
        seconds: of the first seed to the level; None where it did not reach it.
        is_at_most: the first line was past the level already.
        gap: seconds between the two lines around the level.
        behind: how many times sooner the recommended arm is.
    """

    arm: CommandArm
    status: str
    runs: Curves
    seconds: float | None = None
    is_at_most: bool = False
    gap: float = 0.0
    behind: Ratio | None = None

    @property
    def name(self) -> str:
        """The arm's name."""
        return self.arm.name

    @property
    def curve(self) -> Curve | None:
        """Curve of the first seed."""
        return self.runs.curves.get(0)

    @property
    def level(self) -> float:
        """Lowest value of that curve; infinity without one."""
        return math.inf if self.curve is None else self.curve.level


@dataclass(frozen=True)
class Answer:
    """The answer so far.

    Attributes:
        results: of all arms, the best first.
        level: that decides; None while nothing is known.
        start: from which quality is measured.
        notes: sentences on the race itself, such as that the machine was busy.
    """

    question: Question
    results: Sequence[ArmResult]
    level: float | None
    start: float
    spent_seconds: float
    is_over: bool
    notes: Sequence[str] = ()

    @property
    def best(self) -> ArmResult | None:
        """The recommended arm; None where none can be."""
        return next((result for result in self.results if result.status == "recommended"), None)

    @property
    def stayed(self) -> list[ArmResult]:
        """Arms that stayed to the end."""
        return [result for result in self.results if result.status in FINISHED]

    @property
    def ties(self) -> list[ArmResult]:
        """Arms that are tied with the best."""
        return [result for result in self.results if result.status == "tied"]

    @property
    def is_decided(self) -> bool:
        """Whether all that stayed trained for as long as the recommended one took."""
        return all(result.status != "undecided" for result in self.results)

    @property
    def top(self) -> ArmResult | None:
        """The arm of the best value, of those that can be the answer."""
        known = [result for result in self.stayed if result.curve]
        return min(known, key=lambda result: result.level, default=None)

    def value(self, level: float) -> float:
        """Return a level of curves as a value of the metric."""
        return level if self.question.metric.is_less_better else -level

    @property
    def fall(self) -> float:
        """Share of its quality that the best arm gained in the latter half of its clock."""
        curve = None if self.top is None else self.top.curve
        whole = 0.0 if curve is None else self.start - curve.level
        return 0.0 if curve is None or whole <= 0 else curve.gain() / whole


def make_answer(
    question: Question,
    arms: Sequence[CommandArm],
    spent_seconds: float,
    *,
    is_over: bool,
    notes: Sequence[str] = (),
) -> Answer:
    """Compare all arms, and return the answer so far."""
    firsts = [arm for arm in arms if not arm.seed]
    stayed = [arm for arm in firsts if arm.status in STAYED]
    first, level = question.winner(stayed) or (None, question.goal)
    is_alone = _is_alone(question, firsts, is_over=is_over)
    if is_alone:
        first, level = None, question.goal
    results = [_result(question, arm, arms, level) for arm in firsts]
    best = next((result for result in results if result.arm is first), None)
    for index, result in enumerate(results):
        behind, status = None, result.status
        if result is best:
            status = "recommended"
        elif best is not None and level is not None:
            if result.seconds is not None:
                behind = times_to_level(best.runs, result.runs, level)
            clock = result.curve.clock if result.curve else math.inf
            had_time = result.arm.status is Status.ENDED or clock >= (best.seconds or 0.0)
            status = status_beside(status, behind, had_time=had_time)
        elif status == "tied":
            status = "alone" if is_alone else "slower"
        results[index] = replace(result, behind=behind, status=status)
    results.sort(key=_place)
    start = question.start_of([*curves_of(stayed).values()])
    return Answer(question, results, level, start, spent_seconds, is_over, notes)


def _is_alone(question: Question, firsts: Sequence[CommandArm], *, is_over: bool) -> bool:
    """Return whether one arm alone has a line, and another one could still have one.

    With a target, one that still races at the end has been running for longer than the best took.
    """
    able = [Status.WAITING, Status.LEFT]
    if not is_over or question.target is None:
        able.append(Status.RACING)
    silent = [arm for arm in firsts if not arm.readings]
    return len(firsts) - len(silent) == 1 and any(arm.status in able for arm in silent)


def _result(
    question: Question, arm: CommandArm, arms: Sequence[CommandArm], level: float | None
) -> ArmResult:
    repeats = curves_of(other for other in arms if other.number == arm.number)
    curves = {repeat.seed: curve for repeat, curve in repeats.items()}
    status = arm.status.value
    if arm.status in STAYED:
        status = "tied" if 0 in curves else Status.WAITING.value
    seconds, gap, is_at_most = None, 0.0, False
    if level is not None and 0 in curves:
        seconds, gap = curves[0].time_to(level), _gap(curves[0], level)
        is_at_most = seconds is not None and curves[0].losses[0] <= level
    # Between two lines the curve is taken as straight: its crossing is anywhere there.
    noise = gap / math.sqrt(12) / seconds if seconds else 0.0
    runs = Curves(curves, noise, spread=question.spread)
    return ArmResult(arm, status, runs, seconds, is_at_most, gap)


def _gap(curve: Curve, level: float) -> float:
    """Return the seconds between the lines around a level; to the first line from 0."""
    lines = zip([0.0, *curve.seconds[:-1]], curve.seconds, curve.losses, strict=True)
    return next((at - before for before, at, loss in lines if loss <= level), 0.0)


def _place(result: ArmResult) -> tuple[int, float, float]:
    later = result.seconds if result.status in FINISHED else None
    return ORDER.index(result.status), math.inf if later is None else later, result.level
