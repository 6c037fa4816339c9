"""A small parent process that hears signals, waits for its child, and turns its end into ours.

``ncfbench run --coordinator ...`` starts itself again as a child, which trains. JAX's runtime
aborts a process whose peers are lost, with a trace of C++; and while its C++ code waits for the
others, Python hears no Ctrl-C. The parent imports no JAX, hears every signal, and outlives the
abort.

How the child ends, and how the command then ends:

==============================================  =========  =======================================
the child                                       exit code  message
==============================================  =========  =======================================
declared an exit code (:meth:`Parent.declare`)  that code  the child's own
exited without declaring one                    its code   the child's own
was aborted by JAX before all had joined        8          who was waited for, where and how long
was aborted by JAX later                        8          another process is lost; how to resume
died of SIGINT, of SIGTERM, or of a third one   130        "Interrupted."
died of another signal                          1          the signal
==============================================  =========  =======================================

Exit codes that the child declares or exits with are those of :mod:`ncfbench.errors`. A declared
code counts even if JAX aborts the child afterwards: what is written stays written.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import IO

from ncfbench.distributed.cluster import Cluster
from ncfbench.distributed.signals import STOPPING, handled_by
from ncfbench.errors import INTERRUPTED_EXIT_CODE, NcfbenchError, PeerLostError

VARIABLE = "NCFBENCH_PARENT"
"""Environment variable of the child: its file descriptors of the link and of standard error."""
JOINED = 255
"""Byte that the child sends when it has joined the others; every other byte is an exit code."""
FORWARDED_SIGNALS = 2
"""The first asks the child to stop at the next probe, the second at once; a third kills it."""
LOG_SECONDS = 5.0
"""Time to read the rest of a dead child's standard error, which a process of its own may hold."""
COORDINATION = re.compile(rb"[EF]\d{4} .*(coordination|distributed service)", re.IGNORECASE)
"""The first of the lines that JAX's runtime logs when it ends a process because of the others."""
RESUME = (
    "The run ends in every process, and what was recorded is kept. To resume from the last"
    " checkpoint, repeat the commands with --resume; with --share global the number of devices may"
    " change."
)


def loss_message(cause: str) -> str:
    """Return the message for a lost process."""
    return f"Lost another process of this run: {cause}. Its own output may say why. {RESUME}"


class Parent:
    """The child's link to its parent; without a parent it does nothing."""

    def __init__(self, link: socket.socket | None = None) -> None:
        self._link = link

    @classmethod
    def from_environment(cls) -> Parent | None:
        """Return the link to the parent of a supervised process, None in any other process.

        In a supervised process, output of Python goes where the command's goes. What C++ code
        writes goes to the parent's log: Gloo writes to standard output, where results belong.
        """
        value = os.environ.pop(VARIABLE, None)
        if value is None:
            return None
        link, stderr = map(int, value.split(","))
        for descriptor in (link, stderr):
            os.set_inheritable(descriptor, False)
        encoding = sys.stdout.encoding
        sys.stdout = os.fdopen(os.dup(1), "w", 1, encoding)
        sys.stderr = os.fdopen(stderr, "w", 1, encoding, "backslashreplace")
        os.dup2(2, 1)
        parent = cls(socket.socket(fileno=link))
        threading.Thread(target=parent._end_with_it, name="parent", daemon=True).start()
        return parent

    def declare_joined(self) -> None:
        """Say that this process has joined the others."""
        self._send(JOINED)

    def declare(self, exit_code: int) -> None:
        """Say how this process ends, whatever happens to it from here on; the last call counts."""
        self._send(exit_code)

    def _send(self, byte: int) -> None:
        if self._link is not None:
            self._link.send(bytes([byte]))

    def _end_with_it(self) -> None:
        """Exit when the parent has died; it never sends anything."""
        assert self._link is not None
        with suppress(OSError):  # what this process sent was not read
            self._link.recv(1)
        os._exit(INTERRUPTED_EXIT_CODE)


class _Log:
    """A child's standard error: passed on line by line, but for the lines about lost processes."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self.held = b""
        """Everything from the first line of the runtime about the other processes on."""
        self._thread = threading.Thread(target=self._read, name="log", daemon=True)
        self._thread.start()

    def _read(self) -> None:
        with self._stream:
            for line in self._stream:
                if self.held or COORDINATION.match(line):
                    self.held += line
                else:
                    sys.stderr.buffer.write(line)
                    sys.stderr.flush()

    def finish(self) -> None:
        """Read the rest, after the child's end."""
        self._thread.join(LOG_SECONDS)

    def release(self) -> None:
        """Pass on the lines that were held."""
        sys.stderr.buffer.write(self.held)
        sys.stderr.flush()


def supervise(cluster: Cluster) -> int:
    """Start this command again as a child, wait for it, and return the command's exit code.

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
    log = _Log(child.stderr)
    with _forwarding(child) as heard:
        code = child.wait()
    log.finish()
    # What the child sent can still be read, and nothing more is waited for.
    link.shutdown(socket.SHUT_RD)
    sent = link.recv(1024)
    link.close()
    if declared := sent.replace(bytes([JOINED]), b""):
        return declared[-1]
    if code == -signal.SIGABRT and log.held:
        raise PeerLostError(_explained(log.held, cluster, is_joined=JOINED in sent))
    log.release()
    if code >= 0:
        return code
    if -code in STOPPING or len(heard) > FORWARDED_SIGNALS:
        raise KeyboardInterrupt
    raise NcfbenchError(
        f"The training process was ended by {signal.Signals(-code).name}"
        + (", most often for want of memory" if -code == signal.SIGKILL else "")
        + f". {RESUME}"
    )


@contextmanager
def _forwarding(child: subprocess.Popen[bytes]) -> Iterator[list[int]]:
    """Forward SIGINT and SIGTERM to the child, and collect them."""
    heard: list[int] = []

    def forward(number: int, frame: object) -> None:
        heard.append(number)
        child.send_signal(number if len(heard) <= FORWARDED_SIGNALS else signal.SIGKILL)

    with handled_by(forward, *STOPPING):
        yield heard


def _explained(log: bytes, cluster: Cluster, *, is_joined: bool) -> str:
    """Return our message for what JAX's runtime logged before it aborted this process."""
    text = log.decode(errors="replace")
    status = text.rpartition("absl::Status: ")[2].partition("\n")[0].strip()
    if not is_joined:
        if "DEADLINE_EXCEEDED" in status:
            return (
                f"Not all of {cluster.members} came to {cluster.address} within"
                f" {cluster.timeout:g} s. Start all of them, with the same --coordinator and"
                " --processes."
            )
        return f"JAX cannot join {cluster.members} at {cluster.address}: {status.rstrip('.')}."
    if silent := re.search(r"stopped sending heartbeats\):\s*(\d[\d, ]*)", text):
        cause = f"process {silent[1].strip()} stopped sending heartbeats"
    elif "Failed to send RPC" in status or "DEADLINE_EXCEEDED" in status:
        cause = "process 0 has ended or cannot be reached"
    else:
        cause = status.rstrip(".")
    return loss_message(cause)
