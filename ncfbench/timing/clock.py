"""The clock of a run: a stopwatch, the raw samples that it gives, and durations in words."""

from __future__ import annotations

import time
from dataclasses import dataclass


@dataclass(frozen=True)
class Sample:
    """One raw sample; a row of ``timing.parquet`` (:data:`ncfbench.storage.schemas.TIMING`)."""

    kind: str
    first_iteration: int
    iterations: int
    seconds: float
    sampling_seconds: float | None = None
    transfer_seconds: float | None = None
    waiting_seconds: float | None = None
    item_slots: float | None = None


def format_duration(seconds: float) -> str:
    """Return ``42 s``, ``12 min`` or ``3.5 h``."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


class Stopwatch:
    """Seconds of some intervals; each ends before the next begins."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._begin = 0

    def start(self) -> None:
        """Begin an interval."""
        self._begin = time.perf_counter_ns()

    def stop(self) -> None:
        """End the interval, and add its seconds."""
        self.seconds += (time.perf_counter_ns() - self._begin) * 1e-9
