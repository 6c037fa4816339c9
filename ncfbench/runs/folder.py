"""Run folders: create, find and read the records of runs.

::

    runs/synthetic-cnn-sg-ns-seed0-1a2b3c4d/
        config.json         settings, the data's fingerprint, seconds of derived features
        environment.json    hardware, versions, commit; ids of interleaved sessions
        curve.parquet       a row for each probe
        evaluation.parquet  recall@50 of each user and item at each evaluation
        timing.parquet      raw samples
        ledger.parquet      seconds of each activity
        summary.parquet     one row
        checkpoints/
"""

from __future__ import annotations

import hashlib
import math
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ncfbench.config import RunConfig, complete, digest
from ncfbench.errors import DataError, UsageError
from ncfbench.runs import evaluations
from ncfbench.runs.reported import choose_epoch, reported_columns
from ncfbench.storage import locks, schemas, tables

if TYPE_CHECKING:
    from ncfbench.data import Dataset

RECORDS = (
    "config.json",
    "environment.json",
    "curve.parquet",
    "timing.parquet",
    "ledger.parquet",
    "summary.parquet",
)
"""Files of every run."""
BLEND_FILE = "blend.parquet"
"""That of a blend with a floor, where there is one (:mod:`ncfbench.blending.blend`)."""


@dataclass(frozen=True, repr=False)
class RunRecord:
    """A run as read back from its folder."""

    folder: Path
    config: RunConfig
    data_fingerprint: str
    environment: Mapping[str, Any]
    curve: list[dict[str, Any]]
    timing: list[dict[str, Any]]
    ledger: list[dict[str, Any]]
    summary: Mapping[str, Any]
    feature_seconds: float = 0.0
    """Seconds that the item features took which ``prepare`` derived and the run reads; no time of
    training has them.
    """

    def __repr__(self) -> str:
        loss = self.summary["smallest_probe_loss"]
        known = "" if loss is None else f", smallest probe loss {loss:.4f}"
        return (
            f"<RunRecord {self.folder}: {self.summary['status']}, {len(self.curve)} probes in"
            f" {self.summary['epochs'] or 0:g} of {self.config.epochs} epochs{known}>"
        )

    @property
    def name(self) -> str:
        """The run's id: the name of its folder."""
        return self.folder.name

    @property
    def reported_iteration(self) -> int | None:
        """The iteration of the epoch whose recall is reported; None where there is none."""
        row, _ = choose_epoch(self.curve, self.config.patience)
        return None if row is None else int(row["iteration"])

    @property
    def is_simulated(self) -> bool:
        """True if one CPU simulated its devices: its times say nothing of real devices."""
        return bool((self.environment.get("mesh") or {}).get("simulated"))


def clock_at(record: RunRecord, iteration: int) -> float:
    """Return the seconds of training at a row of the curve, by the median of an iteration."""
    return float(iteration * (record.summary["full_iteration_seconds"] or 0.0))


def path_of(runs_dir: Path, config: RunConfig, data_fingerprint: str) -> Path:
    """Return the folder of the run of some settings, data and number of devices, made or not: a
    repeated command has the same one.
    """
    # A plug-in's name has a colon, which some file systems refuse.
    choices = "-".join((config.encoder, config.loss, config.sampler)).replace(":", ".")
    identity = f"{digest(config)} {config.devices} {data_fingerprint}"
    number = hashlib.sha256(identity.encode()).hexdigest()[:8]
    return runs_dir / f"{config.dataset}-{choices}-seed{config.seed}-{number}"


@contextmanager
def held(
    runs_dir: Path, config: RunConfig, dataset: Dataset, *, again: bool = False
) -> Iterator[Path]:
    """Hold the folder of a run, which is made if it is missing, for this process.

    Args:
        again: delete what it holds.

    Raises:
        DataError: the folder cannot be written.
        UsageError: another process holds it.
    """
    folder = path_of(runs_dir, config, dataset.fingerprint)
    with locks.held(folder, "writing"):
        with tables.storage_errors(folder):
            for path in folder.glob("[!.]*") if again else ():
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        if not (folder / "config.json").exists():
            write_config(folder, config, dataset.fingerprint, dataset.feature_seconds)
        yield folder


def write_config(
    folder: Path, config: RunConfig, data_fingerprint: str, feature_seconds: float
) -> None:
    """Write ``config.json`` into a run's folder.

    Args:
        feature_seconds: that derived item features of the data took.
    """
    document: dict[str, Any] = {
        "data_fingerprint": data_fingerprint,
        "config": config.to_dict(),
    }
    if feature_seconds and (config.reads_item_features or config.reads_history_features):
        document["feature_seconds"] = feature_seconds
    tables.write_json(folder / "config.json", document)


