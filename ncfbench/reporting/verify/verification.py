"""Verification of the written tables, the answers and the board by a second computation.

It calls nothing that made them, and takes nothing from the row that is checked. The source is each
run's settings, status, environment, raw samples and curve; its summary is checked against them too.
The column of free text, ``reason``, is not checked.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ncfbench.errors import NothingToReportError
from ncfbench.reporting.verify.answers import answer_checks
from ncfbench.reporting.verify.board import board_checks
from ncfbench.reporting.verify.check import Check, Mismatch
from ncfbench.reporting.verify.overall import overall_checks
from ncfbench.reporting.verify.rows import KEY, Cell, Key, Values, cells, recall_row, speedup_row
from ncfbench.reporting.verify.runs import Run
from ncfbench.reporting.verify.standings import Arm
from ncfbench.runs import folder as runs
from ncfbench.storage import schemas, tables

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Verification:
    """Number of values compared, and what differs."""

    numbers: int
    """Recomputed values of the answers, the board, the tables' rows and the runs' summaries."""
    mismatches: Sequence[Mismatch]
    problems: Sequence[str]
    """Messages about unreadable runs. A table that names such a run has a mismatch too."""


def verify(
    runs_dir: Path,
    answered: Row | None = None,
    floors: Sequence[Row] = (),
) -> Verification:
    """Recompute the tables that ``report`` left in a folder, its answers and its board.

    Args:
        answered: ``answers``, those ``overall`` and the ``board``, where there is one, as ``report
            --json`` prints them; None leaves them out.
        floors: their kept rows of :data:`ncfbench.storage.schemas.FLOOR`.

    Raises:
        NothingToReportError: there are no tables.
        DataError: one cannot be read.
    """
    paths = {name: runs_dir / f"{name}.parquet" for name in ("speedup", "recall")}
    for path in paths.values():
        if not path.exists():
            raise NothingToReportError(
                f"No {path}. Make the tables with:"
                f" {shlex.join(['ncfbench', 'report', '--runs-dir', str(runs_dir)])}"
            )
    profile = runs_dir / "costmodel.parquet"
    profiled = tables.read_rows(profile, schemas.COSTMODEL) if profile.exists() else []
    records, problems = runs.read_all(runs_dir)
    own = [Run(record) for record in records]
    expected = cells(own)
    checks = [
        Check("summary", run.name, run.record.summary, run.summary) for run in own if run.is_over
    ]
    for table, schema in (("speedup", schemas.SPEEDUP), ("recall", schemas.RECALL)):
        checks += _table_checks(table, tables.read_rows(paths[table], schema), expected)
    arms: list[Arm] = []
    if answered is not None:
        checks += answer_checks(answered["answers"], own, profiled, floors, arms)
        checks += overall_checks(answered.get("overall", ()), arms, floors)
        checks += board_checks(answered.get("board"), arms, floors)
    results = [check.run() for check in checks]
    return Verification(
        sum(count for count, _ in results),
        [mismatch for _, wrong in results for mismatch in wrong],
        problems,
    )


def _table_checks(table: str, rows: Sequence[Row], expected: Mapping[Key, Cell]) -> Iterator[Check]:
    """Yield the check of each row, and of each that is not there."""
    keys = [tuple(row[name] for name in KEY) for row in rows]
    for key, row in zip(keys, rows, strict=True):
        notes = [f"the row is there {keys.count(key)} times"] if keys.count(key) > 1 else []
        values: Values = {}
        if key not in expected:
            notes.append("no run makes this row")
        elif table == "speedup":
            values = speedup_row(expected[key])
        else:
            values = recall_row(expected[key])
        yield Check(table, _words(key), row, values, notes)
    for key in expected.keys() - {*keys}:
        note = "the row is not there: run `ncfbench report` again"
        yield Check(table, _words(key), {}, {}, [note])


def _words(key: Key) -> str:
    return "/".join(filter(None, key[:-1]))
