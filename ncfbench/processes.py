"""Several processes as one run, on JAX's distributed runtime: joining, watching each other, and ending together."""

from __future__ import annotations

import atexit
import ctypes
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NoReturn

import jax
import numpy as np

from ncfbench.errors import INTERRUPTED_EXIT_CODE, DivergedError, PeerLostError, UsageError
from ncfbench.roll import Roll
from ncfbench.team import AGREED

DETECTED = "auto"
"""In place of a coordinator's address: what JAX finds of the cluster by itself, Slurm's settings for example."""
TIMEOUT_SECONDS = 60.0
MARGIN_SECONDS = 60.0
"""JAX ends a process with a trace of C++ after timeouts of its own; these are longer than ours by so much."""
VERDICT_SECONDS = 5.0
"""A collective operation that failed waits so long for the roll to say which process was lost."""
HOST_BYTES = 256
TO_GO_ON = (
    "The run ends here, in every process. What was recorded is kept. To go on from the last checkpoint, with as many devices "
    "as you like: repeat the commands with --resume."
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
            raise UsageError(f"--coordinator {self.coordinator!r} is neither HOST:PORT nor {DETECTED}.")
        if self.processes is not None and self.processes < 1:
            raise UsageError(f"--processes {self.processes}: it must be at least 1.")
        if self.process_id is not None and not 0 <= self.process_id < (self.processes or self.process_id + 1):
            raise UsageError(f"--process-id {self.process_id}: it must be between 0 and --processes less 1.")
        if not self.timeout > 0:
            raise UsageError(f"--peer-timeout {self.timeout:g}: it must be above 0 seconds.")


@contextmanager
def joined(cluster: Cluster, say: Callable[[str], None]) -> Iterator[None]:
    """Join the other processes; begin before JAX computes anything. They end together: normally, or by :func:`_end`.

    Args:
        say: told, from a thread, why the run ends.

    Raises:
        PeerLostError: a collective operation failed, and nobody is known to be lost.
        UsageError: JAX cannot find out what was not given.
    """
    _keep_output_clean()
    _initialize(cluster, say)
    roll = _called(cluster, say)
    _sleep_before_aborting()
    try:
        yield
    except BaseException as error:
        if isinstance(error, jax.errors.JaxRuntimeError):
            time.sleep(VERDICT_SECONDS)  # the roll ends the process meanwhile, if it knows why
            text = f"An operation with other processes failed: {str(error).splitlines()[0][:200]} {TO_GO_ON}"
            roll.leave(text)
            _exit_at_the_end(PeerLostError.exit_code)
            raise PeerLostError(text) from error
        # What all processes meet at the same time ends them alike.
        alike = isinstance(error, DivergedError) or AGREED in error.args
        roll.leave("" if alike else str(error).partition("\n")[0][:300] or type(error).__name__)
        code = INTERRUPTED_EXIT_CODE if isinstance(error, KeyboardInterrupt) else getattr(error, "exit_code", 1)
        _exit_at_the_end(int(code))
        raise
    roll.leave()
    jax.distributed.shutdown()


def _initialize(cluster: Cluster, say: Callable[[str], None]) -> None:
    """JAX's own joining, with a clear end where not all processes come."""
    where = "the cluster that JAX finds" if cluster.coordinator == DETECTED else cluster.coordinator
    came = threading.Event()

    def give_up() -> None:
        if not came.wait(cluster.timeout):
            whole = "the" if cluster.processes is None else f"the {cluster.processes}"
            _end(say, f"Not all of {whole} processes have come to {where} within {cluster.timeout:g} s.")

    threading.Thread(target=give_up, name="arrival", daemon=True).start()
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
            f"JAX cannot join the processes at {where}: {error} Give --coordinator HOST:PORT, --processes and --process-id."
        ) from error
    except RuntimeError as error:
        raise PeerLostError(f"JAX cannot join the processes at {where}: {str(error).splitlines()[0][:300]}") from error
    finally:
        came.set()


def _called(cluster: Cluster, say: Callable[[str], None]) -> Roll:
    """The roll of all processes, the first of which tells the others where it listens."""
    from jax.experimental.multihost_utils import broadcast_one_to_all

    def lost(what: str) -> None:
        _end(say, f"Lost another process of this run: {what}. {TO_GO_ON}")

    roll = Roll(jax.process_index(), jax.process_count(), cluster.timeout, lost)
    address = np.zeros(HOST_BYTES + 4, np.uint8)
    server = None
    if roll.index == 0 and roll.count > 1:
        server = roll.listen()
        address[:HOST_BYTES] = np.frombuffer(socket.getfqdn().encode().ljust(HOST_BYTES, b"\0")[:HOST_BYTES], np.uint8)
        address[HOST_BYTES:] = np.frombuffer(server.getsockname()[1].to_bytes(4, "big"), np.uint8)
    told = np.asarray(broadcast_one_to_all(address)).astype(np.uint8).tobytes() if roll.count > 1 else b""
    try:
        if server is not None:
            roll.accept(server)
        elif roll.count > 1:
            named = told[:HOST_BYTES].rstrip(b"\0").decode()
            host = named if cluster.coordinator == DETECTED else cluster.coordinator.rpartition(":")[0].strip("[]")
            roll.connect(host, int.from_bytes(told[HOST_BYTES:], "big"))
    except OSError as error:
        raise PeerLostError(f"The processes cannot reach the first of them to watch each other: {error}.") from error
    return roll


def _end(say: Callable[[str], None], text: str) -> NoReturn:
    """End this process from a thread, whatever the main one waits for."""
    say(f"Error: {text}")
    sys.stderr.flush()
    os._exit(PeerLostError.exit_code)


def _exit_at_the_end(code: int) -> None:
    """At exit JAX would wait for processes that never come: leave before it."""

    def leave() -> None:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)

    atexit.register(leave)


def _keep_output_clean() -> None:
    """Gloo writes on standard output, where results belong: what is not written through Python goes to standard error."""
    try:
        kept = os.dup(1)
        os.dup2(2, 1)
        sys.stdout = os.fdopen(kept, "w", buffering=1)
    except OSError:  # no such files, under a test for example
        return


def _sleep_before_aborting() -> None:
    """Give the roll time to say why this process ends.

    Where the first process dies, JAX's runtime aborts the others at once, from a thread of its own. The signal's handler is
    made the C library's ``sleep``, which takes the signal's number, 6, for seconds; then the abort goes on.
    """
    try:
        libc = ctypes.CDLL(None)
        libc.signal.restype = ctypes.c_void_p
        libc.signal(signal.SIGABRT, ctypes.cast(libc.sleep, ctypes.c_void_p))
    except (OSError, AttributeError):  # no such library: the trace is all there is
        return
