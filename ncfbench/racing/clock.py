"""The clock of an arm: from the lines of its process to seconds of training. Pure."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from ncfbench.statistics.curves import Curve

PACED = 20
"""Lines that tell start-up from training, so that it does not change later."""
WINDOW, MOST_SERIES = 60, 20
"""Last lines of an arm that are looked at for several series, and lines that may be of training
between two of validation.
"""
JUMPS = (1.5, 3.0)
"""Lines are of several series if values differ so many times as much from line to line as within a
series: of lines that repeat a step, and of lines that only take turns.
"""


class Reading(NamedTuple):
    """A line of an arm.

    Attributes:
        running: seconds that its process had been running, without pauses, when it was read.
    """

    running: float
    value: float
    step: float | None = None


@dataclass
class Timeline:
    """The lines of an arm with one seed.

    Attributes:
        readings: all of them; more come at any time.
        expected_startup: start-up of other arms, which counts until two lines show its own.
    """

    readings: list[Reading] = field(default_factory=list)
    expected_startup: float = 0.0
    _lowest: float = math.inf
    _read: int = 0
    _kept: tuple[object, Curve | None] = field(default=(None, None), compare=False)

    @property
    def startup_seconds(self) -> float:
        """Start-up and compilation."""
        return startup_of(self.readings[:], self.expected_startup)

    def points(self) -> list[tuple[float, float]]:
        """Return the clock and the value of each line."""
        lines = self.readings[:]
        start = startup_of(lines, self.expected_startup)
        return [(max(line.running - start, 0.0), line.value) for line in lines]

    def lowest(self, *, is_less_better: bool) -> float:
        """Return the lowest value of any line, which falls as a curve does; infinity without one.

        A call reads the lines since the one before.
        """
        sign = 1.0 if is_less_better else -1.0
        new = self.readings[self._read :]
        self._read += len(new)
        self._lowest = min([self._lowest, *(sign * line.value for line in new)])
        return self._lowest

    def curve(self, *, is_less_better: bool) -> Curve | None:
        """Return values that fall against the clock; None without a line.

        It is made anew when there are more lines, or another start-up is expected.
        """
        key = (len(self.readings), self.expected_startup, is_less_better)
        if self._kept[0] != key:
            points = self.points()
            seconds = itertools.accumulate((at for at, _ in points), max)
            values = [value if is_less_better else -value for _, value in points]
            self._kept = key, Curve([*seconds], values) if points else None
        return self._kept[1]


def startup_of(lines: Sequence[Reading], expected: float = 0.0) -> float:
    """Return the seconds before training began.

    The time to the first line, less that of the steps before it at the median pace of later lines;
    lines without a step count as evenly spaced.

    Args:
        expected: start-up where no line or one alone cannot tell.
    """
    if not lines:
        return expected
    lines, first = lines[:PACED], lines[0]
    steps = [line.step for line in lines]
    if any(step is None for step in steps):
        steps = [*range(1, len(lines) + 1)]
    known = [step for step in steps if step is not None]
    if known[0] <= 0:
        return first.running
    paces = [
        (after.running - before.running) / (end - begin)
        for (before, begin), (after, end) in itertools.pairwise(zip(lines, known, strict=True))
        if end > begin
    ]
    if not paces:
        return min(expected, first.running)
    return min(max(first.running - known[0] * statistics.median(paces), 0.0), first.running)


def doubt(lines: Sequence[Reading]) -> str:
    """Return why lines seem to be of several series; empty where they are one.

    Training and validation, or several processes, may print the same number.
    """
    lines = lines[-WINDOW:]
    values, steps = [line.value for line in lines], [line.step for line in lines]
    within = [index for _, run in itertools.groupby(steps) for index, _ in enumerate(run)]
    if None not in steps and _jump(values, within, JUMPS[0]):
        return "a step has several values"
    for period in range(2, min(len(values) // 3, MOST_SERIES) + 1):
        if _jump(values, [index % period for index in range(len(values))], JUMPS[1]):
            return "values jump to and fro"
    return ""


def _jump(values: Sequence[float], names: Sequence[int], times: float) -> bool:
    """Return whether values differ more from line to line than within each series."""
    series = [
        [value for other, value in zip(names, values, strict=True) if other == name]
        for name in {*names}
    ]
    if len(series) < 2 or min(map(len, series)) < 3:
        return False
    inside = np.concatenate([np.abs(np.diff(one)) for one in series])
    return bool(np.abs(np.diff(values)).mean() > times * inside.mean())
