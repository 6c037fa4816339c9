"""Contention: the processor time that other programs take while times are measured here."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress

import psutil

BUSY_SHARE = 0.2
"""A machine is busy if other programs use at least this share of its cores."""
BUSY_REMEDY = "Timings will be inflated; wait for them to finish or stop them."
LEAST_SECONDS = 0.2
"""Shortest time over which a use is measured: the system counts in hundredths of a second."""


def own_cores() -> list[int]:
    """Return the cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


class OtherPrograms:
    """Measures how busy other programs keep this process's cores, since it was made or asked."""

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
        used, cores = self.cores(), len(own_cores())
        return f"{used:.1f} of {cores} cores" if used >= BUSY_SHARE * cores else None

    def warn(self, say: Callable[[str], None]) -> None:
        """Say how busy other programs keep the machine, if they do."""
        if used := self.describe():
            say(f"Warning: other programs use {used}. {BUSY_REMEDY}")


def _busy_seconds() -> float:
    """Return the busy seconds of this process's cores, less those of its own programs."""
    cores, process = psutil.cpu_times(percpu=True), psutil.Process()
    busy = sum(cores[core].user + cores[core].system for core in own_cores())
    times = [process.cpu_times()]
    for child in process.children(recursive=True):
        with suppress(psutil.Error):  # it has ended, and counts as its parent's
            times.append(child.cpu_times())
    ended = times[0].children_user + times[0].children_system
    return float(busy - ended - sum(time_.user + time_.system for time_ in times))