def read(folder: Path) -> RunRecord:
    """Read a run's records.

    The reported epoch and its quality are computed from the curve
    (:mod:`ncfbench.runs.reported`).

    Raises:
        DataError: a file is missing or damaged; the message names it.
    """
    config, document = _read_config(folder / "config.json")
    summary = tables.read_rows(folder / "summary.parquet", schemas.SUMMARY)
    if len(summary) != 1:
        raise DataError(f"{folder / 'summary.parquet'} has {len(summary)} rows instead of 1.")
    curve = tables.read_rows(folder / "curve.parquet", schemas.CURVE)
    for table, rows, names in (
        ("summary", summary, ("status", "iterations", "wall_seconds")),
        ("curve", curve, ("iteration", "probe_loss")),
    ):
        if any(row[name] is None for row in rows for name in names):
            raise DataError(f"{folder / table}.parquet is damaged: a value is missing.")
    if summary[0]["status"] == "finished" and not curve:
        raise DataError(f"{folder / 'curve.parquet'} has no row, though the run is finished.")
    if (folder / evaluations.FILE).exists():
        tables.require_columns(folder / evaluations.FILE, schemas.EVALUATION)
    environment = tables.read_json(folder / "environment.json")
    if "key" not in environment:
        raise DataError(f"{folder / 'environment.json'} is damaged: it has no key.")
    return RunRecord(
        folder=folder,
        config=config,
        data_fingerprint=str(document["data_fingerprint"]),
        environment=environment,
        curve=curve,
        timing=tables.read_rows(folder / "timing.parquet", schemas.TIMING),
        ledger=tables.read_rows(folder / "ledger.parquet", schemas.LEDGER),
        summary=summary[0] | reported_columns(curve, config.patience),
        feature_seconds=float(document.get("feature_seconds", 0.0)),
    )


def copy_records(record: RunRecord, folder: Path) -> None:
    """Copy a run's records into another folder, without checkpoints, and of its evaluations those
    of the reported epoch and the last one.

    Raises:
        DataError: they are damaged, or cannot be written.
    """
    with tables.storage_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        for name in RECORDS:
            copy = tables.copy_table if name.endswith(".parquet") else shutil.copyfile
            copy(record.folder / name, folder / name)
        if (blend := record.folder / BLEND_FILE).exists():
            tables.copy_table(blend, folder / BLEND_FILE)
    evaluations.copy(record.folder, folder, {record.reported_iteration})


def are_interleaved(one: RunRecord, other: RunRecord) -> bool:
    """Return whether two runs took turns, epoch by epoch, in all of their sessions.

    ``environment.json`` lists a run's sessions: an id that it shares with the runs that it took
    turns with, or null if it was trained alone.
    """
    sessions = one.environment.get("interleaved")
    return bool(sessions and all(sessions) and sessions == other.environment.get("interleaved"))


def read_all(runs_dir: Path) -> tuple[list[RunRecord], list[str]]:
    """Return every readable run below ``runs_dir``, by name, and a message for each other one."""
    records, problems = [], []
    for folder in sorted(path for path in runs_dir.glob("[!.]*") if path.is_dir()):
        has_summary = (folder / "summary.parquet").exists()
        if not has_summary and not (folder / "config.json").exists():
            continue
        try:
            if not has_summary:
                raise DataError("it has no summary.parquet yet.")
            records.append(read(folder))
        except DataError as error:
            problems.append(f"Skipped {folder.name}: {error}")
    return records, problems


def _read_config(path: Path) -> tuple[RunConfig, dict[str, Any]]:
    """Return the settings of a ``config.json``, and the whole document; a DataError where it is
    missing or damaged, or its settings are not possible in this program.
    """
    document = tables.read_json(path)
    kinds = {"config": dict, "data_fingerprint": str}
    for name, kind in kinds.items():
        if not isinstance(document, dict) or not isinstance(document.get(name), kind):
            raise DataError(f"{path} is damaged: it has no {name}.")
    seconds = document.get("feature_seconds", 0.0)
    if not isinstance(seconds, int | float) or not 0 <= seconds < math.inf:
        raise DataError(f"{path} is damaged: feature_seconds is {seconds!r}.")
    try:
        return complete(document["config"]), document
    except UsageError as error:
        raise DataError(f"{path} cannot be used: {error}") from error
