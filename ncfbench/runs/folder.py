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

An exported folder has one table of each kind for all runs: ``runs.parquet``, ``curves.parquet``.
"""

from __future__ import annotations

import hashlib
import json
import math
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ncfbench.config import RunConfig, complete, digest
from ncfbench.errors import DataError, UsageError
from ncfbench.runs.quality import Evaluation
from ncfbench.runs.reported import choose_epoch, reported_columns
from ncfbench.storage import locks, schemas, tables

if TYPE_CHECKING:
    from ncfbench.data import Dataset

ALWAYS = ("curve", "timing", "ledger")
"""Tables of every run beside its summary."""
TABLES = {kind: getattr(schemas, kind.upper()) for kind in (*ALWAYS, "evaluation", "blend")}
EXPORTED = {kind: schema.append(pa.field("run", pa.string())) for kind, schema in TABLES.items()}
EXPORTED["run"] = schemas.SUMMARY.append(pa.field("document", pa.string()))
"""Tables of an exported folder, such as ``runs.parquet``, whose ``document`` is the JSON of
``config.json`` with that of ``environment.json``.
"""
Evaluations: TypeAlias = Mapping[tuple[int, str], Evaluation]
"""Evaluations by iteration and split."""


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
    exported: Mapping[str, pa.Table] = field(default_factory=dict, compare=False)
    """Its rows of :data:`EXPORTED`, where it lies in an exported folder."""

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
    def evaluations(self) -> Evaluations:
        """The parts of each recall@50, without figures, which the curve has; none before it was
        evaluated. A DataError where they are damaged.
        """
        table = self._table("evaluation")
        columns = (table[name] for name in schemas.EVALUATION.names)
        return {
            (at.as_py(), split.as_py()): Evaluation({}, *(np.asarray(of.values) for of in lists))
            for at, split, *lists in zip(*columns, strict=True)
        }

    def evaluation(self, iteration: int | None, split: str = "test") -> Evaluation | None:
        """Return the evaluation of a split; None where it is not kept, or damaged."""
        try:
            return None if iteration is None else self.evaluations.get((iteration, split))
        except DataError:
            return None

    @property
    def blends(self) -> list[dict[str, Any]]:
        """Its blends with floors (:mod:`ncfbench.blending.blend`). A DataError where they are
        damaged.
        """
        return list(self._table("blend").to_pylist())

    def _table(self, kind: str) -> pa.Table:
        path = self.folder / f"{kind}.parquet"
        if path.exists():
            return tables.read_table(path, TABLES[kind])
        return self.exported.get(kind, TABLES[kind].empty_table())

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


def write_evaluations(folder: Path, evaluations: Evaluations) -> None:
    """Write the evaluations of a run into its folder."""
    rows = [
        {"iteration": iteration, "split": split, **vars(evaluation)}
        for (iteration, split), evaluation in evaluations.items()
    ]
    tables.write_rows(folder / "evaluation.parquet", rows, schemas.EVALUATION)


def read(folder: Path, exported: Mapping[str, pa.Table] | None = None) -> RunRecord:
    """Read a run's records.

    The reported epoch and its quality are computed from the curve
    (:mod:`ncfbench.runs.reported`).

    Args:
        exported: its rows of :data:`EXPORTED`, where it lies in an exported folder.

    Raises:
        DataError: a file is missing or damaged; the message names it.
    """
    if exported is None:
        document = tables.read_json(folder / "config.json")
        environment = tables.read_json(folder / "environment.json")
        summary = tables.read_rows(folder / "summary.parquet", schemas.SUMMARY)
        rows = {name: tables.read_rows(folder / f"{name}.parquet", TABLES[name]) for name in ALWAYS}
    else:
        rows = {name: exported[name].to_pylist() for name in ("run", *ALWAYS)}
        summary = rows.pop("run")
        document = json.loads(summary[0].pop("document"))
        environment = document["environment"]
    config, curve = _config_of(folder / "config.json", document), rows["curve"]
    if len(summary) != 1:
        raise DataError(f"{folder / 'summary.parquet'} has {len(summary)} rows instead of 1.")
    for table, checked, names in (
        ("summary", summary, ("status", "iterations", "wall_seconds")),
        ("curve", curve, ("iteration", "probe_loss")),
    ):
        if any(row[name] is None for row in checked for name in names):
            raise DataError(f"{folder / table}.parquet is damaged: a value is missing.")
    if summary[0]["status"] == "finished" and not curve:
        raise DataError(f"{folder / 'curve.parquet'} has no row, though the run is finished.")
    if "key" not in environment:
        raise DataError(f"{folder / 'environment.json'} is damaged: it has no key.")
    return RunRecord(
        folder=folder,
        config=config,
        data_fingerprint=str(document["data_fingerprint"]),
        environment=environment,
        summary=summary[0] | reported_columns(curve, config.patience),
        feature_seconds=float(document.get("feature_seconds", 0.0)),
        exported=exported or {},
        **rows,
    )


def export(records: Sequence[RunRecord], folder: Path) -> None:
    """Write the records of runs into a folder, as the tables of :data:`EXPORTED`; of evaluations
    that of test links at the reported epoch.

    Raises:
        DataError: they are damaged, or cannot be written.
    """
    rows: dict[str, list[Mapping[str, Any]]] = {kind: [] for kind in EXPORTED}
    for record in records:
        document = {
            "config": record.config.to_dict(),
            "data_fingerprint": record.data_fingerprint,
            "feature_seconds": record.feature_seconds,
            "environment": {**record.environment},
        }
        at = record.reported_iteration
        reported = record.evaluation(at)
        own = {kind: getattr(record, kind) for kind in ALWAYS} | {
            "evaluation": [{"iteration": at, "split": "test", **vars(reported)}]
            if reported
            else [],
            "blend": record.blends,
            "run": [{**record.summary, "document": json.dumps(document)}],
        }
        for kind, of_run in own.items():
            rows[kind] += [{**row, "run": record.name} for row in of_run]
    for kind, schema in EXPORTED.items():
        path, table = folder / f"{kind}s.parquet", pa.Table.from_pylist(rows[kind], schema)
        if len(table):
            tables.write_table(path, [table], schema, tables.COMPACTEST)
        else:
            path.unlink(missing_ok=True)


def are_interleaved(one: RunRecord, other: RunRecord) -> bool:
    """Return whether two runs took turns, epoch by epoch, in all of their sessions.

    ``environment.json`` lists a run's sessions: an id that it shares with the runs that it took
    turns with, or null if it was trained alone.
    """
    sessions = one.environment.get("interleaved")
    return bool(sessions and all(sessions) and sessions == other.environment.get("interleaved"))


def read_all(runs_dir: Path) -> tuple[list[RunRecord], list[str]]:
    """Return every readable run below ``runs_dir``, by name, and a message for each other one.

    Raises:
        DataError: a table of exported runs is damaged.
    """
    records, problems = [], []
    folders: dict[Path, Mapping[str, pa.Table] | None] = {**_exported(runs_dir)}
    for path in runs_dir.glob("[!.]*"):
        if any((path / name).exists() for name in ("summary.parquet", "config.json")):
            folders[path] = None
    for folder, exported in sorted(folders.items()):
        try:
            if exported is None and not (folder / "summary.parquet").exists():
                raise DataError("it has no summary.parquet yet.")
            records.append(read(folder, exported))
        except DataError as error:
            problems.append(f"Skipped {folder.name}: {error}")
    return records, problems


def is_exported(folder: Path) -> bool:
    """Return whether a folder is what `report --export` wrote, which is only read."""
    return (folder / "runs.parquet").exists()


def _exported(folder: Path) -> dict[Path, dict[str, pa.Table]]:
    """Return the tables of each run that was exported into a folder, by what would be its own."""
    if not is_exported(folder):
        return {}
    whole = {kind: schema.empty_table() for kind, schema in EXPORTED.items()}
    for kind, schema in EXPORTED.items():
        if (path := folder / f"{kind}s.parquet").exists():
            whole[kind] = tables.read_table(path, schema)
    return {
        folder / run: {
            kind: rows.filter(pc.equal(rows["run"], run)) for kind, rows in whole.items()
        }
        for run in whole["run"]["run"].to_pylist()
    }


def _config_of(path: Path, document: Any) -> RunConfig:
    """Return the settings of a ``config.json``; a DataError where it is damaged, or they are not
    possible in this program.
    """
    kinds = {"config": dict, "data_fingerprint": str}
    for name, kind in kinds.items():
        if not isinstance(document, dict) or not isinstance(document.get(name), kind):
            raise DataError(f"{path} is damaged: it has no {name}.")
    seconds = document.get("feature_seconds", 0.0)
    if not isinstance(seconds, int | float) or not 0 <= seconds < math.inf:
        raise DataError(f"{path} is damaged: feature_seconds is {seconds!r}.")
    try:
        return complete(document["config"])
    except UsageError as error:
        raise DataError(f"{path} cannot be used: {error}") from error
