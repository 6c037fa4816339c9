"""Tables on disk: Arrow schemas with units in their column names, and files that are whole or absent.

Every file is written under a temporary name, synced and renamed, so that a killed process leaves the old file or the new
one. Each table carries its schema's name and version in its metadata.
"""

from __future__ import annotations

import fcntl
import json
import os
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from ncfbench.errors import DataError, UsageError

SCHEMA_VERSION = 1

CUTOFFS = (10, 20, 50, 100)
"""M of recall@M."""

CURVE = pa.schema(
    [
        ("iteration", pa.int64()),
        ("epoch", pa.float64()),
        ("train_seconds", pa.float64()),
        ("probe_loss", pa.float64()),
        ("batch_loss", pa.float64()),
        *((f"{split}_recall_at_{m}", pa.float64()) for split in ("validation", "test") for m in CUTOFFS),
    ],
    metadata={"table": "curve"},
)
"""One row for each probe. Recall is null between epochs, and where there is nothing to rank."""

TIMING = pa.schema(
    [
        ("kind", pa.string()),
        ("first_iteration", pa.int64()),
        ("iterations", pa.int64()),
        ("seconds", pa.float64()),
        ("sampling_seconds", pa.float64()),
        ("waiting_seconds", pa.float64()),
        ("item_slots", pa.float64()),
        ("resumed", pa.bool_()),
        ("environment_key", pa.string()),
    ],
    metadata={"table": "timing"},
)
"""Raw samples. ``kind``: full, step (blocks of ``iterations``), compile, probe, evaluation, checkpoint.

``item_slots`` is the mean number of real item slots of the block's batches; ``resumed`` marks a block that an
interruption cut, which no summary uses while there are others. A run that was resumed elsewhere has samples of two
environments; its summary uses those of the last.
"""

SUMMARY = pa.schema(
    [
        *((name, pa.string()) for name in ("run", "status", "dataset", "sampler", "encoder", "loss")),
        ("seed", pa.int64()),
        ("config", pa.string()),
        ("data_fingerprint", pa.string()),
        ("environment_key", pa.string()),
        ("iterations", pa.int64()),
        ("planned_iterations", pa.int64()),
        ("epochs", pa.float64()),
        ("smallest_probe_loss", pa.float64()),
        ("full_iteration_seconds", pa.float64()),
        ("step_iteration_seconds", pa.float64()),
        ("sampling_iteration_seconds", pa.float64()),
        ("train_seconds", pa.float64()),
        ("wall_seconds", pa.float64()),
        ("item_slots", pa.float64()),
        ("reported_epoch", pa.float64()),
        *((f"{split}_recall_at_{m}", pa.float64()) for split in ("validation", "test") for m in CUTOFFS),
        ("recall_reason", pa.string()),
        ("message", pa.string()),
    ],
    metadata={"table": "summary"},
)
"""One row: what became of a run. Times are medians over its blocks; ``recall_reason`` says why recall is null."""

SPEEDUP = pa.schema(
    [
        *((name, pa.string()) for name in ("dataset", "encoder", "loss", "sampler", "variant", "baseline", "status")),
        ("seeds", pa.int64()),
        ("reference_loss", pa.float64()),
        ("iterations_to_reference", pa.float64()),
        ("seconds_to_reference", pa.float64()),
        ("full_iteration_seconds", pa.float64()),
        ("step_iteration_seconds", pa.float64()),
        ("item_slots", pa.float64()),
        ("per_iteration_speedup", pa.float64()),
        ("iterations_speedup", pa.float64()),
        ("total_speedup", pa.float64()),
        ("step_per_iteration_speedup", pa.float64()),
        ("interleaved", pa.bool_()),
        ("same_environment", pa.bool_()),
        ("runs", pa.list_(pa.string())),
        ("command", pa.string()),
    ],
    metadata={"table": "speedup"},
)
"""The paper's speedup table. ``status``: baseline, reached, not reached, missing, no baseline, ..."""

RECALL = pa.schema(
    [
        *((name, pa.string()) for name in ("dataset", "encoder", "loss", "sampler", "variant", "status")),
        ("seeds", pa.int64()),
        ("reported_epoch", pa.float64()),
        *((f"test_recall_at_{m}", pa.float64()) for m in CUTOFFS),
        ("reason", pa.string()),
        ("runs", pa.list_(pa.string())),
        ("command", pa.string()),
    ],
    metadata={"table": "recall"},
)
"""The paper's recall table, averaged over seeds."""


AUDIT = pa.schema(
    [
        *((name, pa.string()) for name in ("dataset", "encoder", "loss", "noise", "sampler", "strata", "point", "verdict")),
        ("mask", pa.bool_()),
        ("batch_size", pa.int64()),
        ("negatives", pa.int64()),
        ("stratum_size", pa.int64()),
        ("uniform_items", pa.int64()),
        ("seed", pa.int64()),
        ("batches", pa.int64()),
        ("margin", pa.float64()),
        ("verdicts", pa.int64()),
        *((name, pa.float64()) for name in ("bias", "bias_low", "bias_high", "detectable_bias", "cosine")),
        ("batches_needed", pa.int64()),
        ("bias_with_4x_negatives", pa.float64()),
        ("bias_with_4x_negatives_low", pa.float64()),
        ("bias_with_4x_negatives_high", pa.float64()),
        *((name, pa.float64()) for name in ("shuffled_bias", "shuffled_bias_low", "shuffled_bias_high")),
        ("predicted_shuffled_bias", pa.float64()),
        ("batch_variance", pa.float64()),
        ("full_iteration_seconds", pa.float64()),
        ("variance_seconds", pa.float64()),
        ("exact_loss", pa.float64()),
        ("probe_loss", pa.float64()),
        ("data_fingerprint", pa.string()),
        ("environment_key", pa.string()),
    ],
    metadata={"table": "audit"},
)
"""One row for each verdict. Biases are shares of the exact gradient's length, ``batch_variance`` of its square."""

