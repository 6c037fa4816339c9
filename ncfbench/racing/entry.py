"""An entry of a race: an arm with one seed, its lines so far, and how it stands."""

from __future__ import annotations

from dataclasses import dataclass, field

from ncfbench.racing.arms import Arm
from ncfbench.racing.clock import Reading, Timeline
from ncfbench.racing.process import Process
from ncfbench.racing.rule import Status as Status

STAYED = (Status.RACING, Status.ENDED)
"""States of entries that can be the answer."""


@dataclass(eq=False)
class Entry:
    """An arm with one seed.

    Attributes:
        reason: why it left, failed or did not begin, or how it ended.
        memory_bytes: that it holds; 0 while unknown.
        number: of the arm, in the order of the command line.
        doubt: why its lines seem to be of several series.
    """

    arm: Arm
    seed: int = 0
    number: int = 0
    timeline: Timeline = field(default_factory=Timeline)
    status: Status = Status.WAITING
    reason: str = ""
    running_seconds: float = 0.0
    memory_bytes: int = 0
    bunched: int = 0
    doubt: str = ""
    process: Process | None = None
    is_open: bool = False

    @property
    def name(self) -> str:
        """The arm's name, and the seed of a repeat."""
        return f"{self.arm.name} (seed {self.seed})" if self.seed else self.arm.name

    @property
    def readings(self) -> list[Reading]:
        """Its lines."""
        return self.timeline.readings

    @property
    def trained_seconds(self) -> float:
        """Seconds that it has been running, without its start-up as far as it is known."""
        return max(self.running_seconds - self.timeline.startup_seconds, 0.0)

    @property
    def is_running(self) -> bool:
        """True if its process has its turn."""
        return self.process is not None and not self.process.is_paused

    @property
    def can_train(self) -> bool:
        """True if it waits for a turn."""
        return self.is_open and self.status is Status.RACING

    def close(self, status: Status, reason: str = "") -> None:
        """Note how it ended."""
        self.status, self.reason = status, reason
