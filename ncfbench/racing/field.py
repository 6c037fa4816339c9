"""The field of a race: starts the processes of entries, and gives them turns."""

from __future__ import annotations

import math
import os
import signal
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ncfbench.errors import UsageError
from ncfbench.racing.entry import Entry, Status
from ncfbench.racing.metric import Metric
from ncfbench.racing.process import GRACE_SECONDS, Process
from ncfbench.reporting.formats import counted
from ncfbench.reporting.table import slug
from ncfbench.storage.free_space import available_memory
from ncfbench.timing.environment import output_of

POLL_SECONDS = 0.05
"""Between two looks at Ctrl-C and at the lines that have come."""
MARGIN = 1.2
"""Memory that must be free for one more entry, over that of the largest so far."""
NO_PREALLOCATION = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
"""JAX would take three quarters of a GPU's memory, and the second entry would find none."""
LONGEST_NAME = 50
"""Characters of an entry's name in that of its file."""
NO_METRIC = Metric("no such number")
Over = Callable[[Entry], bool]


@dataclass(frozen=True)
class Slot:
    """Where one of several entries runs at a time: cores, empty for all, and a GPU by its entry in
    ``CUDA_VISIBLE_DEVICES``.
    """

    cores: tuple[int, ...] = ()
    device: str | None = None


def make_slots(parallel: int) -> list[Slot]:
    """Share the cores and GPUs among entries that run at once.

    Raises:
        UsageError: there are fewer cores, or fewer GPUs where there are any.
    """
    if parallel == 1:
        return [Slot()]
    if not hasattr(os, "sched_getaffinity"):
        raise UsageError("--parallel: this system cannot assign cores to a process. Leave it out.")
    cores, devices = sorted(os.sched_getaffinity(0)), [*free_device_bytes()]
    for count, what in ((len(cores), "core"), (len(devices) or parallel, "GPU")):
        if not 1 <= parallel <= count:
            raise UsageError(
                f"--parallel {parallel}: there is room for 1 to {counted(count, what)}, since arms"
                " that share one disturb each other."
            )
    share = len(cores) // parallel
    return [
        Slot(tuple(cores[index * share : (index + 1) * share]), devices[index] if devices else None)
        for index in range(parallel)
    ]


