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


def ranked(rows: Iterable[Row], most_seconds: float = math.inf) -> list[Row]:
    """Return the floors that have recall of validation links, and not 1 by construction, the
    largest first.

    Of a floor with several settings one counts (:func:`one_of_each`).

    Args:
        most_seconds: that it may take to fit one again.
    """
    able = (
        row
        for row in rows
        if row["validation_recall_at_50"] and (row["validation_recall_at_50_chance"] or 0.0) < 1
    )
    quick = (row for row in able if seconds_again(row) <= most_seconds)
    return sorted(one_of_each(quick), key=recall, reverse=True)


def seconds_again(row: Row) -> float:
    """Return about how long it takes to fit a kept floor again and to rank by it."""
    parts = ("content_seconds", "fit_seconds", "ranking_seconds")
    return float(sum(row[part] for part in parts))


def named(rows: Iterable[Row], name: str) -> Row | None:
    """Return the floor of a name, if it is kept."""
    return next((row for row in one_of_each(rows) if row["floor"] == name), None)


def one_of_each(rows: Iterable[Mapping[str, Any]]) -> list[Any]:
    """Return one row of each floor: one whose penalty was chosen before one with a given penalty,
    then that of the largest recall of validation links.
    """

    def preference(row: Mapping[str, Any]) -> tuple[bool, float]:
        return row["chosen_by"] != "given", recall(row)

    return [*{row["floor"]: row for row in sorted(rows, key=preference)}.values()]


def recall(row: Mapping[str, Any]) -> float:
    """Return the recall of validation links in the row of a floor or of a blend."""
    return row["validation_recall_at_50"] or 0.0
