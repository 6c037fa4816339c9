"""Run folders: where a run's records live, how one is begun, found again, and read back.

::

    runs/synthetic-cnn-sg-ns-seed0-1a2b3c/
        config.json         settings, the data's fingerprint
        environment.json    hardware, versions, commit
        curve.parquet       a row for each probe
        timing.parquet      raw samples
        summary.parquet     one row
        checkpoints/
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ncfbench import tables
from ncfbench.config import RunConfig, complete
from ncfbench.errors import DataError, UsageError


@dataclass(frozen=True)
class RunRecord:
    """A run as read back from its folder."""

    folder: Path
    config: RunConfig
    data_fingerprint: str
    environment: Mapping[str, Any]
    curve: list[dict[str, Any]]
    timing: list[dict[str, Any]]
    summary: Mapping[str, Any]

    @property
    def name(self) -> str:
        """The run's id."""
        return self.folder.name


def create(runs_dir: Path, config: RunConfig, data_fingerprint: str) -> Path:
    """A new folder named after the settings; a number is added where one of that name exists."""
    base = f"{config.dataset}-{config.encoder}-{config.loss}-{config.sampler}-seed{config.seed}-{config.digest()[:6]}"
    with tables.storage_errors(runs_dir):
        runs_dir.mkdir(parents=True, exist_ok=True)
        number = 1
        while True:
            folder = runs_dir / (base if number == 1 else f"{base}-{number}")
            try:
                folder.mkdir()
                break
            except FileExistsError:
                number += 1
    document = {
        "schema_version": tables.SCHEMA_VERSION,
        "data_fingerprint": data_fingerprint,
        "config": config.to_dict(),
    }
    tables.write_json(folder / "config.json", document)
    return folder


def find(runs_dir: Path, config: RunConfig, data_fingerprint: str) -> Path | None:
    """The newest folder with exactly these settings and data; None where there is none."""
    matches = []
    for path in runs_dir.glob("*/config.json"):
        try:
            found, fingerprint = _read_config(path)
        except (DataError, UsageError):
            continue
        if (found.effective(), fingerprint) == (config.effective(), data_fingerprint):
            matches.append(path.parent)
    return max(matches, key=lambda folder: (folder / "config.json").stat().st_mtime_ns, default=None)


def read(folder: Path) -> RunRecord:
    """Read a run's records.

    Raises:
        DataError: a file is missing or damaged; the message names it.
    """
    try:
        config, fingerprint = _read_config(folder / "config.json")
    except UsageError as error:
        raise DataError(f"{folder / 'config.json'} is damaged: {error}") from error
    summary = tables.read_rows(folder / "summary.parquet", tables.SUMMARY)
    if len(summary) != 1:
        raise DataError(f"{folder / 'summary.parquet'} has {len(summary)} rows instead of 1.")
    environment = tables.read_json(folder / "environment.json")
    if not isinstance(environment, dict) or "key" not in environment:
        raise DataError(f"{folder / 'environment.json'} is damaged: it has no key.")
    return RunRecord(
        folder=folder,
        config=config,
        data_fingerprint=fingerprint,
        environment=environment,
        curve=tables.read_rows(folder / "curve.parquet", tables.CURVE),
        timing=tables.read_rows(folder / "timing.parquet", tables.TIMING),
        summary=summary[0],
    )


def read_all(runs_dir: Path) -> tuple[list[RunRecord], list[str]]:
    """Every readable run below ``runs_dir``, by name, and a message for each one that is not."""
    records, problems = [], []
    for folder in sorted(path for path in runs_dir.glob("*") if path.is_dir() and not path.name.startswith(".")):
        if not (folder / "config.json").exists() and not (folder / "summary.parquet").exists():
            continue
        try:
            records.append(read(folder))
        except DataError as error:
            problems.append(f"Skipped {folder.name}: {error}")
    return records, problems


@contextmanager
def lock(folder: Path) -> Iterator[None]:
    """Hold a run folder for one process; released by the system when the process ends, however it ends."""
    with tables.storage_errors(folder):
        descriptor = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT, 0o644)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise UsageError(f"Another process is writing {folder}.") from error
        yield
    finally:
        os.close(descriptor)


def _read_config(path: Path) -> tuple[RunConfig, str]:
    document = tables.read_json(path)
    try:
        return complete(document["config"]), str(document["data_fingerprint"])
    except (KeyError, TypeError) as error:
        raise DataError(f"{path} is damaged: {error!r}.") from error
