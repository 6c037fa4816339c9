"""Files beside the runs of a folder: manifests and floors.

A report keeps the manifests and the floors of the runs' data sets beside its tables, so that a
folder of results says what text it is about, and what is reached without training, where the data
are not.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow as pa

from ncfbench.data.store import read_manifest
from ncfbench.errors import DataError
from ncfbench.floors import kept as floors
from ncfbench.reporting.floors import FloorResult, floors_of
from ncfbench.runs.folder import RunRecord
from ncfbench.storage import tables

FILE = "datasets.json"
Manifest: TypeAlias = Mapping[str, Any]
Rows: TypeAlias = list[dict[str, Any]]


def find_manifests(
    runs: Sequence[RunRecord], runs_dir: Path, data_dir: Path
) -> tuple[dict[str, Manifest], list[str]]:
    """Return the known manifests by fingerprint, and messages about what cannot be read."""
    manifests: dict[str, Manifest] = {}
    problems = []
    path = runs_dir / FILE
    try:
        kept = tables.read_json(path) if path.exists() else {}
        if not isinstance(kept, dict) or not all(_is_manifest(*pair) for pair in kept.items()):
            raise DataError(f"{path} is damaged: it does not describe data sets.")
    except DataError as error:
        kept = {}
        problems.append(f"Skipped {FILE}: {error}")
    for fingerprint, name in dict.fromkeys(
        (run.data_fingerprint, run.config.dataset) for run in runs
    ):
        prepared = read_manifest(data_dir, name)
        if prepared is not None and _is_manifest(fingerprint, prepared):
            manifests[fingerprint] = prepared
        elif fingerprint in kept:
            manifests[fingerprint] = kept[fingerprint]
    return manifests, problems


def keep_rows(path: Path, rows: Rows, schema: pa.Schema) -> Path:
    """Write a table, unless it is there with these rows.

    Raises:
        DataError: the folder cannot be written.
    """
    fresh = [{name: row.get(name) for name in schema.names} for row in rows]
    try:
        kept = tables.read_table(path, schema).select(schema.names).to_pylist()
    except DataError:
        kept = None
    if kept != fresh:
        tables.write_rows(path, rows, schema)
    return path


def find_floors(
    runs: Sequence[RunRecord], runs_dir: Path, data_dir: Path
) -> tuple[dict[str, list[FloorResult]], list[str]]:
    """Return the kept floors by fingerprint, those beside the data before those beside the runs,
    and messages about what cannot be read. Data that are here have an entry, if an empty one.
    """
    by_fingerprint: dict[str, list[FloorResult]] = {}
    problems: list[str] = []
    for run in {run.data_fingerprint: run for run in runs}.values():
        name, fingerprint = run.config.dataset, run.data_fingerprint
        of_data, unreadable = read_floors([data_dir / name, runs_dir], fingerprint)
        problems += unreadable
        prepared = read_manifest(data_dir, name)
        if of_data or (prepared is not None and _is_manifest(fingerprint, prepared)):
            by_fingerprint[fingerprint] = of_data
    return by_fingerprint, [*dict.fromkeys(problems)]


def read_floors(folders: Iterable[Path], fingerprint: str) -> tuple[list[FloorResult], list[str]]:
    """Return the floors of some data that the first folder with any keeps, and messages about what
    cannot be read.
    """
    problems = []
    for folder in folders:
        try:
            rows = floors.read(folder, fingerprint)
        except DataError as error:
            problems.append(f"Skipped {floors.FILE}: {error}")
            continue
        if rows:
            return floors_of(rows), problems
    return [], problems


def _is_manifest(fingerprint: str, value: object) -> bool:
    """Return whether a value is a manifest of this fingerprint, with the source a report reads."""
    if not isinstance(value, dict) or value.get("fingerprint") != fingerprint:
        return False
    return isinstance(value.get("source", ""), str)
