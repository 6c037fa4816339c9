"""Contention: the processor time that other programs take while times are measured here."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

import psutil

BUSY_SHARE = 0.2
"""Share of the cores that others may use; times taken beside more than that are too long."""
LEAST_SECONDS = 0.2
"""Shortest time over which a use is measured: the system counts in hundredths of a second."""


def available_cores() -> int:
    """Return the cores that this process may use."""
    return len(_own_cores())


class OtherPrograms:
    """Measures how busy the cores of this process are, from when it is made or last asked, without
    this process and those that it started.
    """

    def __init__(self) -> None:
        self._since, self._before = time.perf_counter(), _busy_seconds()

    def cores(self) -> float:
        """Return how many cores other programs used on average."""
        since, before = self._since, self._before
        time.sleep(max(since + LEAST_SECONDS - time.perf_counter(), 0))
        self._since, self._before = time.perf_counter(), _busy_seconds()
        return max(self._before - before, 0.0) / (self._since - since)

    def describe(self) -> str | None:
        """Return how busy other programs kept the machine; None where they did not."""
        used, cores = self.cores(), available_cores()
        return f"{used:.1f} of {cores} cores" if used >= BUSY_SHARE * cores else None

    def warn(self, say: Callable[[str], None], *, is_over: bool = False) -> None:
        """Say how busy other programs keep the machine, if they do.

        Args:
            is_over: the times were taken since this was made or last asked, not from now on.
        """
        if (used := self.describe()) is not None:
            when = "meanwhile other programs used" if is_over else "other programs use"
            say(f"Warning: {when} {used}. Times taken beside them are too long.")


def _own_cores() -> list[int]:
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def _busy_seconds() -> float:
    """Return the busy seconds of this process's cores, less those of its own programs."""
    every, own = psutil.cpu_times(percpu=True), psutil.Process()
    busy = sum(every[core].user + every[core].system for core in _own_cores())
    for process in (own, *own.children(recursive=True)):
        try:
            busy -= process.cpu_times().user + process.cpu_times().system
        except psutil.Error:  # it has ended, and counts as its parent's
            continue
    ended = own.cpu_times()
    return float(busy - ended.children_user - ended.children_system)
