"""The process group of a run: joining it, decisions that all processes make alike, and data from
the first. JAX's runtime finds lost processes by their heartbeats, and ends the others.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import socket
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ncfbench import __version__
from ncfbench.config import RunConfig
from ncfbench.errors import UsageError, reason
from ncfbench.runs.signals import handled_by

BLOCK_BYTES = 2**26
"""Bytes of an array, about, that the first process sends to the others at a time."""
HEARTBEAT_SECONDS = 60
"""JAX's runtime ends a run whose process sends no heartbeat for so long."""
DETECTED = "auto"
"""Stands for a coordinator's address that JAX detects, from Slurm's variables for example."""


@dataclass(frozen=True)
class ProcessGroup:
    """All processes that JAX has joined. They must call every method together.

    JAX is imported only where there are several.
    """

    index: int
    count: int

    @classmethod
    def current(cls) -> ProcessGroup:
        """Return the current JAX process group; a process that joined none is a group of one."""
        if "jax" not in sys.modules:
            return cls(0, 1)
        import jax

        return cls(jax.process_index(), jax.process_count())

    @property
    def is_first(self) -> bool:
        """True in the process that writes the records."""
        return self.index == 0

    def any(self, *flags: bool) -> tuple[bool, ...]:
        """Return each flag as true if it is true in at least one process."""
        if self.count == 1:
            return flags
        from jax.experimental import multihost_utils

        return tuple(map(bool, np.any(multihost_utils.process_allgather(np.array(flags)), axis=0)))

    def require_alike(self, config: RunConfig, data_fingerprint: str) -> None:
        """Refuse processes that would train something else.

        Raises:
            UsageError: settings, data or the version of this program differ from those of the
                first process.
        """
        if self.count == 1:
            return
        from jax.experimental import multihost_utils

        text = json.dumps([config.to_dict(), data_fingerprint, __version__], sort_keys=True)
        digest = np.frombuffer(hashlib.sha256(text.encode()).digest(), np.uint8)
        digests = np.asarray(multihost_utils.process_allgather(digest))
        different = np.flatnonzero((digests != digests[0]).any(axis=1))
        if len(different):
            raise UsageError(
                f"Process {', '.join(map(str, different))} has other settings, other data or"
                " another version of ncfbench than process 0. Start all with the same command,"
                " but for --process-id, and prepare the same data."
            )

    def from_first(self, tree: Any) -> Any:
        """Return the first process's tree of NumPy arrays in every process.

        Args:
            tree: the arrays; in other processes anything with their shapes and dtypes.
        """

        if self.count == 1:
            return tree
        import jax
        from jax.experimental import multihost_utils

        def from_first(array: Any) -> np.ndarray:
            sent = np.atleast_1d(array if self.is_first else np.zeros(array.shape, array.dtype))
            blocks = np.array_split(sent, max(1, min(sent.nbytes // BLOCK_BYTES, len(sent))))
            received = [multihost_utils.broadcast_one_to_all(block) for block in blocks]
            return np.concatenate(received).reshape(array.shape)

        return jax.tree.map(from_first, tree)


def join(
    coordinator: str,
    processes: int | None,
    process_id: int | None,
    say: Callable[[str], None],
) -> None:
    """Join the processes of a run and start JAX's devices with them, before JAX computes anything.

    Args:
        coordinator: HOST:PORT, where the first process listens; or :data:`DETECTED`.
        processes, process_id: their number and this one's rank; JAX detects what is None.
        say: prints that the others are waited for.

    Raises:
        UsageError: a value is malformed, the coordinator's port is in use, JAX cannot detect what
            was not given, or a process has not come.
    """
    host, _, port = coordinator.rpartition(":")
    if coordinator != DETECTED and not (host and port.isdecimal()):
        raise UsageError(f"--coordinator {coordinator!r} is neither HOST:PORT nor {DETECTED}.")
    if processes is not None and processes < 1:
        raise UsageError(f"--processes {processes}: it must be at least 1.")
    if process_id is not None and not 0 <= process_id < (processes or process_id + 1):
        raise UsageError(f"--process-id {process_id}: it must be between 0 and --processes less 1.")
    if process_id == 0 and coordinator != DETECTED:
        require_free_port(int(port))
    say(f"Waiting for the other processes at {coordinator}.")
    import jax

    # Gloo prints to standard output, where results belong.
    sys.stdout = os.fdopen(os.dup(1), "w", 1, sys.stdout.encoding)
    os.dup2(2, 1)
    # JAX's handler of SIGTERM would replace ours, which saves the run.
    jax.config.update("jax_enable_preemption_service", False)
    address = None if coordinator == DETECTED else coordinator
    try:
        # C++ code waits here, and Python would not hear Ctrl-C.
        with handled_by(signal.SIG_DFL, signal.SIGINT):
            jax.distributed.initialize(
                address, processes, process_id, heartbeat_timeout_seconds=HEARTBEAT_SECONDS
            )
    except (ValueError, TypeError, RuntimeError) as error:
        raise UsageError(
            f"JAX cannot join the processes at {coordinator}: {reason(error)}. Give"
            " --coordinator HOST:PORT, --processes and --process-id, and start all of them."
        ) from error


def require_free_port(port: int) -> None:
    """Refuse a port that the first process cannot listen on: JAX's runtime would violate memory."""
    try:
        socket.create_server(("", port)).close()
    except (OSError, OverflowError) as error:
        raise UsageError(
            f"--coordinator: cannot listen on port {port} of this machine: {reason(error)}. Choose"
            " another port."
        ) from error
