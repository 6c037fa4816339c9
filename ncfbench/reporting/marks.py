"""Marks on ratios of times: runs that were not interleaved, and runs on a busy machine."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ncfbench.timing.statistics import BUSY_SPREAD

Row = Mapping[str, Any]
Mark = Callable[[Row], str]
"""Returns what stands behind a row's ratios of times."""

SEPARATE = "†"
"""Marks separate runs in a table where others are interleaved."""
BUSY = "‡"
"""Marks times that vary within a run as much as those of a busy machine."""

SIMULATED_NOTE = (
    "Devices are SIMULATED by CPUs: losses, iterations and recall are those of real devices; times"
    " and their ratios are not, and say nothing of speed."
)


def marks(rows: Sequence[Row]) -> tuple[list[str], Mark]:
    """Return notes on the times of a speedup table, and the function that marks its rows."""
    divided = [
        row
        for row in rows
        if row.get("per_iteration_speedup") is not None and row["status"] != "baseline"
    ]
    notes = [SIMULATED_NOTE] if any(row.get("simulated") for row in rows) else []
    if not divided:
        return notes, no_mark
    marks_separate, marks_busy = False, any(map(is_busy, divided))
    if all(map(_is_interleaved, divided)):
        notes.append("Times are of interleaved runs.")
    elif not any(map(_is_interleaved, divided)):
        notes.append("Times are of separate runs, not interleaved.")
    else:
        marks_separate = True
        notes.append(
            f"{SEPARATE}: times of separate runs, not interleaved with the baseline's; all others"
            " are of interleaved runs."
        )
    if marks_busy:
        notes.append(
            f"{BUSY}: the middle half of a run's own block times spans {100 * BUSY_SPREAD:.0f} % of"
            " their median or more: the machine was busy with something else, and the ratio is not"
            " to be quoted."
        )

    def mark(row: Row) -> str:
        if row["status"] == "baseline":
            return ""
        found = SEPARATE * (marks_separate and not _is_interleaved(row)) + BUSY * is_busy(row)
        return f" {found}" if found else ""

    return notes, mark


def no_mark(row: Row) -> str:
    """Mark nothing: for ratios that no time decides."""
    return ""


def _is_interleaved(row: Row) -> bool:
    return bool(row["interleaved"])


def is_busy(row: Row) -> bool:
    """Return whether a row's times vary within a run as those of a busy machine do."""
    return (row.get("full_iteration_spread") or 0.0) >= BUSY_SPREAD
