"""Several processes as one run, on JAX's distributed runtime: joining, watching each other, and
ending together.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import jax
import numpy as np
from jax._src.distributed import global_state

from ncfbench.distributed.endings import end_now, exit_at_the_end, exit_code, when_aborted
from ncfbench.distributed.heartbeat import OWN_ERROR_SECONDS, Roll, listening
from ncfbench.distributed.process_group import AgreedInterrupt, ProcessGroup
from ncfbench.distributed.signals import deferred_signals
from ncfbench.errors import (
    INTERRUPTED_EXIT_CODE,
    DivergedError,
    NcfbenchError,
    PeerLostError,
    UsageError,
    reason,
)

DETECTED = "auto"
"""In place of a coordinator's address: what JAX finds of the cluster by itself, Slurm's settings
for example.
"""
TIMEOUT_SECONDS = 60.0
LEAST_SECONDS, MOST_SECONDS = 2.0, 604800.0
"""Of the timeout: two beats of the roll, and a week."""
MARGIN_SECONDS = 60.0
"""JAX ends a process with a trace of C++ after timeouts of its own; these are longer than ours by
so much.
"""
VERDICT_SECONDS = 5.0
"""A collective operation that failed waits so long for the roll to say which process was lost."""
PARTING_SECONDS = 5.0
"""At the end, when all is written, JAX's runtime is given so long to take leave of the others."""
PORT_BYTES = 4
CAME = b"\0"
"""Of no signal the number."""
TO_GO_ON = (
    "The run ends here, in every process. What was recorded is kept. To go on from the last"
    " checkpoint, where there is one: repeat the commands with --resume; with --share global also"
    " with another number of devices."
)


@dataclass(frozen=True)
class Cluster:
    """Where the processes meet. What is None, JAX finds out by itself."""

    coordinator: str
    """HOST:PORT, where the first process listens; or :data:`DETECTED`."""
    processes: int | None = None
    process_id: int | None = None
    timeout: float = TIMEOUT_SECONDS
    """Seconds to wait for a process that has not come, or that says nothing any more."""

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
    def place(self) -> str:
        """The meeting place, for messages."""
        return "the cluster that JAX finds" if self.coordinator == DETECTED else self.coordinator

    @property
    def host(self) -> str:
        """The first process's machine; a detected one is known after
        :func:`jax.distributed.initialize`.
        """
        address = (
            global_state.coordinator_address if self.coordinator == DETECTED else self.coordinator
        )
        return str(address).rpartition(":")[0].strip("[]")


@contextmanager
def joined(cluster: Cluster, say: Callable[[str], None]) -> Iterator[None]:
    """Join the other processes; begin before JAX computes anything. They end together: normally, or
    with a message.

    Args:
        say: told, from a thread, why the run ends.

    Raises:
        PeerLostError: a collective operation failed, and nobody is known to be lost.
        UsageError: JAX cannot find out what was not given.
    """
    _keep_output_clean()
    try:
        _require_free(cluster)
        when_aborted("pause")
        with _waiting(cluster, say) as came:
            _initialize(cluster)
            came()
            roll = _called(cluster, say)
        when_aborted("sleep")
    except BaseException as error:
        exit_at_the_end(exit_code(error))
        raise
    try:
        with _leaving_together():
            yield
    except BaseException as error:
        if _may_be_of_another(error):
            time.sleep(VERDICT_SECONDS)  # the roll ends the process meanwhile, if it knows why
        if _is_of_operation(error):
            text = f"An operation with other processes failed: {_first_line(error)} {TO_GO_ON}"
            exit_at_the_end(PeerLostError.exit_code)
            roll.leave(text)
            raise PeerLostError(text) from error
        exit_at_the_end(exit_code(error))
        roll.leave("" if _is_of_all(error) else _first_line(error))
        if roll.index == 0 and roll.count > 1:
            time.sleep(
                1.5 * OWN_ERROR_SECONDS
            )  # JAX aborts the others when the first ends, and they are to say why before
        raise
    # All is written: who is lost or late from here on changes nothing any more.
    roll.settle()
    when_aborted("pause")
    roll.leave()
    _part()


@contextmanager
def _leaving_together() -> Iterator[None]:
    """None leaves while another, the first that writes above all, is still at work."""
    try:
        yield
    except BaseException as error:
        if _is_of_all(error):
            ProcessGroup.current().any(False)
        raise
    with deferred_signals(
        lambda text: None, ""
    ):  # too late to be heard: the first may be at its last table
        ProcessGroup.current().any(False)


def _part() -> None:
    """Take leave of JAX's runtime too, if the others do."""
    parted = threading.Event()

    def shut_down() -> None:
        with suppress(Exception):
            jax.distributed.shutdown()
            parted.set()

    thread = threading.Thread(target=shut_down, name="parting", daemon=True)
    thread.start()
    thread.join(PARTING_SECONDS)
    if not parted.is_set():
        exit_at_the_end(0)


def _is_of_all(error: BaseException) -> bool:
    """Whether all processes meet it at the same time."""
    return isinstance(error, (DivergedError, AgreedInterrupt))


