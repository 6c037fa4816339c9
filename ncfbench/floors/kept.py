"""The table of floors in the folder of a data set, or of results."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ncfbench.storage import tables
from ncfbench.storage.schemas import FLOOR

FILE = "floors.parquet"
Row = dict[str, Any]


def read(folder: Path, fingerprint: str) -> list[Row]:
    """Return the rows of :data:`ncfbench.storage.schemas.FLOOR` in a folder, of the data with this
    fingerprint.

    Raises:
        DataError: the table is damaged.
    """
    rows = tables.read_rows(folder / FILE, FLOOR) if (folder / FILE).exists() else []
    return [row for row in rows if row["data_fingerprint"] == fingerprint]


def best(
    rows: Iterable[Row], name: str | None = None, most_seconds: float = math.inf
) -> Row | None:
    """Return the floor with the most recall of validation links, or that of a name; None where no
    floor has any, or it is 1 by construction.

    Of a floor with several settings one counts (:func:`one_of_each`).

    Args:
        most_seconds: that it may take to fit it again.
    """
    able = (
        row
        for row in rows
        if row["validation_recall_at_50"] and (row["validation_recall_at_50_chance"] or 0.0) < 1
    )
    return named((row for row in able if seconds_again(row) <= most_seconds), name)


def seconds_again(row: Row) -> float:
    """Return about how long it takes to fit a kept floor again and to rank by it."""
    parts = ("content_seconds", "fit_seconds", "ranking_seconds")
    return float(sum(row[part] for part in parts))


def named(rows: Iterable[Row], name: str | None) -> Row | None:
    """Return the best floor of a name, or of all; see :func:`best`."""
    valid = (row for row in one_of_each(rows) if name in (None, row["floor"]))
    return max(valid, key=_recall, default=None)


def one_of_each(rows: Iterable[Mapping[str, Any]]) -> list[Any]:
    """Return one row of each floor: one whose penalty was chosen before one with a given penalty,
    then that of the largest recall of validation links.
    """

    def preference(row: Mapping[str, Any]) -> tuple[bool, float]:
        return row["chosen_by"] != "given", _recall(row)

    return [*{row["floor"]: row for row in sorted(rows, key=preference)}.values()]


def _recall(row: Mapping[str, Any]) -> float:
    return row["validation_recall_at_50"] or 0.0
