"""Everything a folder of runs has to report: comparisons, the rows of the tables, verdicts, what
profile and audit left.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from ncfbench.errors import DataError
from ncfbench.report import comparison, described, targets
from ncfbench.report.comparison import Comparison
from ncfbench.report.verdicts import Verdict, judge_all
from ncfbench.runs import folder as runs
from ncfbench.runs.folder import RunRecord
from ncfbench.runs.trials import FOLDER
from ncfbench.storage import schemas, tables

Rows = list[dict[str, Any]]


@dataclass(frozen=True)
class Results:
    """What was found in a folder; rows are by comparison."""

    runs_dir: Path
    records: Sequence[RunRecord]
    comparisons: Sequence[Comparison]
    speedups: Sequence[Rows]
    recalls: Sequence[Rows]
    verdicts: Sequence[Verdict]
    manifests: Mapping[str, described.Manifest]
    """Of the comparisons' data sets, by fingerprint, as far as they are known."""
    beside: Mapping[str, Rows]
    """Tables of profile and audit, by name."""
    problems: Sequence[str]
    """What could not be read, and was left out."""
    unfinished: Sequence[str]
    allow_mixed: bool

    @property
    def speedup(self) -> Rows:
        """The rows of ``speedup.parquet``."""
        return [row for rows in self.speedups for row in rows]

    @property
    def recall(self) -> Rows:
        """The rows of ``recall.parquet``."""
        return [row for rows in self.recalls for row in rows]

    def sensitivity(self) -> Rows:
        """Speedups at every target."""
        return [
            row
            for each in self.comparisons
            for row in targets.sensitivity_rows(each, allow_mixed=self.allow_mixed)
        ]

    @property
    def is_read_only(self) -> bool:
        """Whether the folder of the runs refuses to be written, as a mounted or another user's
        folder does.
        """
        return not os.access(self.runs_dir, os.W_OK)

    def write(self, folder: Path | None = None) -> list[Path]:
        """Write the two tables and what the data sets are; the paths where they are.

        A table that says the same already is left alone: to look at results is not to change them.

        Args:
            folder: that of the runs, where none is given. In another one no command names this
                user's folders.

        Raises:
            DataError: the folder cannot be written.
        """
        if not self.comparisons:
            return []
        own = {} if folder is None else {"command": None}
        folder = folder or self.runs_dir
        written = {
            "speedup": (self.speedup, schemas.SPEEDUP),
            "recall": (self.recall, schemas.RECALL),
        }
        for name, (rows, schema) in written.items():
            if not _holds(folder / f"{name}.parquet", rows, schema):
                tables.write_rows(folder / f"{name}.parquet", [row | own for row in rows], schema)
        paths = [folder / f"{name}.parquet" for name in written]
        kept = described.write(folder, self.manifests)
        return paths if kept is None else [*paths, kept]

    def export(self, folder: Path) -> tuple[int, int]:
        """Copy the records of all compared runs, without checkpoints, and the tables: small enough
        to publish.

        Where settings were tuned, so are the trials that they were chosen by, as far as they can be
        read.

        Returns:
            How many runs were copied, and how many trials.

        Raises:
            DataError: the folder cannot be written.
        """
        compared = [
            run
            for each in self.comparisons
            for seeds in each.arms.values()
            for run in seeds.values()
        ]
        for run in compared:
            runs.copy_records(run, folder / run.name)
        tuned = {each.data_fingerprint for each in self.comparisons if each.config.tuned}
        trials = [
            run for run in runs.read_all(self.runs_dir / FOLDER)[0] if run.data_fingerprint in tuned
        ]
        for run in trials:
            runs.copy_records(run, folder / FOLDER / run.name)
        for name, rows in self.beside.items():
            schema = (schemas.AUDIT_TABLES | schemas.PROFILE_TABLES)[name]
            tables.write_rows(folder / f"{name}.parquet", rows, schema)
        self.write(folder)
        return len(compared), len(trials)


def _holds(path: Path, rows: Rows, schema: pa.Schema) -> bool:
    """Whether a table is there and has these rows, whatever folders its commands name."""
    try:
        found = tables.read_rows(path, schema)
    except DataError:
        return False
    names = [name for name in schema.names if name != "command"]
    return [[row[name] for name in names] for row in found] == [
        [row.get(name) for name in names] for row in rows
    ]


def collect(
    runs_dir: Path, data_dir: Path, *, allow_mixed: bool, places: Mapping[str, str]
) -> Results:
    """Read a folder of runs and compare what belongs together.

    Args:
        data_dir: prepared data sets, which say whether their text is the paper's.
        allow_mixed: divide times of different environments too.
        places: ``--data-dir`` and ``--runs-dir`` to repeat in commands.
    """
    records, problems = runs.read_all(runs_dir)
    unfinished = [
        f"{record.name} is {record.summary['status']} at iteration"
        f" {record.summary['iterations']:,}; left out."
        for record in records
        if record.summary["status"] not in ("finished", "diverged")
    ]
    comparisons = comparison.group(records)
    manifests, unknown = described.manifests(comparisons, runs_dir, data_dir)
    comparisons = described.labelled(comparisons, manifests)
    problems += unknown
    beside: dict[str, Rows] = {}
    for wanted in (schemas.AUDIT_TABLES, schemas.PROFILE_TABLES):
        found, unreadable = tables.read_present(runs_dir, wanted)
        beside |= found
        problems += unreadable
    speedups = [
        comparison.speedup_rows(each, allow_mixed=allow_mixed, places=places)
        for each in comparisons
    ]
    recalls = [comparison.recall_rows(each, places=places) for each in comparisons]
    return Results(
        runs_dir=runs_dir,
        records=records,
        comparisons=comparisons,
        speedups=speedups,
        recalls=recalls,
        verdicts=judge_all(comparisons, speedups, recalls, manifests),
        manifests=manifests,
        beside=beside,
        problems=problems,
        unfinished=unfinished,
        allow_mixed=allow_mixed,
    )
