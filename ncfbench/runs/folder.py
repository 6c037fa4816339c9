"""Run folders: where a run's records live, how one is begun, found again, and read back.

::

    runs/synthetic-cnn-sg-ns-seed0-1a2b3c/
        config.json         settings, the data's fingerprint
        environment.json    hardware, versions, commit; interleaved sessions
        curve.parquet       a row for each probe
        timing.parquet      raw samples
        ledger.parquet      where the time went, line by line
        summary.parquet     one row
        recommendations.parquet    the best test items of every user, where they were asked for
        checkpoints/
"""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ncfbench.config import FIELDS, RunConfig, complete
from ncfbench.errors import DataError, UsageError
from ncfbench.storage import locks, schemas, tables

RECORDS = (
    "config.json",
    "environment.json",
    "curve.parquet",
    "timing.parquet",
    "ledger.parquet",
    "summary.parquet",
)


@dataclass(frozen=True)
class RunRecord:
    """A run as read back from its folder."""

    folder: Path
    config: RunConfig
    """As it was trained last: its devices are those that the times are of, whatever ``config.json``
    began with.
    """
    data_fingerprint: str
    environment: Mapping[str, Any]
    curve: list[dict[str, Any]]
    timing: list[dict[str, Any]]
    ledger: list[dict[str, Any]]
    summary: Mapping[str, Any]

    @property
    def name(self) -> str:
        """The run's id."""
        return self.folder.name

    @property
    def is_simulated(self) -> bool:
        """Whether its devices are one CPU's cores, so that its times say nothing of several
        devices' speed.
        """
        return bool((self.environment.get("mesh") or {}).get("simulated"))


def create(runs_dir: Path, config: RunConfig, data_fingerprint: str) -> Path:
    """A new folder named after the settings; a number is added where one of that name exists."""
    # A plug-in's name has a colon, which some file systems refuse.
    choices = "-".join((config.encoder, config.loss, config.sampler)).replace(":", ".")
    base = f"{config.dataset}-{choices}-seed{config.seed}-{config.digest()[:6]}"
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
        "schema_version": schemas.SCHEMA_VERSION,
        "data_fingerprint": data_fingerprint,
        "config": config.to_dict(),
    }
    tables.write_json(folder / "config.json", document)
    return folder


def find(
    runs_dir: Path, config: RunConfig, data_fingerprint: str, *, anywhere: bool = False
) -> Path | None:
    """The folder to go on with: the newest with exactly these settings and data; None where there
    is none.

    With global sharing one that was last on as many devices is the first choice. Without one, a run
    that was interrupted on another number is gone on with, if it takes no turns with others; one
    that is finished there has times of its own, and is no answer.

    Args:
        anywhere: a finished run is the first choice, wherever it was trained.
    """
    matches = []
    for path in runs_dir.glob("*/config.json"):
        try:
            found, fingerprint = read_config(path)
        except (DataError, UsageError):
            continue
        if (found.effective(), fingerprint) != (config.effective(), data_fingerprint):
            continue
        try:
            last, _ = trained_settings(path.parent)
        except DataError:  # said when it is read
            last = found
        is_there, is_answer = (
            config.placement == last.placement,
            anywhere and _is_finished(path.parent),
        )
        if is_answer or is_there or _is_interrupted(path.parent):
            matches.append((is_answer, is_there, path.stat().st_mtime_ns, path.parent))
    return max(matches)[-1] if matches else None


def trained_settings(folder: Path) -> tuple[RunConfig, str]:
    """Settings as a run was trained with them last, and the data's fingerprint; see
    :attr:`RunRecord.config`.

    Raises:
        DataError: a file is missing or damaged.
        UsageError: its settings are none of this program's.
    """
    config, fingerprint = read_config(folder / "config.json")
    path = folder / "environment.json"
    return _placed(config, tables.read_json(path), path) if path.exists() else config, fingerprint


def _is_finished(folder: Path) -> bool:
    try:
        return [
            row["status"] for row in tables.read_rows(folder / "summary.parquet", schemas.SUMMARY)
        ] == ["finished"]
    except DataError:
        return False


def _is_interrupted(folder: Path) -> bool:
    """Whether a run has a checkpoint, is not over, is trained by no process now, and took no turns
    with others.
    """
    try:
        if any(tables.read_json(folder / "environment.json")["interleaved"]):
            return False
        (summary,) = tables.read_rows(folder / "summary.parquet", schemas.SUMMARY)
        with locks.held(folder, "writing"):
            return summary["status"] not in ("finished", "diverged") and any(
                (folder / "checkpoints").glob("[0-9]*")
            )
    except (DataError, UsageError, ValueError, TypeError, KeyError):
        return False


