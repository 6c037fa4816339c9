"""Marks beside ratios of times: of runs that did not take turns with their baseline, and of a busy
machine.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ncfbench.timing.statistics import BUSY_SPREAD

Row = Mapping[str, Any]

SEPARATE = "†"
"""Times of separate runs, in a table where others are of interleaved ones."""
BUSY = "‡"
"""Times that vary within a run as those of a machine that does something else beside it."""

SIMULATED_NOTE = (
    "Devices are SIMULATED by CPUs: losses, iterations and recall are those of real devices; times"
    " and their ratios are not, and say nothing of speed."
)


def marks(rows: Sequence[Row]) -> tuple[list[str], Callable[[Row], str]]:
    """Notes on the times of a speedup table, and what stands behind a row's ratios of times."""
    divided = [
        row
        for row in rows
        if row.get("per_iteration_speedup") is not None and row["status"] != "baseline"
    ]
    simulated = [SIMULATED_NOTE] if any(row.get("simulated") for row in rows) else []
    if not divided:
        return simulated, lambda row: ""
    notes, told = simulated, {SEPARATE: False, BUSY: any(map(_is_busy, divided))}
    if all(map(_took_turns, divided)):
        notes.append("Times are of interleaved runs.")
    elif not any(map(_took_turns, divided)):
        notes.append("Times are of separate runs, not interleaved.")
    else:
        told[SEPARATE] = True
        notes.append(
            f"{SEPARATE}: times of separate runs, not interleaved with the baseline's; all others"
            " are of interleaved runs."
        )
    if told[BUSY]:
        notes.append(
            f"{BUSY}: the middle half of a run's own block times spans {100 * BUSY_SPREAD:.0f} % of"
            " their median or more: the machine was busy with something else, and the ratio is not"
            " to be quoted."
        )

    def mark(row: Row) -> str:
        if row["status"] == "baseline":
            return ""
        found = [SEPARATE] * (told[SEPARATE] and not _took_turns(row)) + [BUSY] * _is_busy(row)
        return f" {''.join(found)}" if found else ""

    return notes, mark


def _took_turns(row: Row) -> bool:
    return bool(row["interleaved"])


def _is_busy(row: Row) -> bool:
    return (row.get("full_iteration_spread") or 0.0) >= BUSY_SPREAD
