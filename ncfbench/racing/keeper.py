"""Keeps one arm: starts its command, and ends all that it started when the race is gone.

    python keeper.py STATUS COMMAND

A program of its own that imports nothing of this package. Standard input is the pipe of the race:
when it closes, by whatever end of the race, every process of the arm is killed. The arm is a
session of its own, so that no signal of the terminal reaches it, and is stopped and continued as a
process group. On Linux orphans of the arm become children of the keeper, so none escapes. STATUS is
a file descriptor, to which the arm's process id and at last its return code are written, a line
each.
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

DEATH_SIGNAL, SUBREAPER = 1, 36
"""Numbers of Linux's ``prctl``: a signal at the parent's death; orphans come to this process."""
LIMIT_SECONDS = 10.0
"""For processes that a kill does not end at once, such as those that wait for a disk."""


def children(process: int) -> list[int]:
    """Return the process ids of all descendants of a process, as far as ``/proc`` lists them."""
    parents = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError, ValueError):
            # The name in parentheses may hold spaces and parentheses.
            parents[int(path.parent.name)] = int(path.read_text().rpartition(")")[2].split()[1])
    tree = {process}
    while more := {pid for pid, parent in parents.items() if parent in tree} - tree:
        tree |= more
    return sorted(tree - {process})


def kill_all(group: int) -> None:
    """Kill a process group and all descendants of this process, and wait until none is left."""
    with suppress(OSError):
        os.killpg(group, signal.SIGKILL)
    deadline = time.monotonic() + LIMIT_SECONDS
    while time.monotonic() < deadline:
        for pid in children(os.getpid()):
            with suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        try:
            while os.waitpid(-1, os.WNOHANG) != (0, 0):
                pass
        except ChildProcessError:
            return
        time.sleep(0.005)


def keep(status: int, command: str) -> None:
    """Run a command to its end, or until standard input closes."""
    prctl = ctypes.CDLL(None).prctl if sys.platform == "linux" else None
    if prctl is not None:
        prctl(SUBREAPER, 1, 0, 0, 0)
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    arm = subprocess.Popen(
        ["/bin/sh", "-c", command],
        stdin=subprocess.DEVNULL,
        start_new_session=True,
        preexec_fn=None if prctl is None else lambda: prctl(DEATH_SIGNAL, signal.SIGKILL),
    )
    os.write(status, f"{arm.pid}\n".encode())
    null = os.open(os.devnull, os.O_WRONLY)
    for output in (1, 2):  # they close when the arm has closed them
        os.dup2(null, output)
    code = None
    while code is None:
        ready, _, _ = select.select([0, woken], [], [])
        if 0 in ready and not os.read(0, 1):
            break
        if woken in ready:
            os.read(woken, 4096)
            with suppress(ChildProcessError):
                while (ended := os.waitpid(-1, os.WNOHANG)) != (0, 0):
                    if ended[0] == arm.pid:
                        code = os.waitstatus_to_exitcode(ended[1])
    kill_all(arm.pid)
    if code is not None:
        with suppress(OSError):
            os.write(status, f"{code}\n".encode())
    os._exit(0)


if __name__ == "__main__":
    keep(int(sys.argv[1]), sys.argv[2])
