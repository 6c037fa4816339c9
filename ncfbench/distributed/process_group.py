"""The process group of a run: joining it, decisions that all processes make alike, data from the
first, and leaving together.

A process whose work is done, or which ends where all end (diverged, interrupted by agreement),
waits until the first has written everything; then all leave JAX's runtime together. One that fails
alone exits at once with its own code, and the others lose it: exit code 8.
"""

from __future__ import annotations

import atexit
import hashlib
import json
import math
import os
import re
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils

from ncfbench import __version__
from ncfbench.config import RunConfig
from ncfbench.distributed.supervisor import DETECTED, JOINED, RESUME, Cluster, loss_message
from ncfbench.errors import (
    INTERRUPTED_EXIT_CODE,
    DivergedError,
    NcfbenchError,
    PeerLostError,
    UsageError,
    reason,
)
from ncfbench.runs.signals import deferred_signals, handled_by

BLOCK_BYTES = 2**26
"""Bytes of an array, about, that the first process sends to the others at a time."""
LOST_CONNECTION = re.compile("Gloo|NCCL|UNAVAILABLE|ABORTED|DEADLINE_EXCEEDED")
"""Found in the errors of JAX that only the loss of a process explains."""


class AgreedInterrupt(KeyboardInterrupt):
    """An interrupt that every process of the group raises at the same point."""

    def __init__(self, folder: Path | None = None) -> None:
        super().__init__(
            "" if folder is None else f"the run so far is in {folder}; it can be resumed"
        )
        self.folder = folder
        """Folder of the run, which was saved; None in processes that write nothing."""


class UnlikeProcessesError(UsageError):
    """Processes that would train something else; every process of the group raises it."""


EVERYWHERE = (DivergedError, AgreedInterrupt, UnlikeProcessesError)
"""Exceptions that every process of the group raises at the same point."""