XRAY = pa.schema(
    [
        *((name, pa.string()) for name in ("dataset", "noise", "sampler", "strata")),
        ("mask", pa.bool_()),
        ("batch_size", pa.int64()),
        ("batches", pa.int64()),
        *((f"nominal_{name}", pa.int64()) for name in ("users", "items", "negatives")),
        *((f"distinct_{name}", pa.float64()) for name in ("users", "items")),
        ("positives", pa.float64()),
        *((f"{name}_negatives", pa.float64()) for name in ("unmasked", "effective")),
        *((f"{name}_negatives_of_a_positive", pa.float64()) for name in ("nominal", "unmasked", "effective")),
        *((name, pa.float64()) for name in ("masked_share", "popularity_ratio", "padding_share", "word_padding_share")),
        ("data_fingerprint", pa.string()),
    ],
    metadata={"table": "xray"},
)
"""One row for each sampler: means over batches of the shuffled stream."""

CONFORMANCE = pa.schema(
    [
        (name, pa.string())
        for name in ("dataset", "noise", "loss_family", "sampler", "strata", "property", "result", "detail")
    ],
    metadata={"table": "conformance"},
)
"""One row for each property of a sampler. ``result``: pass, fail, or not tested."""


@contextmanager
def storage_errors(path: Path) -> Iterator[None]:
    """Turn the operating system's refusal to write ``path`` (read-only, full, a file in the way) into a DataError."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        raise DataError(f"Cannot write {path}: {reason}. Free some space, or choose another folder.") from error


@contextmanager
def atomic_path(path: Path) -> Iterator[Path]:
    """A temporary path that becomes ``path`` when the block succeeds, and vanishes when it does not."""
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}.tmp")
    with storage_errors(path):
        try:
            yield temporary
            sync(temporary)
            temporary.replace(path)
            sync(path.parent)
        finally:
            temporary.unlink(missing_ok=True)


def sync(path: Path) -> None:
    """Force a file or a folder to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_json(path: Path, value: Any) -> None:
    """Write ``value`` as indented JSON, atomically. Not-a-number is refused: JSON has none."""
    with atomic_path(path) as temporary:
        temporary.write_text(json.dumps(value, indent=2, allow_nan=False) + "\n", encoding="utf-8")


def read_json(path: Path) -> Any:
    """The content of a JSON file; DataError where it is missing or damaged."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise DataError(f"Cannot read {path}: {error.strerror}.") from error
    except ValueError as error:
        raise DataError(f"{path} is not valid JSON: {error}.") from error


def write_rows(path: Path, rows: Sequence[Mapping[str, Any]], schema: pa.Schema) -> None:
    """Write one row for each mapping as Parquet, atomically; a column that a row lacks is null."""
    write_table(path, pa.Table.from_pylist(list(rows), schema=schema))


def write_table(path: Path, table: pa.Table) -> None:
    """Write an Arrow table as Parquet, atomically, with the schema's version in its metadata."""
    metadata = {**(table.schema.metadata or {}), b"schema_version": str(SCHEMA_VERSION).encode()}
    with atomic_path(path) as temporary:
        pq.write_table(table.replace_schema_metadata(metadata), temporary, write_page_checksum=True)


def read_table(path: Path, schema: pa.Schema) -> pa.Table:
    """Read a Parquet table that must have the columns of a schema, verified by the checksums of its pages.

    Raises:
        DataError: missing, damaged, of another schema version, or without one of the columns.
    """
    try:
        table = pq.read_table(path, partitioning=None, page_checksum_verification=True)
        table.validate(full=True)
    except (OSError, pa.ArrowException, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error).splitlines()[0]
        raise DataError(f"Cannot read {path}: {reason}.") from error
    version = (table.schema.metadata or {}).get(b"schema_version", b"none").decode()
    if version != str(SCHEMA_VERSION):
        raise DataError(f"{path} has schema version {version}; this program reads {SCHEMA_VERSION}.")
    for field in schema:
        if field.name not in table.column_names:
            raise DataError(f"{path} lacks the column {field.name!r}.")
        if table.schema.field(field.name).type != field.type:
            raise DataError(f"{path}: column {field.name!r} is {table.schema.field(field.name).type}, not {field.type}.")
    return table


def read_rows(path: Path, schema: pa.Schema) -> list[dict[str, Any]]:
    """The rows of a table written by :func:`write_rows`."""
    try:
        rows: list[dict[str, Any]] = read_table(path, schema).to_pylist()
    except ValueError as error:
        raise DataError(f"Cannot read {path}: {error}.") from error
    return rows


@contextmanager
def lock(folder: Path, what: str) -> Iterator[None]:
    """Hold a folder for one process; released by the system when the process ends, however it ends.

    Raises:
        UsageError: another process holds it.
    """
    with storage_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT, 0o644)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise UsageError(f"Another process is {what} {folder}.") from error
        yield
    finally:
        os.close(descriptor)
