"""Joining the processes of a run through JAX's distributed runtime, and leaving it together.

How a process ends, as its own code sees it; :mod:`ncfbench.distributed.supervisor` has the rest:

- Work done, or an end that all reach at the same point (training diverged, an interrupt that all
  agreed on): every process waits until the first has written everything, then all leave JAX's
  runtime together.
- An error of this process alone: it exits at once with its own code. The others lose it.
- A collective operation that failed, because another process is lost: exit code 8.
"""

from __future__ import annotations

import atexit
import math
import os
import re
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import jax

from ncfbench.distributed.cluster import DETECTED, Cluster
from ncfbench.distributed.process_group import (
    AgreedInterrupt,
    ProcessGroup,
    UnlikeProcessesError,
)
from ncfbench.distributed.signals import deferred_signals, handled_by
from ncfbench.distributed.supervisor import RESUME, Parent, loss_message
from ncfbench.errors import (
    INTERRUPTED_EXIT_CODE,
    DivergedError,
    NcfbenchError,
    PeerLostError,
    UsageError,
    reason,
)

EVERYWHERE = (DivergedError, AgreedInterrupt, UnlikeProcessesError)
"""Exceptions that every process of the group raises at the same point."""
LOST_CONNECTION = re.compile("Gloo|NCCL|UNAVAILABLE|ABORTED|DEADLINE_EXCEEDED")
"""Found in the errors of JAX that only the loss of a process explains."""


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
    parent.declare_joined()
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
    family = socket.AF_INET6 if socket.has_dualstack_ipv6() else socket.AF_INET
    is_dual = family == socket.AF_INET6
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
    is_detected = cluster.coordinator == DETECTED
    seconds = math.ceil(cluster.timeout)
    try:
        jax.distributed.initialize(
            None if is_detected else cluster.coordinator,
            cluster.processes,
            cluster.process_id,
            initialization_timeout=seconds,
            heartbeat_timeout_seconds=seconds,
            shutdown_timeout_seconds=seconds,
        )
        return ProcessGroup.current()
    except (ValueError, TypeError) as error:
        raise UsageError(
            f"JAX cannot join the processes at {cluster.address}: {reason(error)}."
            " Give --coordinator HOST:PORT, --processes and --process-id."
        ) from error
    except RuntimeError as error:
        raise PeerLostError(
            f"JAX cannot join the processes at {cluster.address}: {reason(error)}."
        ) from error
