"""Marks on ratios of times: runs that were not interleaved, and runs on a busy machine."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from ncfbench.timing.speedups import BUSY_SPREAD

Row = Mapping[str, Any]
Mark = Callable[[Row], str]
"""Returns what stands behind a row's ratios of times."""


def is_busy(row: Row) -> bool:
    """Return whether a row's times vary within a run as those of a busy machine do."""
    return (row.get("full_iteration_spread") or 0.0) >= BUSY_SPREAD


class TimeMark(NamedTuple):
    """A sign on the ratios of some rows, and the note that explains it."""

    sign: str
    applies: Callable[[Row], bool]
    note: str


SEPARATE = TimeMark(
    "†",
    lambda row: not row["interleaved"],
    "times of separate runs, not interleaved with the baseline's; all others are of interleaved"
    " runs.",
)
BUSY = TimeMark(
    "‡",
    is_busy,
    f"the middle half of a run's own block times spans {100 * BUSY_SPREAD:.0f} % of their median"
    " or more: the machine was busy with something else, and the ratio is not to be quoted.",
)
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
    present = [each for each in (SEPARATE, BUSY) if any(map(each.applies, divided))]
    if divided and SEPARATE not in present:
        notes.append("Times are of interleaved runs.")
    elif divided and all(map(SEPARATE.applies, divided)):
        notes.append("Times are of separate runs, not interleaved.")
        present.remove(SEPARATE)  # it would stand in every row

    def mark(row: Row) -> str:
        signs = [each.sign for each in present if each.applies(row)]
        return f" {''.join(signs)}" if signs and row["status"] != "baseline" else ""

    return [*notes, *(f"{each.sign}: {each.note}" for each in present)], mark


def no_mark(row: Row) -> str:
    """Mark nothing: for ratios that no time decides."""
    return ""