def _placed(config: RunConfig, environment: Any, path: Path) -> RunConfig:
    """Settings with the devices that an ``environment.json`` names, as read from ``path``.

    Raises:
        DataError: it is damaged.
    """
    try:
        mesh = environment.get("mesh") or {"devices": 1, "shard_tables": False}
        return dataclasses.replace(
            config, devices=mesh["devices"], shard_tables=mesh["shard_tables"]
        )
    except (AttributeError, KeyError, TypeError, UsageError) as error:
        raise DataError(
            f"{path} is damaged: the devices that it names cannot be: {error!r}."
        ) from error


def read(folder: Path) -> RunRecord:
    """Read a run's records.

    Raises:
        DataError: a file is missing or damaged; the message names it.
    """
    try:
        config, fingerprint = read_config(folder / "config.json")
    except UsageError as error:
        raise DataError(f"{folder / 'config.json'} cannot be used: {error}") from error
    summary = tables.read_rows(folder / "summary.parquet", schemas.SUMMARY)
    if len(summary) != 1:
        raise DataError(f"{folder / 'summary.parquet'} has {len(summary)} rows instead of 1.")
    if any(summary[0][name] is None for name in ("status", "iterations", "wall_seconds")):
        raise DataError(f"{folder / 'summary.parquet'} is damaged: a value is missing.")
    curve = tables.read_rows(folder / "curve.parquet", schemas.CURVE)
    if any(row["iteration"] is None or row["probe_loss"] is None for row in curve):
        raise DataError(f"{folder / 'curve.parquet'} is damaged: a value is missing.")
    if summary[0]["status"] == "finished" and not curve:
        raise DataError(f"{folder / 'curve.parquet'} has no row, though the run is finished.")
    environment = tables.read_json(folder / "environment.json")
    if not isinstance(environment, dict) or "key" not in environment:
        raise DataError(f"{folder / 'environment.json'} is damaged: it has no key.")
    config = _placed(config, environment, folder / "environment.json")
    return RunRecord(
        folder=folder,
        config=config,
        data_fingerprint=fingerprint,
        environment=environment,
        curve=curve,
        timing=tables.read_rows(folder / "timing.parquet", schemas.TIMING),
        ledger=tables.read_rows(folder / "ledger.parquet", schemas.LEDGER),
        summary=summary[0],
    )


def copy_records(record: RunRecord, folder: Path) -> None:
    """Copy a run's records, all but its checkpoints, into another folder.

    Raises:
        DataError: it cannot be written.
    """
    with tables.storage_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        for name in RECORDS:
            shutil.copyfile(record.folder / name, folder / name)


def interleaved(one: RunRecord, other: RunRecord) -> bool:
    """Whether two runs took turns, epoch by epoch, whenever either of them was trained.

    ``environment.json`` lists the sessions of a run: an id that it shares with the runs that it
    took turns with, or null where it was trained by itself.
    """
    sessions = one.environment.get("interleaved")
    return bool(sessions and all(sessions) and sessions == other.environment.get("interleaved"))


def read_all(runs_dir: Path) -> tuple[list[RunRecord], list[str]]:
    """Every readable run below ``runs_dir``, by name, and a message for each one that is not."""
    records, problems = [], []
    for folder in sorted(
        path for path in runs_dir.glob("*") if path.is_dir() and not path.name.startswith(".")
    ):
        if not (folder / "config.json").exists() and not (folder / "summary.parquet").exists():
            continue
        if not (folder / "summary.parquet").exists():
            problems.append(f"Skipped {folder.name}: it was begun, and has no summary.parquet yet.")
            continue
        try:
            records.append(read(folder))
        except DataError as error:
            problems.append(f"Skipped {folder.name}: {error}")
    return records, problems


def read_config(path: Path) -> tuple[RunConfig, str]:
    """Settings and the data's fingerprint, from a ``config.json``.

    Raises:
        DataError: it is missing or damaged.
        UsageError: its settings are none of this program's.
    """
    document = tables.read_json(path)
    if not isinstance(document, dict) or not isinstance(document.get("config"), dict):
        raise DataError(f"{path} is damaged: it holds no settings.")
    unknown = [key for key in document["config"] if key not in FIELDS]
    if unknown or "data_fingerprint" not in document:
        raise DataError(
            f"{path} is damaged:"
            f" {f'unknown setting {unknown[0]!r}' if unknown else 'it names no data'}."
        )
    return complete(document["config"]), str(document["data_fingerprint"])
