"""Whether the tables and summaries that a folder keeps are those of its runs today.

Everything is computed again from the raw samples and curves, by what made it. What another program
says of the same records is in ``tests/independent``.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterator, Mapping
from typing import Any

from ncfbench.errors import NothingToReportError
from ncfbench.reporting.results import Results
from ncfbench.runs.folder import read_all
from ncfbench.runs.reported import measured_columns
from ncfbench.storage import schemas, tables

Row = Mapping[str, Any]
KEY = ("dataset", "encoder", "loss", "sampler", "variant", "settings", "data_fingerprint")
"""Columns that name a row of the speedup and the recall table."""


def verify(results: Results) -> tuple[int, list[Row]]:
    """Compare the kept tables of a folder with its results, and its summaries with the raw records;
    return the number of values compared, and a row for each that differs, with its table, cell and
    column; that is ``row`` where one side has none.

    Raises:
        NothingToReportError: there are no tables.
        DataError: one cannot be read.
    """
    pairs: list[tuple[str, str, Row | None, Row | None]] = []
    for name, schema in (("speedup", schemas.SPEEDUP), ("recall", schemas.RECALL)):
        path = results.runs_dir / f"{name}.parquet"
        if not path.exists():
            command = shlex.join(["ncfbench", "report", str(results.runs_dir)])
            raise NothingToReportError(f"No {path}. Make the tables with: {command}")
        kept, fresh = _by_key(tables.read_rows(path, schema)), _by_key(getattr(results, name))
        for key in dict.fromkeys([*kept, *fresh]):
            own = fresh.get(key)
            columns = own and {column: own.get(column) for column in schema.names}
            pairs.append((name, "/".join(filter(None, key[:-2])), kept.get(key), columns))
    for record in read_all(results.runs_dir)[0]:
        if record.summary["status"] in ("finished", "diverged"):
            key, patience = record.summary["environment_key"], record.config.patience
            columns = measured_columns(record.curve, record.timing, key, patience)
            pairs.append(("summary", record.name, record.summary, columns))
    wrong = [mismatch for pair in pairs for mismatch in _mismatches(*pair)]
    return sum(len(pair[3] or ()) for pair in pairs), wrong


def _by_key(rows: list[dict[str, Any]]) -> dict[tuple[Any, ...], Row]:
    """Return rows by what names them; a row that is there twice has a number behind its name."""
    found: dict[tuple[Any, ...], Row] = {}
    for row in rows:
        key = tuple(row[name] for name in KEY)
        copies = sum(key == other[:-1] for other in found)
        found[*key, copies] = row
    return found


def _mismatches(table: str, cell: str, kept: Row | None, fresh: Row | None) -> Iterator[Row]:
    if kept is None or fresh is None:
        kept, fresh = ({"row": "no row" if side is None else "a row"} for side in (kept, fresh))
    for column, value in fresh.items():
        if not _is_equal(kept.get(column), value):
            sides = {"kept": kept.get(column), "recomputed": value}
            yield {"table": table, "cell": cell, "column": column, **sides}


def _is_equal(kept: Any, value: Any) -> bool:
    if isinstance(kept, int | float) and isinstance(value, int | float):
        return math.isclose(kept, value, rel_tol=1e-9, abs_tol=1e-12)
    return bool(kept == value)
