"""A small parent process that hears signals, waits for its child, and turns its end into ours.

``ncfbench run --coordinator ...`` starts itself again as a child, which trains. JAX's runtime
aborts a process whose peers are lost, with a trace of C++; and while its C++ code waits for the
others, Python hears no Ctrl-C. The parent imports no JAX, hears every signal, and outlives the
abort. An exit code that the child declares counts even if JAX aborts it afterwards: what is written
stays written.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from ncfbench.errors import INTERRUPTED_EXIT_CODE, NcfbenchError, PeerLostError, UsageError
from ncfbench.runs.signals import STOPPING, handled_by

DETECTED = "auto"
"""Stands for a coordinator's address that JAX detects, from Slurm's variables for example."""
LEAST_SECONDS, MOST_SECONDS = 2.0, 604800.0
"""Bounds on --peer-timeout, in seconds."""
VARIABLE = "NCFBENCH_PARENT"
"""Environment variable of the child: its file descriptors of the link and of standard error."""
JOINED = 255
"""Byte that the child sends when it has joined the others; every other byte is an exit code."""
FORWARDED_SIGNALS = 2
"""The first asks the child to stop at the next probe, the second at once; a third kills it."""
COORDINATION = re.compile(rb"[EF]\d{4} .*(coordination|distributed service)", re.IGNORECASE)
"""The first of the lines that JAX's runtime logs when it ends a process because of the others."""
RESUME = (
    "The run ends in every process, and what was recorded is kept. To resume from the last"
    " checkpoint, repeat the commands with --resume; the number of devices may change."
)


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
    timeout: float = 60.0
    """Seconds to wait for a process that has not come, or whose heartbeats stopped."""

    def __post_init__(self) -> None:
        host, _, port = self.coordinator.rpartition(":")
        index, count = self.process_id, self.processes
        if self.coordinator != DETECTED and not (host and port.isdecimal()):
            raise UsageError(
                f"--coordinator {self.coordinator!r} is neither HOST:PORT nor {DETECTED}."
            )
        if count is not None and count < 1:
            raise UsageError(f"--processes {count}: it must be at least 1.")
        if index is not None and not 0 <= index < (count or index + 1):
            raise UsageError(f"--process-id {index}: it must be between 0 and --processes less 1.")
        if not LEAST_SECONDS <= self.timeout <= MOST_SECONDS:
            bounds = f"between {LEAST_SECONDS:g} and {MOST_SECONDS:g} seconds"
            raise UsageError(f"--peer-timeout {self.timeout:g}: it must be {bounds}.")

    def __str__(self) -> str:
        """Name the processes and the address in a message."""
        count = "" if self.processes is None else f"{self.processes} "
        place = "the detected cluster" if self.coordinator == DETECTED else self.coordinator
        return f"the {count}processes at {place}"


def connect_to_parent() -> Callable[[int], None] | None:
    """Return a function that tells the parent that this process has joined the others
    (:data:`JOINED`), or its exit code, the last of which counts; None without a parent.

    Output of C++ code goes to the parent's log, also Gloo's to standard output, where results
    belong. This process ends when its parent dies.
    """
    value = os.environ.pop(VARIABLE, None)
    if value is None:
        return None
    descriptor, stderr = map(int, value.split(","))
    for inherited in (descriptor, stderr):
        os.set_inheritable(inherited, False)
    encoding = sys.stdout.encoding
    sys.stdout = os.fdopen(os.dup(1), "w", 1, encoding)
    sys.stderr = os.fdopen(stderr, "w", 1, encoding, "backslashreplace")
    os.dup2(2, 1)
    link = socket.socket(fileno=descriptor)

    def end_with_parent() -> None:
        with suppress(OSError):  # the parent has not read what this process sent
            link.recv(1)  # it sends nothing, so this ends when it dies
        os._exit(INTERRUPTED_EXIT_CODE)

    threading.Thread(target=end_with_parent, name="parent", daemon=True).start()
    return lambda code: link.sendall(bytes([code]))


def supervise(cluster: Cluster) -> int:
    """Start this command again as a child, wait for it, and return the command's exit code.

    The child's log is passed on; our message replaces it from the runtime's first line about the
    other processes on.

    Raises:
        PeerLostError: JAX's runtime aborted the child: a process is lost or did not come.
        KeyboardInterrupt: the child died of an interrupt.
        NcfbenchError: the child died of another signal.
    """
    link, childs = socket.socketpair()
    stderr = os.dup(2)
    child = subprocess.Popen(
        [sys.executable, *sys.orig_argv[1:]],
        stderr=subprocess.PIPE,
        env=os.environ | {VARIABLE: f"{childs.fileno()},{stderr}"},
        pass_fds=(childs.fileno(), stderr),
        process_group=0,  # a terminal's Ctrl-C reaches the parent alone, which forwards it
    )
    childs.close()
    os.close(stderr)
    assert child.stderr is not None
    heard: list[int] = []
    held = b""

    def forward(number: int, frame: object) -> None:
        heard.append(number)
        child.send_signal(number if len(heard) <= FORWARDED_SIGNALS else signal.SIGKILL)

    with handled_by(forward, *STOPPING), child.stderr as log:
        for line in log:
            if held or COORDINATION.match(line):
                held += line
            else:
                _write(line)
        code = child.wait()
    # What the child sent can still be read, and nothing more is waited for.
    link.shutdown(socket.SHUT_RD)
    sent = link.recv(1024)
    link.close()
    if declared := sent.replace(bytes([JOINED]), b""):
        return declared[-1]
    if code == -signal.SIGABRT and held:
        raise PeerLostError(_explained(held, cluster, is_joined=JOINED in sent))
    _write(held)
    if code >= 0:
        return code
    if -code in STOPPING or len(heard) > FORWARDED_SIGNALS:
        raise KeyboardInterrupt
    cause = ", most often for want of memory" if -code == signal.SIGKILL else ""
    name = signal.Signals(-code).name
    raise NcfbenchError(f"The training process was ended by {name}{cause}. {RESUME}")


def loss_message(cause: str) -> str:
    """Return the message for a lost process."""
    return f"Lost another process of this run: {cause}. Its own output may say why. {RESUME}"


def _write(log: bytes) -> None:
    sys.stderr.buffer.write(log)
    sys.stderr.flush()


def _explained(log: bytes, cluster: Cluster, *, is_joined: bool) -> str:
    """Return our message for what JAX's runtime logged before it aborted this process."""
    text = log.decode(errors="replace")
    status = text.rpartition("absl::Status: ")[2].partition("\n")[0].strip(" .")
    is_late = "DEADLINE_EXCEEDED" in status
    if is_joined:
        if silent := re.search(r"stopped sending heartbeats\):\s*(\d[\d, ]*)", text):
            return loss_message(f"process {silent[1].strip()} stopped sending heartbeats")
        if is_late or "Failed to send RPC" in status:
            return loss_message("process 0 has ended or cannot be reached")
        return loss_message(status)
    if is_late:
        return (
            f"Not all of {cluster} came within {cluster.timeout:g} s. Start all of them, with the"
            " same --coordinator and --processes."
        )
    return f"JAX cannot join {cluster}: {status}."