@dataclass(frozen=True)
class ProcessGroup:
    """All processes that JAX has joined. They must call every method together."""

    index: int
    count: int

    @classmethod
    def current(cls) -> ProcessGroup:
        """Return the current JAX process group; a process that joined none is a group of one."""
        return cls(jax.process_index(), jax.process_count())

    @property
    def is_first(self) -> bool:
        """True in the process that writes the records."""
        return self.index == 0

    def any(self, *flags: bool) -> tuple[bool, ...]:
        """Return each flag as true if it is true in at least one process."""
        if self.count == 1:
            return flags
        return tuple(map(bool, np.any(multihost_utils.process_allgather(np.array(flags)), axis=0)))

    def require_alike(self, config: RunConfig, data_fingerprint: str) -> None:
        """Refuse processes that would train something else.

        Raises:
            UnlikeProcessesError: settings, data or the version of this program differ from those
                of the first process.
        """
        if self.count == 1:
            return
        text = json.dumps([config.to_dict(), data_fingerprint, __version__], sort_keys=True)
        digest = np.frombuffer(hashlib.sha256(text.encode()).digest(), np.uint8)
        digests = np.asarray(multihost_utils.process_allgather(digest))
        different = np.flatnonzero((digests != digests[0]).any(axis=1))
        if len(different):
            raise UnlikeProcessesError(
                f"Process {', '.join(map(str, different))} has other settings, other data or"
                " another version of ncfbench than process 0. Start all with the same command,"
                " but for --process-id, and prepare the same data."
            )

    def from_first(self, tree: Any) -> Any:
        """Return the first process's tree of NumPy arrays in every process.

        Args:
            tree: the arrays; in other processes anything with their shapes and dtypes.
        """

        def received(array: Any) -> np.ndarray:
            own = np.atleast_1d(array if self.is_first else np.zeros(array.shape, array.dtype))
            blocks = np.array_split(own, max(1, min(own.nbytes // BLOCK_BYTES, len(own))))
            sent = [multihost_utils.broadcast_one_to_all(block) for block in blocks]
            return np.concatenate(sent).reshape(array.shape)

        return tree if self.count == 1 else jax.tree.map(received, tree)


@contextmanager
def joined(
    cluster: Cluster, declare: Callable[[int], None], say: Callable[[str], None]
) -> Iterator[ProcessGroup]:
    """Join the other processes, and leave together with them; enter before JAX computes anything,
    and exit when everything is written.

    Args:
        declare: tells the parent how this process ends.
        say: prints that the others are waited for.

    Raises:
        PeerLostError: the processes cannot be joined, or a collective operation failed.
        UsageError: the coordinator's port is in use, or JAX cannot detect what was not given.
    """
    try:
        group = _join(cluster, say)
        declare(JOINED)
        try:
            yield group
        except EVERYWHERE as error:
            _leave_together(group, declare, _exit_code(error))
            raise
        _leave_together(group, declare, 0)
    except BaseException as error:
        lost = peer_loss(error)
        code = _exit_code(lost or error)
        declare(code)
        _exit_at_the_end(code)
        if lost:
            raise lost from error
        raise


def _leave_together(group: ProcessGroup, declare: Callable[[int], None], exit_code: int) -> None:
    """Wait until the first process has written everything, then leave JAX's runtime. The loss of a
    process from there on is harmless.
    """
    is_written = group.is_first
    with deferred_signals(lambda text: None, ""):  # too late to stop anything
        if is_written:
            declare(exit_code)
        try:
            group.any(False)
            is_written = True
            declare(exit_code)
            jax.distributed.shutdown()
        except Exception as error:
            if not (is_written and peer_loss(error)):
                raise
            _exit_at_the_end(exit_code)


def peer_loss(error: BaseException) -> PeerLostError | None:
    """Return our error for a computation of all processes that failed, None for any other error.

    JAX raises its own error then, or a ValueError for a status of Gloo that it does not know. Of
    its own errors only those for want of memory surely have nothing to do with the others.
    """
    is_of_gloo = isinstance(error, ValueError) and "Gloo" in str(error)
    is_of_jax = isinstance(error, jax.errors.JaxRuntimeError)
    if not (is_of_gloo or is_of_jax) or str(error).startswith("RESOURCE_EXHAUSTED"):
        return None
    cause = re.sub(r"^UNKNOWN: |\[\S+:\d+\] ", "", reason(error))  # without JAX's source files
    if LOST_CONNECTION.search(cause):
        return PeerLostError(loss_message(cause))
    return PeerLostError(f"A computation of all processes failed: {cause}. {RESUME}")


def _exit_code(error: BaseException) -> int:
    if isinstance(error, KeyboardInterrupt):
        return INTERRUPTED_EXIT_CODE
    return error.exit_code if isinstance(error, NcfbenchError) else 1


def _exit_at_the_end(code: int) -> None:
    """Exit without JAX's own clean-up, which would wait for processes that never come."""

    def leave() -> None:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)

    atexit.register(leave)


def require_free_port(cluster: Cluster) -> None:
    """Refuse a port that the first process cannot listen on: JAX's runtime would violate memory."""
    port = cluster.coordinator.rpartition(":")[2]
    if cluster.process_id != 0 or cluster.coordinator == DETECTED:
        return
    try:
        socket.create_server(("", int(port))).close()
    except (OSError, OverflowError) as error:
        raise UsageError(
            f"--coordinator {cluster.coordinator}: cannot listen on port {port} of this machine:"
            f" {reason(error)}. Choose another port."
        ) from error


def _join(cluster: Cluster, say: Callable[[str], None]) -> ProcessGroup:
    """Join the processes and start JAX's devices with them."""
    require_free_port(cluster)
    say(f"Waiting for {cluster}.")
    # JAX's handler of SIGTERM would replace ours, which saves the run.
    jax.config.update("jax_enable_preemption_service", False)
    seconds, failed = math.ceil(cluster.timeout), f"JAX cannot join {cluster}"
    try:
        # C++ code waits here, and Python would not hear Ctrl-C.
        with handled_by(signal.SIG_DFL, signal.SIGINT):
            jax.distributed.initialize(
                None if cluster.coordinator == DETECTED else cluster.coordinator,
                cluster.processes,
                cluster.process_id,
                initialization_timeout=seconds,
                heartbeat_timeout_seconds=seconds,
                shutdown_timeout_seconds=seconds,
            )
            return ProcessGroup.current()
    except (ValueError, TypeError) as error:
        advice = "Give --coordinator HOST:PORT, --processes and --process-id."
        raise UsageError(f"{failed}: {reason(error)}. {advice}") from error
    except RuntimeError as error:
        raise PeerLostError(f"{failed}: {reason(error)}.") from error
