"""The process group of a run: joining it through JAX's distributed runtime, decisions that all
processes make alike, data from the first, and leaving together.

How a process ends, as its own code sees it; :mod:`ncfbench.distributed.supervisor` has the rest:

- Work done, or an end that all reach at the same point (training diverged, an interrupt that all
  agreed on): every process waits until the first has written everything, then all leave JAX's
  runtime together.
- An error of this process alone: it exits at once with its own code. The others lose it.
- A collective operation that failed, because another process is lost: exit code 8.
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
from typing import Any, TypeAlias

import jax
import numpy as np

from ncfbench import __version__
from ncfbench.config import RunConfig
from ncfbench.distributed.signals import deferred_signals, handled_by
from ncfbench.distributed.supervisor import (
    DETECTED,
    JOINED,
    RESUME,
    Cluster,
    Parent,
    loss_message,
)
from ncfbench.errors import (
    INTERRUPTED_EXIT_CODE,
    DivergedError,
    NcfbenchError,
    PeerLostError,
    UsageError,
    reason,
)

Tree: TypeAlias = Any
BLOCK_BYTES = 2**26
"""Bytes of an array, about, that the first process sends to the others at a time."""
LOST_CONNECTION = re.compile("Gloo|NCCL|UNAVAILABLE|ABORTED|DEADLINE_EXCEEDED")
"""Found in the errors of JAX that only the loss of a process explains."""


class AgreedInterrupt(KeyboardInterrupt):
    """An interrupt that every process of the group raises at the same point.

    Args:
        folder: of the run, which was saved; None in processes that write nothing.
    """

    def __init__(self, folder: Path | None = None) -> None:
        where = "" if folder is None else f"the run so far is in {folder}; it can be resumed"
        super().__init__(where)
        self.folder = folder


class UnlikeProcessesError(UsageError):
    """Processes that would train something else; every process of the group raises it."""


EVERYWHERE = (DivergedError, AgreedInterrupt, UnlikeProcessesError)
"""Exceptions that every process of the group raises at the same point."""


@dataclass(frozen=True)
class ProcessGroup:
    """All processes that JAX has joined.

    Every method is a collective operation: all processes must call it, in the same order.
    """

    index: int
    """This process; the first has index 0."""
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
        return tuple(map(bool, np.any(_from_all(np.array(flags)), axis=0)))

    def require_alike(self, config: RunConfig, data_fingerprint: str) -> None:
        """Refuse processes that would train something else.

        Raises:
            UnlikeProcessesError: settings, data or the version of this program differ from those
                of the first process.
        """
        if self.count == 1:
            return
        text = json.dumps([config.to_dict(), data_fingerprint, __version__], sort_keys=True)
        digests = _from_all(np.frombuffer(hashlib.sha256(text.encode()).digest(), np.uint8))
        different = np.flatnonzero((digests != digests[0]).any(axis=1))
        if len(different):
            raise UnlikeProcessesError(
                f"Process {', '.join(map(str, different))} has other settings, other data or"
                " another version of ncfbench than process 0. Start all with the same command,"
                " but for --process-id, and prepare the same data."
            )

    def from_first(self, tree: Tree) -> Tree:
        """Return the first process's tree of NumPy arrays in every process.

        Args:
            tree: the arrays; in other processes anything with their shapes and dtypes.
        """
        return tree if self.count == 1 else jax.tree.map(self._array_from_first, tree)

    def _array_from_first(self, array: Any) -> np.ndarray:
        from jax.experimental.multihost_utils import broadcast_one_to_all

        own = np.asarray(array) if self.is_first else np.zeros(array.shape, array.dtype)
        if own.nbytes <= BLOCK_BYTES:
            return np.asarray(broadcast_one_to_all(own))
        blocks = np.array_split(own, min(-(-own.nbytes // BLOCK_BYTES), len(own)))
        return np.concatenate([broadcast_one_to_all(block) for block in blocks])


def _from_all(array: np.ndarray) -> np.ndarray:
    """Return the arrays of all processes, one row for each."""
    from jax.experimental.multihost_utils import process_allgather

    return np.asarray(process_allgather(array))


@contextmanager
def joined(cluster: Cluster, parent: Parent, say: Callable[[str], None]) -> Iterator[ProcessGroup]:
    """Join the other processes, and leave together with them; enter before JAX computes anything.

    In the first process everything is written, to disk and to standard output, when this exits.

    Args:
        parent: learns how this process ends.
        say: prints that the others are waited for.

    Raises:
        PeerLostError: the processes cannot be joined, or a collective operation failed.
        UsageError: the coordinator's port is in use, or JAX cannot detect what was not given.
    """
    try:
        _require_free_port(cluster)
        say(f"Waiting for {cluster.members} at {cluster.address}.")
        # C++ code waits here, and Python would not hear Ctrl-C.
        with handled_by(signal.SIG_DFL, signal.SIGINT):
            group = _initialize(cluster)
    except BaseException as error:
        _exit_at_the_end(_exit_code(error))
        raise
    parent.declare(JOINED)
    try:
        try:
            yield group
        except EVERYWHERE as error:
            _leave_together(group, parent, _exit_code(error))
            raise
        _leave_together(group, parent, 0)
    except BaseException as error:
        lost = peer_loss(error)
        code = _exit_code(lost or error)
        parent.declare(code)
        _exit_at_the_end(code)
        if lost:
            raise lost from error
        raise


def _leave_together(group: ProcessGroup, parent: Parent, exit_code: int) -> None:
    """Wait until the first process has written everything, then leave JAX's runtime.

    A process that is lost from there on takes nothing away: only errors before that are raised.
    """
    is_written = group.is_first
    with deferred_signals(lambda text: None, ""):  # too late to stop anything
        if is_written:
            parent.declare(exit_code)
        try:
            group.any(False)
            is_written = True
            parent.declare(exit_code)
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
    if not (is_of_gloo or isinstance(error, jax.errors.JaxRuntimeError)):
        return None
    if str(error).startswith("RESOURCE_EXHAUSTED"):
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


def _require_free_port(cluster: Cluster) -> None:
    """Refuse a port in use, which makes JAX's runtime violate memory.

    Raises:
        UsageError: this is the first process, and it cannot listen on the coordinator's port.
    """
    if cluster.process_id != 0 or cluster.coordinator == DETECTED:
        return
    port = cluster.coordinator.rpartition(":")[2]
    is_dual = socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if is_dual else socket.AF_INET
    try:
        socket.create_server(("", int(port)), family=family, dualstack_ipv6=is_dual).close()
    except (OSError, OverflowError) as error:
        raise UsageError(
            f"--coordinator {cluster.coordinator}: cannot listen on port {port} of this machine:"
            f" {reason(error)}. Choose another port."
        ) from error


def _initialize(cluster: Cluster) -> ProcessGroup:
    """Join the processes and start JAX's devices with them."""
    # JAX's handler of SIGTERM would replace ours, which saves the run.
    jax.config.update("jax_enable_preemption_service", False)
    seconds = math.ceil(cluster.timeout)
    failed = f"JAX cannot join the processes at {cluster.address}"
    try:
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
        raise UsageError(
            f"{failed}: {reason(error)}. Give --coordinator HOST:PORT, --processes and"
            " --process-id."
        ) from error
    except RuntimeError as error:
        raise PeerLostError(f"{failed}: {reason(error)}.") from error
