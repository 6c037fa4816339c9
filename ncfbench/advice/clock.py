"""The time of a race: the budget that is left, and the pace measured so far."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from ncfbench.advice.rungs import Pace


@dataclass
class Clock:
    """Wall time of the budget."""

    budget_seconds: float
    spent_before: float = 0.0
    reserve_seconds: float = 0.0
    """Kept for the answer."""
    began: float = field(default_factory=time.perf_counter)

    @property
    def spent(self) -> float:
        """Seconds spent, with those of earlier sessions."""
        return self.spent_before + time.perf_counter() - self.began

    @property
    def left(self) -> float:
        """Seconds left for the race."""
        return self.budget_seconds - self.reserve_seconds - self.spent


@dataclass
class Measured:
    """Wall seconds of the parts of a race so far, from which its pace follows."""

    guess: Pace
    openings: list[float] = field(default_factory=list)
    savings: list[float] = field(default_factory=list)
    evaluations: list[float] = field(default_factory=list)
    wall: float = 0.0
    trained: float = 0.0

    @property
    def pace(self) -> Pace:
        """Mean seconds of the parts measured so far; guesses for the others."""

        def mean(values: Sequence[float], guess: float) -> float:
            return sum(values) / len(values) if values else guess

        return Pace(
            mean(self.openings, self.guess.opening),
            self.wall / self.trained if self.trained else self.guess.training,
            mean(self.savings, self.guess.saving) + mean(self.evaluations, 0.0),
        )
