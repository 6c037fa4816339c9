"""Candidates: the arms of a race, each an ordinary run of every seed."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field

from ncfbench.config import RunConfig
from ncfbench.racing.rule import Status as Status


@dataclass
class Candidate:
    """An arm of a race; in the race an ordinary run of each seed.

    Attributes:
        config: settings of its first run; its other seeds differ in the seed alone.
        reason: why it left; empty while it races.
    """

    name: str
    config: RunConfig
    seeds: list[int] = field(default_factory=lambda: [0])
    status: Status = Status.RACING
    reason: str = ""

    def with_seed(self, seed: int) -> RunConfig:
        """Return the settings of its run with a seed; seeds count from the first run's."""
        return dataclasses.replace(self.config, seed=self.config.seed + seed)

    def leave(self, status: Status, reason: str) -> None:
        """Leave the race."""
        self.status, self.reason = status, reason
