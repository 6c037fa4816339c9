"""The field of a race: starts the processes of entries, and gives them turns."""

from __future__ import annotations

import math
import os
import signal
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from ncfbench.racing.entry import Entry, Status
from ncfbench.racing.metric import Metric
from ncfbench.racing.process import GRACE_SECONDS, Process
from ncfbench.reporting.table import slug
from ncfbench.storage.free_space import available_memory

POLL_SECONDS = 0.05
"""Between two looks at Ctrl-C and at the lines that have come."""
MARGIN = 1.2
"""Memory that must be free for one more entry, over that of the largest so far."""
LONGEST_NAME = 50
"""Characters of an entry's name in that of its file."""
Over = Callable[[Entry], bool]


class Field:
    """The processes of a race. A context manager, after which none of them is left.

    Args:
        folder: for the output of each entry.
        silence_seconds: an entry leaves that has printed no metric while running this long.
        interrupted: when it is true, a turn raises KeyboardInterrupt.
        ticked: called a few times a second while entries run.

    Attributes:
        suspended: when it is set, as by Ctrl-Z, entries that run are paused, and this process stops
            until it is continued.
    """

    def __init__(
        self,
        metric: Metric,
        folder: Path,
        *,
        silence_seconds: float = math.inf,
        interrupted: Callable[[], bool] = lambda: False,
        ticked: Callable[[], None] = lambda: None,
    ) -> None:
        self.metric, self.folder = metric, folder
        self.silence_seconds, self.interrupted, self.ticked = silence_seconds, interrupted, ticked
        self.began = time.perf_counter()
        self._ends, self.suspended = threading.Event(), threading.Event()
        self._open: list[Entry] = []

    def __enter__(self) -> Field:
        return self

    def __exit__(self, *_: object) -> None:
        self.close(self._open)

    @property
    def seconds(self) -> float:
        """Wall seconds since the race began."""
        return time.perf_counter() - self.began

    def start(self, entry: Entry) -> bool:
        """Start an entry, which is paused until its turn; return False where it cannot begin."""
        if lack := self._lack_of_memory():
            entry.close(Status.WAITING, lack)
            return False
        log = self.folder / f"{entry.number}-{slug(entry.name)[:LONGEST_NAME]}.log"
        command = entry.arm.filled(entry.seed)
        entry.process = Process(command, self.metric, log, self._ends)
        entry.process.pause()
        entry.timeline.readings = entry.process.readings
        entry.running_seconds = entry.process.running_seconds
        entry.status, entry.reason, entry.is_open = Status.RACING, "", True
        self._open.append(entry)
        return True

    def turn(self, entry: Entry, seconds: float, is_over: Over) -> None:
        """Let an entry run until it is over, or for some seconds.

        Raises:
            KeyboardInterrupt: interrupted; it is paused.
            UsageError: a line has several numbers to choose from.
        """
        process = entry.process
        assert process is not None
        end = entry.running_seconds + seconds
        self._ends.clear()
        process.resume()
        try:
            while not self.interrupted():
                self._ends.wait(min(max(end - entry.running_seconds, 0.0), POLL_SECONDS))
                self._ends.clear()
                if self.suspended.is_set():
                    self._suspend(process)
                self.ticked()
                is_alive = process.is_alive
                entry.running_seconds = process.running_seconds
                has_ended = not is_alive or self._must_leave(entry, process)
                if has_ended or is_over(entry) or entry.running_seconds >= end:
                    self._stop(entry, process, is_alive=is_alive)
                    break
        finally:
            process.pause()
            entry.running_seconds = process.running_seconds
        if self.interrupted():
            raise KeyboardInterrupt

    def _suspend(self, process: Process) -> None:
        """Pause a process and stop this one; the time until it is continued does not count."""
        began = time.perf_counter()
        process.pause()
        self.suspended.clear()
        os.kill(os.getpid(), signal.SIGSTOP)
        process.resume()
        self.began += time.perf_counter() - began

    def measure(self, entry: Entry) -> None:
        """Measure the memory that a paused entry holds."""
        if entry.process is not None:
            entry.memory_bytes = entry.process.memory_bytes()

    def close(self, entries: Sequence[Entry]) -> None:
        """End the processes of entries: ask, wait a little, kill."""
        closing = [entry for entry in entries if entry.process is not None]
        for entry in closing:
            if entry.process is not None and entry.process.is_alive:
                entry.process.ask_to_end()
        deadline = time.monotonic() + GRACE_SECONDS
        for entry in closing:
            assert entry.process is not None
            entry.process.end(deadline)
            entry.bunched = entry.process.bunched
            entry.process, entry.is_open = None, False
            self._open.remove(entry)

    def _must_leave(self, entry: Entry, process: Process) -> bool:
        """Return whether an entry diverged or is silent, and note that."""
        if process.error is not None:
            raise process.error
        readings = entry.readings
        if process.diverged is not None:
            entry.close(Status.DIVERGED, f"its metric became {process.diverged}")
        silent = entry.running_seconds - (readings[-1].running if readings else 0.0)
        if silent > self.silence_seconds:
            said = f"{self._last_words(process)}. {self.metric.advice([*process.last_lines])}"
            if readings:
                said = "since its last one"
            entry.close(Status.FAILED, f"no metric in {silent:.0f} s of running, {said}")
        return entry.status is not Status.RACING

    def _stop(self, entry: Entry, process: Process, *, is_alive: bool) -> None:
        """Pause an entry, or note how it ended."""
        process.pause()
        entry.running_seconds = process.running_seconds
        if is_alive or entry.status is not Status.RACING:
            return
        if self._must_leave(entry, process):
            return
        if process.code == 0 and entry.readings:
            entry.close(Status.ENDED, "by itself")
        else:
            entry.close(Status.FAILED, f"{_end(process.code)}, {self._last_words(process)}")

    def _last_words(self, process: Process) -> str:
        lines = " | ".join(process.last_lines)
        return f"last lines: {lines}" if lines else "it printed nothing"

    def _lack_of_memory(self) -> str:
        """Return why one more entry does not fit; empty where it does, or nothing is known."""
        one = MARGIN * max((each.memory_bytes for each in self._open), default=0)
        starting = [each for each in self._open if _is_starting(each)]
        if one + sum(max(one - each.memory_bytes, 0) for each in starting) > available_memory():
            return f"no memory: paused arms hold theirs, and one needs {one / 2**30:.1f} GiB"
        return ""


def _is_starting(entry: Entry) -> bool:
    """Return whether an entry has no line yet, but for one before training."""
    return all(line.step == 0 for line in entry.readings)


def _end(code: int | None) -> str:
    """Return how a process ended."""
    if code is None or code == -signal.SIGKILL:
        return "was killed, perhaps for want of memory"
    if code < 0:
        names = {int(each): each.name for each in signal.Signals}  # real-time ones have no name
        return f"was ended by {names.get(-code, f'signal {-code}')}"
    return "ended and printed no metric" if code == 0 else f"ended with exit code {code}"
