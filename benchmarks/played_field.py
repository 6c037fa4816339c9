"""A field of recorded curves for races without processes: its clock is counted, not waited for."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from ncfbench.racing.clock import Reading
from ncfbench.racing.entry import Entry, Status
from ncfbench.racing.field import Field

Points = Sequence[tuple[float, float]]


class PlayedField(Field):
    """Gives turns to curves, by the names of their arms; seeds share a curve.

    Args:
        room: for so many arms at a time.
    """

    seconds = 0.0

    def __init__(
        self, curves: Mapping[str, Points], startup: float = 0.0, room: float = math.inf
    ) -> None:
        self.curves, self.startup, self.room = curves, startup, room
        self.turns: list[tuple[str, float]] = []

    def start(self, entry: Entry) -> bool:
        if not self.room:
            entry.close(Status.WAITING, "no memory")
            return False
        self.room -= 1
        entry.status, entry.reason, entry.is_open = Status.RACING, "", True
        return True

    def turn(self, entry: Entry, seconds: float, is_over: Callable[[Entry], bool]) -> None:
        points, begun = self.curves[entry.arm.name], entry.running_seconds
        end = begun + seconds
        while not is_over(entry):
            step = len(entry.readings)
            if step == len(points):
                entry.close(Status.ENDED, "by itself")
                break
            at, value = points[step]
            if self.startup + at > end:
                entry.running_seconds = end
                break
            entry.running_seconds = max(self.startup + at, entry.running_seconds)
            entry.readings.append(Reading(entry.running_seconds, value, at))
        self.seconds += entry.running_seconds - begun
        self.turns.append((entry.name, entry.running_seconds - begun))

    def measure(self, entry: Entry) -> None:
        """Measure nothing."""

    def close(self, entries: Sequence[Entry]) -> None:
        for entry in entries:
            self.room += entry.is_open
            entry.is_open = False
