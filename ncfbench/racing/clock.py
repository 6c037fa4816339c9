"""The clock of an arm: from the lines of its processes to seconds of training. Pure."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ncfbench.racing.rule import Curve

PACED = 20
"""Lines that tell start-up from training, so that it does not change later."""


class Reading(NamedTuple):
    """A line of an arm.

    Attributes:
        running: seconds that its process had been running, without pauses, when it was read.
        paused: seconds that it had been paused by then.
        seconds: by the program's own clock.
    """

    running: float
    value: float
    step: float | None = None
    seconds: float | None = None
    paused: float = 0.0


@dataclass
class Timeline:
    """The lines of an arm with one seed.

    Attributes:
        pieces: the lines of each process; a resumed arm has several.
        expected_startup: start-up of other arms, which counts until two lines show its own.
    """

    pieces: list[list[Reading]] = field(default_factory=lambda: [[]])
    expected_startup: float = 0.0
    _lowest: float = math.inf
    _read: dict[int, int] = field(default_factory=dict)
    _kept: tuple[object, Curve | None] = field(default=(None, None), compare=False)

    @property
    def readings(self) -> list[Reading]:
        """All lines."""
        return [*itertools.chain(*self.pieces)]

    @property
    def startup_seconds(self) -> float:
        """Start-up and compilation of the first process."""
        expected = self.expected_startup
        return startup_of(self.pieces[0], expected=expected) if self.pieces[0] else expected

    def points(self, *, count_startup: bool = False) -> list[tuple[float, float]]:
        """Return the clock and the value of each line, without those that a resumed process made
        anew.
        """
        found: list[tuple[float, float, float | None]] = []
        for piece in filter(None, self.pieces):
            first = piece[0]
            if first.step is not None:
                found = [each for each in found if each[2] is None or each[2] < first.step]
            base, _, step = found[-1] if found else (0.0, 0.0, None)
            start = startup_of(piece, step or 0.0, self.expected_startup)
            start = start if found or not count_startup else 0.0
            own = own_seconds(piece)
            if own is not None:
                at_first = startup_of(piece) if count_startup and not found else 0.0
                goes_on = own[0] >= base
                clocks = [at_first + (0.0 if goes_on else base) + seconds for seconds in own]
            else:
                clocks = [base + max(each.running - start, 0.0) for each in piece]
            found += [(at, each.value, each.step) for at, each in zip(clocks, piece, strict=True)]
        return [(at, value) for at, value, _ in found]

    def lowest(self, *, is_less_better: bool) -> float:
        """Return the lowest value of any line, which falls as a curve does; infinity without one.

        A call reads the lines since the one before.
        """
        sign = 1.0 if is_less_better else -1.0
        for number, piece in enumerate(self.pieces):
            new = piece[self._read.get(number, 0) :]
            self._read[number] = self._read.get(number, 0) + len(new)
            self._lowest = min([self._lowest, *(sign * each.value for each in new)])
        return self._lowest

    def curve(self, *, is_less_better: bool, count_startup: bool = False) -> Curve | None:
        """Return values that fall against the clock; None without a line.

        It is made anew when there are more lines, or another start-up is expected.
        """
        key = (*map(len, self.pieces), self.expected_startup, is_less_better, count_startup)
        if self._kept[0] != key:
            points = self.points(count_startup=count_startup)
            seconds = itertools.accumulate((at for at, _ in points), max)
            values = [value if is_less_better else -value for _, value in points]
            self._kept = key, Curve([*seconds], values) if points else None
        return self._kept[1]


def startup_of(piece: Sequence[Reading], from_step: float = 0.0, expected: float = 0.0) -> float:
    """Return the seconds before training began in a process.

    By the program's own clock where it prints one. Else the time to the first line, less that of
    the steps before it at the median pace of later lines; lines without a step count as evenly
    spaced.

    Args:
        from_step: at which the process began.
        expected: start-up where one line alone cannot tell.
    """
    piece, first = piece[:PACED], piece[0]
    own = own_seconds(piece)
    if own is not None:
        return max(first.running - own[0], 0.0)
    steps = [each.step for each in piece]
    if any(step is None for step in steps):
        steps, from_step = [*range(1, len(piece) + 1)], 0.0
    known = [step for step in steps if step is not None]
    done = known[0] - from_step
    if done <= 0:
        return first.running
    paces = [
        (after.running - before.running) / (last - step)
        for (before, step), (after, last) in itertools.pairwise(zip(piece, known, strict=True))
        if last > step
    ]
    if not paces:
        return min(expected, first.running)
    return min(max(first.running - done * statistics.median(paces), 0.0), first.running)


def own_seconds(piece: Sequence[Reading]) -> list[float] | None:
    """Return the program's own clock at each line, without pauses; None where a line lacks it.

    A pause within its clock is in its seconds: more of them than it was running betray it.
    """
    found: list[float] = []
    before = Reading(0.0, math.nan, seconds=0.0)
    for each in piece:
        if each.seconds is None or before.seconds is None:
            return None
        passed, ran = each.seconds - before.seconds, each.running - before.running
        if passed > ran:
            passed = min(max(passed - (each.paused - before.paused), 0.0), ran)
        found.append((found[-1] if found else 0.0) + max(passed, 0.0))
        before = each
    return found
