"""Recorded curves that race without processes: their clock is counted, not waited for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from ncfbench.racing.arm import CommandArm, Field
from ncfbench.racing.clock import Reading
from ncfbench.racing.commands import Command
from ncfbench.racing.engine import Clock, Over, Status
from ncfbench.racing.metric import Metric
from ncfbench.racing.question import Question
from ncfbench.racing.race import Race, make_clock

Points = Sequence[tuple[float, float]]


class PlayedClock(Clock):
    """The time that arms took."""

    seconds = 0.0

    @property
    def spent(self) -> float:
        return self.seconds


class PlayedField(Field):
    """A field of recorded curves, by the names of their arms."""

    def __init__(
        self, metric: Metric, clock: PlayedClock, curves: Mapping[str, Points], startup: float
    ) -> None:
        super().__init__(metric, Path(), clock)
        self.played, self.curves, self.startup = clock, curves, startup
        self.turns: list[tuple[str, float]] = []


class PlayedArm(CommandArm):
    """An arm whose turns play a curve; seeds share it."""

    field: PlayedField

    def start(self) -> bool:
        self.status, self.reason, self.is_open = Status.RACING, "", True
        return True

    def advance(self, seconds: float, is_over: Over) -> None:
        field, begun = self.field, self.running_seconds
        points, end = field.curves[self.command.name], begun + seconds
        while not is_over(self):
            step = len(self.readings)
            if step == len(points):
                self.status, self.reason = Status.ENDED, "by itself"
                break
            at, value = points[step]
            if field.startup + at > end:
                self.running_seconds = end
                break
            self.running_seconds = max(field.startup + at, self.running_seconds)
            self.readings.append(Reading(self.running_seconds, value, at))
        field.played.seconds += self.running_seconds - begun
        field.turns.append((self.name, self.running_seconds - begun))

    def end(self) -> None:
        self.is_open = False


def played_race(
    curves: Mapping[str, Points], question: Question, startup: float = 0.0
) -> tuple[Race, PlayedField]:
    """Return a race of curves that has not begun, and its field."""
    budget = question.budget_seconds
    clock = PlayedClock(budget, make_clock(budget).reserve_seconds)
    field = PlayedField(question.metric, clock, curves, startup)
    arms = [PlayedArm(Command(name, name), field, n) for n, name in enumerate(curves)]
    return Race(clock, [*arms], question=question), field
