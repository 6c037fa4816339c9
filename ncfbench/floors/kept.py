"""The table of floors in the folder of a data set, or of results."""

from __future__ import annotations

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
