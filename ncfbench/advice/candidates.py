"""Candidates: the arms of a race, each an ordinary run of every seed."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field

from ncfbench.config import RunConfig
from ncfbench.racing.rule import Status as Status

FIRST_PROBES = 3
"""Number of probes in the first rung. Turns last from probe to probe."""


@dataclass
class Candidate:
    """An arm of a race; in the race an ordinary run of each seed.

    Attributes:
        config: settings of its first run; its other seeds differ in the seed alone.
        iteration_seconds: predicted before the race.
        reason: why it left; empty while it races.
    """

    name: str
    config: RunConfig
    iteration_seconds: float = 0.0
    seeds: list[int] = field(default_factory=lambda: [0])
    status: Status = Status.RACING
    reason: str = ""

    def with_seed(self, seed: int) -> RunConfig:
        """Return the settings of its run with a seed; seeds count from the first run's."""
        return dataclasses.replace(self.config, seed=self.config.seed + seed)

    def leave(self, status: Status, reason: str) -> None:
        """Leave the race."""
        self.status, self.reason = status, reason

    def schedule_probes(self, seconds: float) -> None:
        """Probe after so many seconds of training, unless the question says how often."""
        every = max(round(seconds / self.iteration_seconds), 1)
        if not self.config.probe_every:
            self.config = dataclasses.replace(self.config, probe_every=every)

    def probe_like(self, other: Candidate) -> None:
        """Expect another one's seconds of an iteration, and probe as often."""
        self.iteration_seconds = other.iteration_seconds
        self.config = dataclasses.replace(self.config, probe_every=other.config.probe_every)
