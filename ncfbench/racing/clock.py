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
        split, source: as those of a line (:class:`~ncfbench.racing.metric.Line`).
    """

    running: float
    value: float
    step: float | None = None
    seconds: float | None = None
    paused: float = 0.0
    split: str = ""
    source: str = ""


BEGIN = Reading(0.0, math.nan, 0.0, 0.0)
"""Stands for the line before an arm's first one."""


@dataclass
class Timeline:
    """The lines of an arm with one seed.

    Attributes:
        pieces: the lines of each process; a resumed arm has several.
        expected_startup: start-up of other arms, which counts until two lines show its own.
        split: the data whose lines count, beside those that name none; empty for all.
    """

    pieces: list[list[Reading]] = field(default_factory=lambda: [[]])
    expected_startup: float = 0.0
    split: str = ""
    _lowest: float = math.inf
    _read_of: str = ""
    _read: dict[int, int] = field(default_factory=dict)
    _kept: tuple[object, Curve | None] = field(default=(None, None), compare=False)

    @property
    def readings(self) -> list[Reading]:
        """All lines."""
        return [*itertools.chain(*self.pieces)]

    @property
    def counted(self) -> list[list[Reading]]:
        """The lines of each process that count, as they are now: more come at any time."""
        return [self._of_split(piece[:]) for piece in self.pieces]

    def _of_split(self, lines: list[Reading]) -> list[Reading]:
        kept = ("", self.split)
        return [each for each in lines if each.split in kept] if self.split else lines

    @property
    def startup_seconds(self) -> float:
        """Start-up and compilation of the first process."""
        return self.startups[0]

    @property
    def startups(self) -> list[float]:
        """Start-up and compilation of each process."""
        found: list[float] = []
        lines: list[Reading] = []
        for piece in self.counted:
            last = next((line for line in reversed(lines) if _stays(line, piece)), BEGIN)
            found.append(startup_of(piece, last, self.expected_startup))
            lines += piece
        return found

    def points(self, *, count_startup: bool = False) -> list[tuple[float, float]]:
        """Return the clock and the value of each line, without those that a resumed process made
        anew.
        """
        found: list[tuple[float, Reading]] = []
        for piece in filter(None, self.counted):
            found = [(at, line) for at, line in found if _stays(line, piece)]
            base, last = found[-1] if found else (0.0, BEGIN)
            start = startup_of(piece, last, self.expected_startup)
            if count_startup and not found:
                base = start
            trained = own_seconds(piece, last)
            if trained is None:
                trained = [max(each.running - start, 0.0) for each in piece]
            found += [(base + at, line) for at, line in zip(trained, piece, strict=True)]
        return [(at, line.value) for at, line in found]

    def lowest(self, *, is_less_better: bool) -> float:
        """Return the lowest value of any line, which falls as a curve does; infinity without one.

        A call reads the lines since the one before.
        """
        sign = 1.0 if is_less_better else -1.0
        if self._read_of != self.split:
            self._read, self._lowest, self._read_of = {}, math.inf, self.split
        for number, piece in enumerate(self.pieces):
            new = piece[self._read.get(number, 0) :]
            self._read[number] = self._read.get(number, 0) + len(new)
            self._lowest = min([self._lowest, *(sign * each.value for each in self._of_split(new))])
        return self._lowest

    def curve(self, *, is_less_better: bool, count_startup: bool = False) -> Curve | None:
        """Return values that fall against the clock; None without a line.

        It is made anew when there are more lines, or another start-up is expected.
        """
        made_of = (*map(len, self.pieces), self.expected_startup, self.split)
        key = (*made_of, is_less_better, count_startup)
        if self._kept[0] != key:
            points = self.points(count_startup=count_startup)
            seconds = itertools.accumulate((at for at, _ in points), max)
            values = [value if is_less_better else -value for _, value in points]
            self._kept = key, Curve([*seconds], values) if points else None
        return self._kept[1]


def _stays(line: Reading, piece: Sequence[Reading]) -> bool:
    """Return whether a line of an earlier process is before all that a later one makes."""
    first = piece[0].step if piece else None
    return first is None or line.step is None or line.step < first


def startup_of(piece: Sequence[Reading], last: Reading = BEGIN, expected: float = 0.0) -> float:
    """Return the seconds before training began in a process.

    By the program's own clock where it prints one. Else the time to the first line, less that of
    the steps before it at the median pace of later lines; lines without a step count as evenly
    spaced.

    Args:
        last: line after which it began, of an earlier process.
        expected: start-up where no line or one alone cannot tell.
    """
    if not piece:
        return expected
    piece, first = piece[:PACED], piece[0]
    own = own_seconds(piece, last)
    if own is not None:
        return max(first.running - own[0], 0.0)
    steps, from_step = [each.step for each in piece], last.step or 0.0
    if any(step is None for step in steps):
        steps, from_step = [*range(1, len(piece) + 1)], 0.0
    known = [step for step in steps if step is not None]
    done = known[0] - from_step
    if done <= 0:
        return first.running
    paces = [
        (after.running - before.running) / (end - begin)
        for (before, begin), (after, end) in itertools.pairwise(zip(piece, known, strict=True))
        if end > begin
    ]
    if not paces:
        return min(expected, first.running)
    return min(max(first.running - done * statistics.median(paces), 0.0), first.running)


def own_seconds(piece: Sequence[Reading], last: Reading = BEGIN) -> list[float] | None:
    """Return what a process added to the program's own clock by each line, without pauses; None
    where a line lacks it.

    A pause within its clock is in its seconds: more of them than it was running betray it.
    """
    found: list[float] = []
    is_kept = last is not BEGIN and _is_kept(piece[0], last)
    before = BEGIN._replace(seconds=last.seconds) if is_kept else BEGIN
    for each in piece:
        if each.seconds is None or before.seconds is None:
            return None
        passed, ran = each.seconds - before.seconds, each.running - before.running
        if passed > ran:
            passed -= each.paused - before.paused
            if found or not is_kept:  # a process may have trained on after its last line
                passed = min(passed, ran)
        found.append((found[-1] if found else 0.0) + max(passed, 0.0))
        before = each
    return found


def _is_kept(first: Reading, last: Reading) -> bool:
    """Return whether the clock of a resumed process goes on from a checkpoint, and did not begin at
    0: if its first line has more seconds than it had been running, or seconds that fit the pace
    before from the first step on rather than from the last one.
    """
    own = (first.seconds or 0.0) - first.paused
    if own > first.running:
        return True
    if not (first.step and last.step and last.seconds):
        return False
    pace = last.seconds / last.step
    kept, anew = first.step * pace, max(first.step - last.step, 0.0) * pace
    return abs(own - kept) < abs(own - anew)
