"""Copies of a report: its tables, and the records that they are made of."""

from __future__ import annotations

import shutil
from pathlib import Path

from ncfbench.reporting.beside import SWEEPS
from ncfbench.reporting.results import Results
from ncfbench.runs.folder import copy_records
from ncfbench.storage import schemas, tables


def export(results: Results, folder: Path) -> int:
    """Copy the tables, the compared runs without checkpoints, and the sweeps' files.

    Returns:
        Number of runs copied.

    Raises:
        DataError: the folder cannot be written.
    """
    compared = [run for runs in results.groups for run in runs]
    for record in compared:
        copy_records(record, folder / record.name)
    with tables.storage_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        for path in sorted((results.runs_dir / SWEEPS).glob("*.toml")):
            (folder / SWEEPS).mkdir(exist_ok=True)
            shutil.copyfile(path, folder / SWEEPS / path.name)
        for name in (*schemas.AUDIT_TABLES, *schemas.PROFILE_TABLES):
            if (path := results.runs_dir / f"{name}.parquet").exists():
                shutil.copyfile(path, folder / path.name)
    results.write(folder)
    return len(compared)
