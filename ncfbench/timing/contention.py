"""Contention: the processor time that other programs take while times are measured here."""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

import psutil

BUSY_SHARE = 0.2
"""Share of the cores that other programs may use; times taken beside more than that are too long.
Two runs at once use half of the cores each.
"""
LEAST_SECONDS = 0.2
"""Shortest time over which a use is measured: the system counts in hundredths of a second."""
LEAST_CORES, MOST_NAMED, COMMAND_LENGTH = 0.1, 2, 60
"""Programs that use less are not named; nor are more than two; nor is all of a long command."""


class Program(NamedTuple):
    """A program that runs now: its process and when it was created."""

    pid: int
    created: float


class OtherPrograms:
    """Measures the cores that other programs use, from when it is made or last asked.

    Counted are the programs that this process can see and that may run on one of its cores,
    without itself and what it started. Those that ended meanwhile are not counted.
    """

    def __init__(self) -> None:
        self._begin()

    def warn(self, say: Callable[[str], None], *, is_over: bool = False) -> None:
        """Say which other programs keep the machine busy, if any.

        Args:
            is_over: the times were taken since this was made or last asked, not from now on.
        """
        used = self.describe()
        if used is not None and is_over:
            say(f"Warning: meanwhile other programs used {used}. The times are too long.")
        elif used is not None:
            say(
                f"Warning: other programs use {used}. Times taken beside them are too long: wait"
                " until they end, or stop them."
            )

    def cores(self) -> float:
        """Return how many cores other programs used on average."""
        return sum(self._used().values())

    def describe(self) -> str | None:
        """Return how busy other programs kept the machine, and which; None where they did not."""
        used, cores = self._used(), available_cores()
        total = sum(used.values())
        if total < BUSY_SHARE * cores:
            return None
        busiest = sorted(used, key=lambda program: -used[program])[:MOST_NAMED]
        names = [
            f"{_command(program)} (process {program.pid}: {used[program]:.1f})"
            for program in busiest
            if used[program] >= LEAST_CORES
        ]
        return f"{total:.1f} of {cores} cores" + (f": {', '.join(names)}" if names else "")

    def _used(self) -> Mapping[Program, float]:
        """Return the cores that each other program used, and begin again."""
        before, since, wall = self._before, self._since, self._wall
        time.sleep(max(since + LEAST_SECONDS - time.perf_counter(), 0))
        self._begin()
        # A program that is new has used all its time since.
        return {
            program: max(seconds - before.get(program, 0.0), 0.0) / (self._since - since)
            for program, seconds in self._before.items()
            if program in before or program.created >= wall
        }

    def _begin(self) -> None:
        self._before, self._since, self._wall = _seconds(), time.perf_counter(), time.time()


def available_cores() -> int:
    """Return the cores that this process may use."""
    own = _own_cores()
    return os.cpu_count() or 1 if own is None else len(own)


def _own_cores() -> set[int] | None:
    """Return the cores that this process may use; None where the system does not say."""
    return os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else None


def _seconds() -> dict[Program, float]:
    """Return the processor seconds of each program on the cores of this process, but of itself and
    what it started.
    """
    cores, names = _own_cores(), ["ppid", "cpu_times", "create_time"]
    names += ["cpu_affinity"] if cores is not None else []
    seen = {process.pid: process.info for process in psutil.process_iter(names)}
    ours = {os.getpid()}
    while more := {pid for pid, info in seen.items() if info["ppid"] in ours} - ours:
        ours |= more
    return {
        Program(pid, info["create_time"]): info["cpu_times"].user + info["cpu_times"].system
        for pid, info in seen.items()
        if pid not in ours
        and info["cpu_times"] is not None
        and info["create_time"] is not None
        and (cores is None or not cores.isdisjoint(info["cpu_affinity"] or cores))
    }


def _command(program: Program) -> str:
    try:
        process = psutil.Process(program.pid)
        text = shlex.join(process.cmdline()) or process.name()
    except psutil.Error:
        return "a program"
    return text if len(text) <= COMMAND_LENGTH else text[:COMMAND_LENGTH] + "..."
