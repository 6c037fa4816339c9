"""Address and ranks at which the processes of a run meet."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ncfbench.errors import UsageError

DETECTED = "auto"
"""Stands for a coordinator's address that JAX detects, from Slurm's variables for example."""
TIMEOUT_SECONDS = 60.0
LEAST_SECONDS, MOST_SECONDS = 2.0, 604800.0
"""Bounds on --peer-timeout, in seconds."""


@dataclass(frozen=True)
class Cluster:
    """The processes of a run and the address where they meet. JAX detects what is None.

    Raises:
        UsageError: a value is malformed or out of range.
    """

    coordinator: str
    """HOST:PORT, where the first process listens; or :data:`DETECTED`."""
    processes: int | None = None
    process_id: int | None = None
    timeout: float = TIMEOUT_SECONDS
    """Seconds to wait for a process that has not come, or whose heartbeats stopped."""

    def __post_init__(self) -> None:
        host, _, port = self.coordinator.rpartition(":")
        if self.coordinator != DETECTED and not (host and port.isdecimal()):
            raise UsageError(
                f"--coordinator {self.coordinator!r} is neither HOST:PORT nor {DETECTED}."
            )
        if self.processes is not None and self.processes < 1:
            raise UsageError(f"--processes {self.processes}: it must be at least 1.")
        if self.process_id is not None and not 0 <= self.process_id < (
            self.processes or self.process_id + 1
        ):
            raise UsageError(
                f"--process-id {self.process_id}: it must be between 0 and --processes less 1."
            )
        if not LEAST_SECONDS <= self.timeout <= MOST_SECONDS:
            raise UsageError(
                f"--peer-timeout {self.timeout:g}: it must be between {LEAST_SECONDS:g} and"
                f" {MOST_SECONDS:g} seconds."
            )

    @property
    def address(self) -> str:
        """The coordinator's address as messages name it."""
        return "the detected cluster" if self.coordinator == DETECTED else self.coordinator

    @property
    def members(self) -> str:
        """The processes as messages name them."""
        return "the processes" if self.processes is None else f"the {self.processes} processes"


def refuse_for_processes(trace: Path | None, recommend: int | None) -> None:
    """Refuse the options of a run that several processes cannot have.

    Raises:
        UsageError: an option is given.
    """
    if recommend is not None:
        raise UsageError(
            "--recommend is for one process: repeat the command without --coordinator, with"
            " --resume."
        )
    if trace is not None:
        raise UsageError(
            "--trace is for one process: JAX's profiler does not follow several. Leave"
            " --coordinator out."
        )
