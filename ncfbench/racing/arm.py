"""The arms of a race of commands, each a process that runs in its turns and is paused between them,
and the field that they share.
"""

from __future__ import annotations

import math
import os
import signal
import threading
import time
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from ncfbench.racing.clock import Reading, Timeline
from ncfbench.racing.commands import Command
from ncfbench.racing.engine import Arm, Clock, Over, Status, end_all
from ncfbench.racing.metric import HINT, Metric
from ncfbench.racing.process import GRACE_SECONDS, Process
from ncfbench.racing.rule import Standing
from ncfbench.reporting.table import slug
from ncfbench.statistics.curves import Curve
from ncfbench.storage.free_space import available_memory

POLL_SECONDS = 0.05
"""Between two looks at Ctrl-C and at the lines that have come."""
MARGIN = 1.2
"""Memory that must be free for one more arm, over that of the largest so far."""
LONGEST_NAME = 50
"""Characters of an arm's name in that of its file."""


@dataclass
class Field:
    """What the arms of a race share. A context manager, after which no process is left.

    Attributes:
        folder: for the output of each arm.
        silence_seconds: an arm leaves that has printed no metric while running this long.
        interrupted: when it is true, a turn raises KeyboardInterrupt.
        ticked: called a few times a second while an arm runs.
        suspended: when it is set, as by Ctrl-Z, the arm that runs is paused, and this process stops
            until it is continued.
        arms: those that have a process.
    """

    metric: Metric
    folder: Path
    clock: Clock
    silence_seconds: float = math.inf
    interrupted: Callable[[], bool] = lambda: False
    ticked: Callable[[], None] = lambda: None
    suspended: threading.Event = field(default_factory=threading.Event)
    ends: threading.Event = field(default_factory=threading.Event)
    arms: list[CommandArm] = field(default_factory=list)

    def __enter__(self) -> Field:
        return self

    def __exit__(self, *_: object) -> None:
        end_all([*self.arms])

    def suspend(self, process: Process) -> None:
        """Pause a process and stop this one; the time until it is continued does not count."""
        began = time.perf_counter()
        process.pause()
        self.suspended.clear()
        os.kill(os.getpid(), signal.SIGSTOP)
        process.resume()
        self.clock.began += time.perf_counter() - began

    def lack_of_memory(self) -> str:
        """Return why one more arm does not fit; empty where it does, or nothing is known."""
        one = MARGIN * max((arm.memory_bytes for arm in self.arms), default=0)
        starting = [arm for arm in self.arms if all(line.step == 0 for line in arm.readings)]
        if one + sum(max(one - arm.memory_bytes, 0) for arm in starting) > available_memory():
            return f"no memory: paused arms hold theirs, and one needs {one / 2**30:.1f} GiB"
        return ""