def _is_of_operation(error: BaseException) -> bool:
    """Whether a collective operation failed: JAX says so as one of its own errors, or as what
    Python makes of a status.
    """
    return isinstance(error, jax.errors.JaxRuntimeError) or (
        isinstance(error, ValueError) and "Gloo" in str(error)
    )


def _may_be_of_another(error: BaseException) -> bool:
    """Whether it may have come over this process because another is lost."""
    return isinstance(error, Exception) and not isinstance(error, NcfbenchError)


def _first_line(error: BaseException) -> str:
    return str(error).partition("\n")[0][:300] or type(error).__name__


def _require_free(cluster: Cluster) -> None:
    """See to it that the first process can listen where it is to; JAX ends it by a violation of
    memory otherwise.

    Raises:
        UsageError: something else listens there.
    """
    if cluster.process_id != 0 or cluster.coordinator == DETECTED:
        return
    port = cluster.coordinator.rpartition(":")[2]
    try:
        listening(int(port)).close()
    except (OSError, OverflowError) as error:
        raise UsageError(
            f"--coordinator {cluster.coordinator}: this machine's port {port} cannot be listened"
            f" on: {reason(error)}. Choose another."
        ) from error


@contextmanager
def _waiting(cluster: Cluster, say: Callable[[str], None]) -> Iterator[Callable[[], None]]:
    """Watch over the joining, while JAX waits in C++ and Python hears no signal: a thread ends the
    process if it must.

    Yields:
        To be called when a part of the joining is done: each may take as long as the timeout.
    """
    ours, heard = socket.socketpair()
    heard.setblocking(False)

    def watch() -> None:
        while True:
            ready, _, _ = select.select([ours], [], [], cluster.timeout)
            if not ready:
                whole = "the" if cluster.processes is None else f"the {cluster.processes}"
                late = (
                    f"Not all of {whole} processes have come to {cluster.place} within"
                    f" {cluster.timeout:g} s"
                )
                say(f"Error: {late}, or one has gone again.")
                end_now(PeerLostError.exit_code)
            byte = ours.recv(1)
            if not byte:
                return
            if byte[0] in (signal.SIGINT, signal.SIGTERM):
                say("Interrupted while waiting for the other processes.")
                end_now(INTERRUPTED_EXIT_CODE)

    threading.Thread(target=watch, name="arrival", daemon=True).start()
    try:
        before = signal.set_wakeup_fd(heard.fileno())
    except ValueError:  # not the main thread, which alone has signals
        before = None
    try:
        yield lambda: heard.sendall(CAME)
    finally:
        if before is not None:
            signal.set_wakeup_fd(before)
        heard.close()


def _initialize(cluster: Cluster) -> None:
    """JAX's own joining."""
    # Its handler of a termination would take the place of ours, which saves the run.
    jax.config.update("jax_enable_preemption_service", False)
    seconds = int(cluster.timeout + MARGIN_SECONDS)
    try:
        jax.distributed.initialize(
            None if cluster.coordinator == DETECTED else cluster.coordinator,
            cluster.processes,
            cluster.process_id,
            initialization_timeout=seconds,
            heartbeat_timeout_seconds=seconds,
            shutdown_timeout_seconds=int(cluster.timeout) + 1,
        )
    except (ValueError, TypeError) as error:
        raise UsageError(
            f"JAX cannot join the processes at {cluster.place}: {reason(error)}. Give --coordinator"
            " HOST:PORT, --processes and --process-id."
        ) from error
    except RuntimeError as error:
        raise PeerLostError(
            f"JAX cannot join the processes at {cluster.place}: {_first_line(error)}"
        ) from error


def _called(cluster: Cluster, say: Callable[[str], None]) -> Roll:
    """The roll of all processes, the first of which tells the others its port and the token."""
    from jax.experimental.multihost_utils import broadcast_one_to_all

    def lost(what: str) -> None:
        say(f"Error: Lost another process of this run: {what}. {TO_GO_ON}")
        end_now(PeerLostError.exit_code)

    try:
        roll = Roll(jax.process_index(), jax.process_count(), cluster.timeout, lost)
    except RuntimeError as error:  # JAX starts its devices here
        raise PeerLostError(
            f"JAX cannot start its devices with the other processes: {_first_line(error)}"
        ) from error
    if roll.count == 1:
        return roll
    server = listening() if roll.index == 0 else None
    own = roll.token + (server.getsockname()[1] if server else 0).to_bytes(PORT_BYTES, "big")
    try:
        told = (
            np.asarray(broadcast_one_to_all(np.frombuffer(own, np.uint8)))
            .astype(np.uint8)
            .tobytes()
        )
        if server is not None:
            roll.accept(server)
        else:
            roll.token = told[:-PORT_BYTES]
            roll.connect(cluster.host, int.from_bytes(told[-PORT_BYTES:], "big"))
    except (OSError, RuntimeError, ValueError) as error:
        raise PeerLostError(
            f"The processes have come, and cannot reach each other: {_first_line(error)}"
        ) from error
    return roll


def _keep_output_clean() -> None:
    """Gloo writes on standard output, where results belong: what is not written through Python goes
    to standard error.
    """
    try:
        kept = os.dup(1)
        os.dup2(2, 1)
        sys.stdout = os.fdopen(kept, "w", buffering=1)
    except OSError:  # no such files, under a test for example
        return