class Field:
    """The processes of a race. A context manager, after which none of them is left.

    Args:
        folder: for the output of each entry.
        resume_flag: is added to the command of an entry that has trained in an earlier process.
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
        slots: Sequence[Slot],
        *,
        resume_flag: str = "",
        silence_seconds: float = math.inf,
        interrupted: Callable[[], bool] = lambda: False,
        ticked: Callable[[], None] = lambda: None,
    ) -> None:
        self.metric, self.folder, self.slots = metric, folder, slots
        self.resume_flag, self.silence_seconds = resume_flag, silence_seconds
        self.interrupted, self.ticked = interrupted, ticked
        self.began = time.perf_counter()
        self._ends, self.suspended = threading.Event(), threading.Event()
        self._open: list[Entry] = []
        self._free_at_start: dict[Entry, int] = {}
        self._started = 0

    def __enter__(self) -> Field:
        return self

    def __exit__(self, *_: object) -> None:
        self.close(self._open)

    @property
    def seconds(self) -> float:
        """Wall seconds since the race began."""
        return time.perf_counter() - self.began

    def start(self, entry: Entry) -> bool:
        """Start an entry, which runs until its turn ends; return False where it cannot begin.

        Raises:
            KeyboardInterrupt: interrupted during its setup.
        """
        entry.slot = self._started % len(self.slots)
        slot = self.slots[entry.slot]
        lack = self._lack_of_memory(slot)
        if lack:
            entry.close(Status.WAITING, lack)
            return False
        if entry.arm.setup and not self._run_beside(entry, entry.arm.setup, "setup"):
            return False
        resumes = bool(entry.timeline.readings)
        if resumes:
            entry.before += entry.running_seconds
            entry.timeline.pieces.append([])
        command = entry.arm.fill(entry.arm.command, entry.seed)
        command = f"{command} {self.resume_flag}" if resumes else command
        self._free_at_start |= self._free_device_bytes([entry])
        entry.process = self._process(entry, command, self.metric)
        entry.process.pause()
        entry.timeline.pieces[-1] = entry.process.readings
        entry.running_seconds = entry.process.running_seconds
        entry.status, entry.reason, entry.is_open = Status.RACING, "", True
        entry.device_bytes = 0
        self._open.append(entry)
        self._started += 1
        return True

    def turn(self, entries: Sequence[Entry], seconds: float, is_over: Over) -> None:
        """Let entries of different slots run, each until it is over, or for some seconds.

        Raises:
            KeyboardInterrupt: interrupted; they are paused.
            UsageError: a line has several numbers to choose from.
        """
        running = {entry: entry.process for entry in entries if entry.process is not None}
        ends = {entry: entry.running_seconds + seconds for entry in running}
        starting = [each for each in running if each in self._free_at_start or _is_starting(each)]
        free = self._free_device_bytes(starting)
        free |= {
            each: self._free_at_start.pop(each) for each in free if each in self._free_at_start
        }
        self._ends.clear()
        for process in running.values():
            process.resume()
        try:
            while running and not self.interrupted():
                left = min(ends[entry] - entry.running_seconds for entry in running)
                self._ends.wait(min(max(left, 0.0), POLL_SECONDS))
                self._ends.clear()
                if self.suspended.is_set():
                    self._suspend([*running.values()])
                self.ticked()
                for entry, process in [*running.items()]:
                    is_alive = process.is_alive
                    entry.running_seconds = process.running_seconds
                    has_ended = not is_alive or self._must_leave(entry, process)
                    if has_ended or is_over(entry) or entry.running_seconds >= ends[entry]:
                        self._stop(entry, process, is_alive=is_alive)
                        del running[entry]
        finally:
            for entry, process in running.items():
                process.pause()
                entry.running_seconds = process.running_seconds
        if self.interrupted():
            raise KeyboardInterrupt
        for entry, now in self._free_device_bytes(starting).items():
            entry.device_bytes += max(free.get(entry, now) - now, 0)

    def _suspend(self, processes: Sequence[Process]) -> None:
        """Pause processes and stop this one; the time until it is continued does not count."""
        began = time.perf_counter()
        for process in processes:
            process.pause()
        self.suspended.clear()
        os.kill(os.getpid(), signal.SIGSTOP)
        for process in processes:
            process.resume()
        self.began += time.perf_counter() - began

    def measure(self, entry: Entry) -> None:
        """Measure the memory that a paused entry holds."""
        if entry.process is not None:
            entry.memory_bytes = entry.process.memory_bytes()

    def close(self, entries: Sequence[Entry]) -> None:
        """End the processes of entries: ask, wait a little, kill, clean up."""
        closing = [entry for entry in entries if entry.process is not None]
        for entry in closing:
            if entry.process is not None and entry.process.is_alive:
                entry.process.ask_to_end()
        deadline = time.monotonic() + GRACE_SECONDS
        for entry in closing:
            assert entry.process is not None
            entry.process.end(deadline)
            entry.bunched += entry.process.bunched
            entry.process, entry.is_open = None, False
            self._open.remove(entry)
        for entry in closing:
            if entry.arm.cleanup:
                self._run_beside(entry, entry.arm.cleanup, "cleanup")

    def _process(self, entry: Entry, command: str, metric: Metric) -> Process:
        slot = self.slots[entry.slot]
        device = {} if slot.device is None else {"CUDA_VISIBLE_DEVICES": slot.device}
        return Process(
            command,
            metric,
            self.folder / f"{entry.number}-{slug(entry.name)[:LONGEST_NAME]}.log",
            self._ends,
            environment=NO_PREALLOCATION
            | dict(os.environ)
            | device
            | entry.arm.variables(entry.seed),
            folder=entry.arm.fill(entry.arm.folder, entry.seed),
            cores=slot.cores,
        )

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
        if process.code == 0 and entry.timeline.readings:
            entry.close(Status.ENDED, "by itself")
        else:
            entry.close(Status.FAILED, f"{_end(process.code)}, {self._last_words(process)}")

    def _last_words(self, process: Process) -> str:
        lines = " | ".join(process.last_lines)
        return f"last lines: {lines}" if lines else "it printed nothing"

    def _free_device_bytes(self, entries: Sequence[Entry]) -> dict[Entry, int]:
        """Return what is free on the GPU of each entry, which nobody else uses during its turn."""
        free = free_device_bytes() if entries else {}
        return {entry: _free_on(self.slots[entry.slot], free) for entry in entries if free}

    def _lack_of_memory(self, slot: Slot) -> str:
        """Return why one more entry does not fit; empty where it does, or nothing is known."""
        one, wanted = _wanted({entry: entry.memory_bytes for entry in self._open})
        if wanted > available_memory():
            return f"no memory: paused arms hold theirs, and one needs {one / 2**30:.1f} GiB"
        alike = [entry for entry in self._open if self.slots[entry.slot] == slot]
        one, wanted = _wanted({entry: entry.device_bytes for entry in alike})
        free = free_device_bytes() if wanted else {}
        if free and wanted > _free_on(slot, free):
            return f"no GPU memory: paused arms hold theirs, one needs {one / 2**30:.1f} GiB"
        return ""

    def _run_beside(self, entry: Entry, text: str, what: str) -> bool:
        """Run a setup or a cleanup; return False where a setup failed, which is noted."""
        process = self._process(entry, entry.arm.fill(text, entry.seed), NO_METRIC)
        try:
            while process.is_alive:
                if what == "setup" and self.interrupted():
                    raise KeyboardInterrupt
                self._ends.wait(POLL_SECONDS)
                self._ends.clear()
        finally:
            process.end()
        if process.code != 0 and what == "setup":
            said = f"its setup {_end(process.code)}, {self._last_words(process)}"
            entry.close(Status.FAILED, said)
        return process.code == 0


def _wanted(held: dict[Entry, int]) -> tuple[float, float]:
    """Return the bytes that one more entry needs, and those with what others will still take that
    start.
    """
    one = MARGIN * max(held.values(), default=0)
    return one, one + sum(max(one - own, 0) for each, own in held.items() if _is_starting(each))


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


def free_device_bytes() -> dict[str, int]:
    """Return the free memory of each NVIDIA GPU by its entry in ``CUDA_VISIBLE_DEVICES``, in that
    order, or by its index where this is not set; none where there is none.
    """
    asked = "--query-gpu=index,uuid,memory.free", "--format=csv,noheader,nounits"
    rows = [line.split(", ") for line in (output_of("nvidia-smi", *asked) or "").splitlines()]
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", ",".join(row[0] for row in rows))
    try:
        return {
            entry: int(free) << 20
            for entry in visible.replace(" ", "").split(",")
            for index, uuid, free in rows
            # A UUID may be shortened.
            if entry == index or (entry and uuid.startswith(entry))
        }
    except ValueError:
        return {}


def _free_on(slot: Slot, free: Mapping[str, int]) -> int:
    """Return what is free on the GPU of a slot, the first one for all."""
    return free[slot.device or next(iter(free))]