class CommandArm(Arm):
    """A command with one seed.

    Attributes:
        number: of the command, in the order of the command line.
        running_seconds: without pauses.
        memory_bytes: that it holds; 0 while unknown.
        is_open: True from its start to its end.
    """

    def __init__(self, command: Command, field: Field, number: int = 0, seed: int = 0) -> None:
        super().__init__(f"{command.name} (seed {seed})" if seed else command.name, seed)
        self.command, self.field, self.number = command, field, number
        self.timeline = Timeline()
        self.running_seconds, self.memory_bytes, self.is_open = 0.0, 0, False
        self.process: Process | None = None
        self._deadline = 0.0

    @property
    def readings(self) -> list[Reading]:
        """Its lines with a metric."""
        return self.timeline.readings

    @property
    def curve(self) -> Curve | None:
        """Its values so far, which fall; None without a line."""
        return self.timeline.curve(is_less_better=self.field.metric.is_less_better)

    @property
    def lowest(self) -> float:
        """The lowest value of its curve, which is not made for that; infinity without a line."""
        return self.timeline.lowest(is_less_better=self.field.metric.is_less_better)

    @property
    def lines(self) -> int:
        """Number of its lines after training began: one at step 0 tells nothing."""
        curve = self.curve
        return 0 if curve is None else len(curve.seconds) - bisect_right(curve.seconds, 0.0)

    @property
    def seconds(self) -> float:
        """Seconds that it has been running, without its start-up as far as it is known."""
        return max(self.running_seconds - self.timeline.startup_seconds, 0.0)

    @property
    def standing(self) -> Standing | None:
        """Its curve, with the learning rate that its command names; None without a line."""
        if (curve := self.curve) is None or not self.lines:
            return None
        return Standing(curve, "", learning_rate=self.command.learning_rate)

    @property
    def is_running(self) -> bool:
        """True if its process has its turn."""
        return self.process is not None and not self.process.is_paused

    @property
    def can_train(self) -> bool:
        """True if it waits for a turn."""
        return self.is_open and self.status is Status.RACING

    @property
    def last_words(self) -> str:
        """The last lines of its output without a metric."""
        lines = " | ".join(self.process.last_lines) if self.process else ""
        return f"last lines: {lines}" if lines else "it printed nothing"

    def start(self) -> bool:
        """Start its process, which is paused until its turn; return False where memory lacks."""
        if lack := self.field.lack_of_memory():
            self.reason = lack
            return False
        log = self.field.folder / f"{self.number}-{slug(self.name)[:LONGEST_NAME]}.log"
        command = self.command.filled(self.seed)
        self.process = Process(command, self.field.metric, log, self.field.ends)
        self.process.pause()
        self.timeline.readings = self.process.readings
        self.running_seconds = self.process.running_seconds
        self.status, self.reason, self.is_open = Status.RACING, "", True
        self.field.arms.append(self)
        return True

    def advance(self, seconds: float, is_over: Over) -> None:
        """Let its process run for some seconds, or until it is over.

        Raises:
            KeyboardInterrupt: interrupted; it is paused.
            UsageError: a line has several numbers to choose from.
        """
        process, field, is_alive = self.process, self.field, True
        assert process is not None
        end = self.running_seconds + seconds
        field.ends.clear()
        process.resume()
        try:
            while not field.interrupted():
                field.ends.wait(min(max(end - self.running_seconds, 0.0), POLL_SECONDS))
                field.ends.clear()
                if field.suspended.is_set():
                    field.suspend(process)
                field.ticked()
                is_alive = process.is_alive
                self.running_seconds = process.running_seconds
                has_left = not is_alive or self._has_left(process)
                if has_left or is_over(self) or self.running_seconds >= end:
                    break
        finally:
            process.pause()
            self.running_seconds = process.running_seconds
        if not is_alive and not self._has_left(process):
            self.status, self.reason = Status.ENDED, "by itself"
            if process.code != 0 or not self.readings:
                self.status = Status.FAILED
                hint = f". {HINT}" if process.code == 0 else ""
                self.reason = f"{_end(process.code)}, {self.last_words}{hint}"
        if field.interrupted():
            raise KeyboardInterrupt

    def _has_left(self, process: Process) -> bool:
        """Return whether it diverged or is silent, and note that."""
        if process.error is not None:
            raise process.error
        if process.diverged is not None:
            self.status = Status.DIVERGED
            self.reason = f"its metric became {process.diverged}"
        silent = self.running_seconds - (self.readings[-1].running if self.readings else 0.0)
        if silent > self.field.silence_seconds:
            said = f"{self.last_words}. {HINT}"
            said = "since its last one" if self.readings else said
            self.status = Status.FAILED
            self.reason = f"no metric in {silent:.0f} s of running, {said}"
        return self.status is not Status.RACING

    def measure(self) -> None:
        """Measure the memory that it holds."""
        if self.process is not None:
            self.memory_bytes = self.process.memory_bytes()

    def ask_to_end(self) -> None:
        """Ask its processes to end, so that they can save."""
        self._deadline = time.monotonic() + GRACE_SECONDS
        if self.process is not None and self.process.is_alive:
            self.process.ask_to_end()

    def end(self) -> None:
        """End its processes: wait a little, and kill what is left."""
        process = self.process
        if process is not None:
            process.end(self._deadline)
            self.process, self.is_open = None, False
            self.field.arms.remove(self)


def _end(code: int | None) -> str:
    """Return how a process ended."""
    if code is None or code == -signal.SIGKILL:
        return "was killed, perhaps for want of memory"
    if code < 0:
        names = {int(number): number.name for number in signal.Signals}  # real-time ones have none
        return f"was ended by {names.get(-code, f'signal {-code}')}"
    return "ended and printed no metric" if code == 0 else f"ended with exit code {code}"
