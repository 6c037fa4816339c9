"""Candidates: the arms of a race, each an ordinary run of every seed; and how they stand."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field

from ncfbench.catalog import MAX_SEED
from ncfbench.config import RunConfig
from ncfbench.racing.engine import Status as Status
from ncfbench.racing.rungs import Pace


@dataclass
class Candidate:
    """An arm of a race; in the race an ordinary run of each seed.

    Attributes:
        config: settings of its first run; its other seeds differ in the seed alone.
        cut: those of its seeds whose runs the budget ended too soon to be compared.
        reason: why it left; empty while it races.
    """

    name: str
    config: RunConfig
    seeds: list[int] = field(default_factory=lambda: [0])
    cut: set[int] = field(default_factory=set)
    status: Status = Status.RACING
    reason: str = ""

    def with_seed(self, seed: int) -> RunConfig:
        """Return the settings of its run with a seed; seeds count from the first run's."""
        return dataclasses.replace(self.config, seed=(self.config.seed + seed) % (MAX_SEED + 1))

    def leave(self, status: Status, reason: str) -> None:
        """Leave the race."""
        self.status, self.reason = status, reason


@dataclass
class State:
    """How a race stands.

    Attributes:
        entrants: candidates that have entered, in this order.
        pool: those that have not, the most promising first.
        first_clock: training clock at the end of the first rung, in seconds; 0 before it is known.
        pace: expected before anything was measured.
        clock: at the end of the last rung; 0 before.
        notes: warnings for the answer, such as that the machine was busy.
    """

    fingerprint: str
    entrants: list[Candidate] = field(default_factory=list)
    pool: list[Candidate] = field(default_factory=list)
    first_clock: float = 0.0
    pace: Pace = field(default_factory=Pace)
    clock: float = 0.0
    horizon: float = 0.0
    spent_seconds: float = 0.0
    is_over: bool = False
    notes: list[str] = field(default_factory=list)

    @property
    def racing(self) -> list[Candidate]:
        """Entrants that have not left."""
        return [each for each in self.entrants if each.status is Status.RACING]
