"""Verification of ``speedup.parquet`` and ``recall.parquet`` by a second computation.

It calls nothing that made the tables. :mod:`ncfbench.reporting.verify.expected` derives the rows
and the runs in each, :mod:`ncfbench.reporting.verify.recomputed` their numbers. Each table is
checked by itself, and nothing is taken from the row that is checked. The source is each run's
settings, status, environment, raw samples and curve; its summary is checked against them too. The
columns of free text, ``command`` and ``reason``, are not checked.
"""

from __future__ import annotations

import math
import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ncfbench.errors import NothingToReportError
from ncfbench.reporting.verify import expected
from ncfbench.reporting.verify.expected import Cell, Key
from ncfbench.reporting.verify.recomputed import (
    ExpectedRow,
    RunFigures,
    Value,
    figures_of,
    recall_row,
    speedup_row,
    summary_numbers,
)
from ncfbench.runs import folder as runs
from ncfbench.storage import schemas, tables

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Mismatch:
    """A value that differs, or a row or run that is wrong; ``column`` is empty for a whole row."""

    table: str
    cell: str
    column: str = ""
    written: Value = None
    recomputed: Value = None
    note: str = ""


@dataclass(frozen=True)
class Verification:
    """Number of values compared, and what differs."""

    numbers: int
    """Recomputed values of the tables' rows and of the runs' summaries."""
    mismatches: Sequence[Mismatch]
    problems: Sequence[str]
    """Messages about unreadable runs. A table that names such a run has a mismatch too."""


def verify(runs_dir: Path) -> Verification:
    """Recompute the tables that ``report`` left in a folder.

    Raises:
        NothingToReportError: there are none.
        DataError: one cannot be read.
    """
    paths = {name: runs_dir / f"{name}.parquet" for name in ("speedup", "recall")}
    for path in paths.values():
        if not path.exists():
            raise NothingToReportError(
                f"No {path}. Make the tables with:"
                f" {shlex.join(['ncfbench', 'report', '--runs-dir', str(runs_dir)])}"
            )
    written = {
        "speedup": tables.read_rows(paths["speedup"], schemas.SPEEDUP),
        "recall": tables.read_rows(paths["recall"], schemas.RECALL),
    }
    records, problems = runs.read_all(runs_dir)
    cells = expected.cells(records)
    again = {record.name: figures_of(record) for record in records}
    compared = 0
    mismatches: list[Mismatch] = []
    for record in records:
        if record.summary["status"] in ("finished", "diverged"):
            numbers = dict(summary_numbers(again[record.name]))
            compared += len(numbers)
            mismatches += _differences("summary", record.name, record.summary, numbers)
    divides = _divides_mixed(written["speedup"], cells)
    for table, rows in written.items():
        keys = [Key.of(row) for row in rows]
        mismatches += _out_of_place(table, keys, cells)
        for key, row in zip(keys, rows, strict=True):
            if key not in cells:
                continue
            own = (
                speedup_row(cells[key], again, divides)
                if table == "speedup"
                else recall_row(cells[key], again)
            )
            others = list(_wrong_runs(table, str(key), row, own, again))
            mismatches += others
            # Numbers of other runs would repeat the same mismatch.
            checked = {
                name: one
                for name, one in own.values.items()
                if not others or isinstance(one[0], str | bool)
            }
            compared += len(checked)
            mismatches += _differences(table, str(key), row, checked)
    return Verification(compared, mismatches, problems)


def _out_of_place(table: str, keys: Sequence[Key], cells: Mapping[Key, Cell]) -> Iterator[Mismatch]:
    """Yield rows that are there twice, that no run makes, or that are missing."""
    for key, times in Counter(keys).items():
        if times > 1:
            yield Mismatch(table, str(key), note=f"the row is there {times} times")
        if key not in cells:
            yield Mismatch(table, str(key), note="no run makes this row")
    for key in cells:
        if key not in keys:
            note = "the row is not there: run `ncfbench report` again"
            yield Mismatch(table, str(key), note=note)


def _wrong_runs(
    table: str, cell: str, row: Row, own: ExpectedRow, again: Mapping[str, RunFigures]
) -> Iterator[Mismatch]:
    """Yield runs that a row lists and that do not belong there, and the reverse."""
    wanted = {"runs": own.runs}
    if table == "speedup":
        wanted["baseline_runs"] = own.baseline_runs
    for column, names in wanted.items():
        listed = Counter(row[column] or ())
        notes = []
        for name, times in listed.items():
            if name not in again:
                notes.append(f"run {name} is not there")
            elif name not in names:
                notes.append(f"run {name} does not belong in {column}")
            elif times > 1:
                notes.append(f"run {name} is there {times} times in {column}")
        notes += [
            f"run {name} is not in {column}: run `ncfbench report` again"
            for name in names
            if name not in listed
        ]
        for note in notes:
            yield Mismatch(table, cell, column, note=note)


def _differences(
    table: str, cell: str, row: Row, values: Mapping[str, tuple[Value, float]]
) -> Iterator[Mismatch]:
    for column, (own, tolerance) in values.items():
        if not _equal(row[column], own, tolerance):
            yield Mismatch(table, cell, column, row[column], own)


def _divides_mixed(rows: Sequence[Row], cells: Mapping[Key, Cell]) -> bool:
    """Return whether the table was made with ``--allow-mixed``: one row that shows it is enough."""
    mixed = {key for key, cell in cells.items() if not cell.is_of_one_environment}
    return any(row["per_iteration_speedup"] is not None for row in rows if Key.of(row) in mixed)


def _equal(written: Value, own: Value, tolerance: float) -> bool:
    if written is None or own is None or isinstance(own, str | bool):
        return written == own
    return math.isclose(float(written), own, rel_tol=tolerance, abs_tol=1e-12)
