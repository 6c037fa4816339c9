"""The process of an arm: started by a keeper, paused, continued, read line by line, and ended.

A keeper (:mod:`ncfbench.racing.keeper`) is the parent of all processes of the arm, and kills them
when this program is gone.
"""

from __future__ import annotations

import math
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO

import psutil

from ncfbench.errors import UsageError
from ncfbench.racing import keeper
from ncfbench.racing.clock import Reading
from ncfbench.racing.lines import cleaned
from ncfbench.racing.metric import Metric
from ncfbench.storage.tables import storage_errors

GRACE_SECONDS = 2.0
"""Between the request to end and the kill."""
MOST_ROUNDS = 5
"""Looks for processes of an arm that its group's signal did not reach."""
LAST_LINES = 5
LONGEST_LINE = 1 << 20
VARIABLES = {"PYTHONUNBUFFERED": "1", "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
"""Variables of an arm, unless they are set: Python would keep printed lines back until they fill a
buffer, and JAX would take three quarters of a GPU's memory, so that a second arm would find none.
"""


def require_pausing() -> None:
    """Refuse a system that cannot stop and continue processes.

    Raises:
        UsageError: it is such a system.
    """
    if not hasattr(signal, "SIGSTOP"):
        raise UsageError(
            "This system cannot pause a process: a race needs SIGSTOP and SIGCONT, as Linux and"
            " macOS have them. Run it there, or in a container."
        )


class Process:
    """A running or paused command, with its lines. It begins to run at once.

    Args:
        log: file to which its output is appended.
        ends: is set when it has ended.

    Attributes:
        readings: lines with a metric.
        last_lines: of its output, without those that hold a metric.
        code: exit code, negative for a signal; None while it lives or where nothing is known.
        error: what a line is refused for.
        diverged: a metric that was no finite number, after one that was or twice.
        is_paused: True between turns.
    """

    def __init__(
        self,
        command: str,
        metric: Metric,
        log: Path,
        ends: threading.Event,
    ) -> None:
        self.readings: list[Reading] = []
        self.last_lines: deque[str] = deque(maxlen=LAST_LINES)
        self.code: int | None = None
        self.error: UsageError | None = None
        self.diverged: float | None = None
        self._not_finite = 0
        self._counts = True
        self._metric, self._ends, self._lock = metric, ends, threading.Lock()
        self._known: list[psutil.Process] = []
        with storage_errors(log):
            self._log = log.open("ab", 0)
        status, theirs = os.pipe()
        try:
            self._keeper = subprocess.Popen(
                [sys.executable, "-I", "-S", keeper.__file__, str(theirs), command],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env={**VARIABLES, **os.environ},
                pass_fds=[theirs],
                start_new_session=True,
            )
        finally:
            os.close(theirs)
        self._status = os.fdopen(status, "rb")
        first = self._status.readline()
        self.group = int(first) if first.strip() else 0
        self._since = time.perf_counter()
        self._running, self.is_paused = 0.0, False
        self._reader = threading.Thread(target=self._read, name="arm", daemon=True)
        self._reader.start()

    @property
    def is_alive(self) -> bool:
        """True until its output has closed and its keeper has ended."""
        if self._keeper.poll():  # it was killed, and leaves the others behind
            self._signal_group(signal.SIGKILL)
            self.group = 0  # others may be given its number
            _kill(self._known)
        return self._reader.is_alive()

    @property
    def running_seconds(self) -> float:
        """Seconds that it has been running, without pauses."""
        with self._lock:
            return self._clock(time.perf_counter())

    def _clock(self, now: float) -> float:
        return self._running + (0.0 if self.is_paused else now - self._since)

    def pause(self) -> None:
        """Stop all its processes: the group at once, then what has left the group."""
        with self._lock:
            if self.is_paused:
                return
            self._signal_group(signal.SIGSTOP)
            now = time.perf_counter()
            self._running, self.is_paused = self._clock(now), True
        stopped: set[psutil.Process] = set()
        for _ in range(MOST_ROUNDS):  # one that is not stopped yet may start others
            running = {child for child in self._descendants() if _can_run(child)} - stopped
            for child in running:
                with suppress(psutil.Error):
                    child.suspend()
            stopped |= running
            if not running:
                break

    def resume(self) -> None:
        """Continue all its processes."""
        for child in self._known:
            with suppress(psutil.Error):
                child.resume()
        with self._lock:
            self._since, self.is_paused = time.perf_counter(), False
            self._signal_group(signal.SIGCONT)

    def ask_to_end(self) -> None:
        """Ask its processes to end, so that they can save; :meth:`end` kills them.

        Lines count no more: others end beside it.
        """
        self._counts = False
        self._signal_group(signal.SIGTERM)
        self.resume()

    def end(self, deadline: float = 0.0) -> None:
        """Kill what is left of it at a deadline of ``time.monotonic``."""
        self._reader.join(max(deadline - time.monotonic(), 0.0))
        known = self._descendants()
        assert self._keeper.stdin is not None
        with suppress(OSError):
            self._keeper.stdin.close()  # the keeper kills them
        try:
            self._keeper.wait(keeper.LIMIT_SECONDS)
        except subprocess.TimeoutExpired:
            self._keeper.kill()
        _kill(known)
        self._reader.join(keeper.LIMIT_SECONDS)

    def memory_bytes(self) -> int:
        """Return the memory of its processes; a page that several share counts once."""
        total = 0
        for child in self._descendants():
            with suppress(psutil.Error):
                total += _memory_of(child)
        return total

    def _signal_group(self, number: signal.Signals) -> None:
        if self.group:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self.group, number)

    def _descendants(self) -> list[psutil.Process]:
        with suppress(psutil.Error):
            self._known = psutil.Process(self._keeper.pid).children(recursive=True)
        return self._known

    def _read(self) -> None:
        assert self._keeper.stdout is not None
        self._read_lines(self._keeper.stdout)
        last = self._status.read().split()  # until the keeper ends
        self.code = int(last[-1]) if last else None
        self._keeper.wait()
        with self._lock:
            self._running, self.is_paused = self._clock(time.perf_counter()), True
        self._status.close()
        self._log.close()
        self._ends.set()

    def _read_lines(self, output: IO[bytes]) -> None:
        rest = b""
        while chunk := os.read(output.fileno(), 1 << 16):
            now = time.perf_counter()
            with suppress(OSError):  # of a full disk the arm knows nothing
                self._log.write(chunk)
            *lines, rest = re.split(rb"[\r\n]+", rest + chunk)
            self._take(lines, now)
            rest = rest if len(rest) < LONGEST_LINE else b""
        self._take([rest], time.perf_counter())
        output.close()

    def _take(self, lines: Sequence[bytes], now: float) -> None:
        with self._lock:
            running = self._clock(now)
        for line in lines:
            text = line.decode(errors="replace")
            try:
                read = self._metric.read(text)
            except UsageError as error:
                self.error, read = error, None
            if read is not None and not self._counts:
                continue
            if read is not None and math.isfinite(read.value):
                self.readings.append(Reading(running, *read))
                continue
            if read is not None:
                self._not_finite += 1
                if self.readings or self._not_finite > 1:  # a first one may be before training
                    self.diverged = read.value
            if shown := cleaned(text).strip():
                self.last_lines.append(shown)


def _memory_of(process: psutil.Process) -> int:
    """Return a process's share of its pages, as Linux counts it; elsewhere its resident memory."""
    try:
        return int(process.memory_full_info().pss)
    except (psutil.AccessDenied, AttributeError):
        return int(process.memory_info().rss)


def _can_run(process: psutil.Process) -> bool:
    try:
        return process.status() not in (psutil.STATUS_STOPPED, psutil.STATUS_ZOMBIE)
    except psutil.Error:
        return False


def _kill(known: Sequence[psutil.Process]) -> None:
    """Kill processes whose keeper was killed; psutil knows a process id that was given anew."""
    for process in known:
        with suppress(psutil.Error):
            process.kill()
