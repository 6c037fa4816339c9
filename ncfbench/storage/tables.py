"""Files on disk, tables above all, that are complete or absent.

Every file is written under a temporary name, synced and renamed, so a killed process leaves the old
file or the new one. Symbolic links stay, and devices and pipes are written to. Each table carries
the name and version of its schema (:mod:`ncfbench.storage.schemas`) in its metadata.
"""

from __future__ import annotations

import errno
import json
import os
import shlex
import shutil
import stat
import tempfile
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import ArrayLike, NDArray

from ncfbench.errors import DataError, reason
from ncfbench.storage.schemas import SCHEMA_VERSION

COMPACT = {
    "compression": "zstd",
    "store_schema": False,
    "write_page_checksum": True,
    "write_statistics": False,
}
"""How Parquet is written: tables of a run have one row to some hundreds, and Arrow's own schema and
the statistics of each column took more than half of their bytes.
"""
COMPACTEST = COMPACT | {"use_dictionary": False, "compression_level": 19}
"""The same for copies that are kept, a fifth smaller: as few bytes as can be, slower to write."""


@contextmanager
def storage_errors(path: Path) -> Iterator[None]:
    """Turn the operating system's refusal to write ``path`` (read-only, full, a file in the way)
    into a DataError that says what to do. A pipe without a reader stays a BrokenPipeError.
    """
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            advice = "Free some space, or choose another folder."
        elif error.errno == errno.ENOENT and not path.parent.exists():
            advice = f"Make the folder first: mkdir -p {shlex.quote(str(path.parent))}"
        else:
            advice = "Choose another folder."
        raise DataError(f"Cannot write {path}: {reason(error)}. {advice}") from error


def require_writable(folder: Path) -> None:
    """Refuse a folder in which no file can be made, made or not, by a DataError; leave nothing."""
    with storage_errors(folder):
        present = next(path for path in (folder, *folder.parents) if path.exists())
        with tempfile.TemporaryFile(dir=present):
            pass


@contextmanager
def reading(path: Path, advice: str = "") -> Iterator[None]:
    """Turn whatever a missing or damaged file raises into a DataError, which ends with advice."""
    try:
        yield
    except (OSError, EOFError, pa.ArrowException, ValueError) as error:
        # Arrow's words for a missing file name its path again.
        why = "No such file" if isinstance(error, FileNotFoundError) else reason(error)
        raise DataError(f"Cannot read {path}: {why}. {advice}".rstrip()) from error


@contextmanager
def atomic_path(path: Path) -> Iterator[Path]:
    """Yield a temporary path that becomes ``path`` when the block succeeds, and is removed
    otherwise.

    A symbolic link stays: the file that it names is replaced, or made. A device, a pipe and an open
    descriptor such as ``/dev/stdout`` get the content.
    """
    with storage_errors(path):
        is_stream = _is_stream(path)
        target = Path(tempfile.gettempdir(), "stream" if is_stream else os.path.realpath(path))
        temporary = target.with_name(f".{target.name}.{uuid.uuid4().hex[:8]}.tmp")
        try:
            yield temporary
            if is_stream:
                number = _descriptor(path)
                opened = os.open(path, os.O_WRONLY) if number is None else os.dup(number)
                with temporary.open("rb") as file, os.fdopen(opened, "wb") as stream:
                    shutil.copyfileobj(file, stream)
            else:
                sync(temporary)
                temporary.replace(target)
                sync(target.parent)
        finally:
            temporary.unlink(missing_ok=True)


def _is_stream(path: Path) -> bool:
    """Return whether a path names an open descriptor, or what is neither a file nor a folder."""
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        return False
    is_kept = stat.S_ISREG(mode) or stat.S_ISDIR(mode)
    return not is_kept or _descriptor(path) is not None


def _descriptor(path: Path) -> int | None:
    """Return the open descriptor that a path such as ``/dev/stdout`` or ``/dev/fd/3`` names."""
    descriptors = f"/proc/{os.getpid()}/fd"
    while os.path.realpath(path.parent) != descriptors and path.is_symlink():
        path = path.parent / path.readlink()
    return int(path.name) if os.path.realpath(path.parent) == descriptors else None


@contextmanager
def atomic_folder(path: Path) -> Iterator[Path]:
    """Yield a temporary folder that takes the place of ``path`` when the block succeeds, and is
    removed otherwise. A symbolic link stays, and the folder that it names is replaced.
    """
    path = Path(os.path.realpath(path))
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}.tmp")
    replaced = temporary.with_suffix(".old")
    with storage_errors(path):
        try:
            temporary.mkdir(parents=True)
            yield temporary
            if path.exists():
                path.rename(replaced)
            temporary.rename(path)
            sync(path.parent)
        finally:
            if replaced.exists() and not path.exists():
                replaced.rename(path)
            for left in (temporary, replaced):
                shutil.rmtree(left, ignore_errors=True)


def sync(path: Path) -> None:
    """Force a file or a folder to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_text(path: Path, text: str) -> None:
    """Write text as UTF-8, atomically; DataError where it cannot be written."""
    with atomic_path(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_json(path: Path, value: Any) -> None:
    """Write ``value`` as indented JSON, atomically; NaN is refused, since JSON has none."""
    write_text(path, json.dumps(value, indent=2, allow_nan=False) + "\n")


def read_json(path: Path) -> Any:
    """Return the content of a JSON file; DataError where it is missing or damaged."""
    with reading(path):
        return json.loads(path.read_text(encoding="utf-8"))


def write_rows(path: Path, rows: Sequence[Mapping[str, Any]], schema: pa.Schema) -> None:
    """Write one row for each mapping as Parquet, atomically; columns that a row lacks are null."""
    write_table(path, [pa.Table.from_pylist(list(rows), schema=schema)], schema)


def write_table(
    path: Path, parts: Iterable[pa.Table], schema: pa.Schema, options: Mapping[str, Any] = COMPACT
) -> None:
    """Write a table that comes in parts as Parquet, atomically, one part in memory at a time.

    Args:
        schema: the schema of every part, whose metadata is kept beside the schema's version.
        options: of Parquet.
    """
    with atomic_path(path) as temporary, pq.ParquetWriter(temporary, schema, **options) as file:
        for part in parts:
            file.write_table(part)
        version = {b"schema_version": str(SCHEMA_VERSION).encode()}
        file.add_key_value_metadata((schema.metadata or {}) | version)


def read_table(path: Path, schema: pa.Schema) -> pa.Table:
    """Read a Parquet table, which must have the columns of a schema, and verify its checksums.

    Raises:
        DataError: the file is missing or damaged, another version of this program wrote it, or it
            lacks a column.
    """
    table = _read(path)
    version = (table.schema.metadata or {}).get(b"schema_version", b"0").decode()
    if version != str(SCHEMA_VERSION):
        raise DataError(
            f"{path} has schema version {version}; this program reads version {SCHEMA_VERSION}."
            " Make it again, or use the version of ncfbench that wrote it."
        )
    # Arrow makes its names and types anew each time that it is asked for them.
    types = dict(zip(table.schema.names, table.schema.types, strict=True))
    for name, dtype in zip(schema.names, schema.types, strict=True):
        if name not in types:
            raise DataError(f"{path} is damaged: it lacks the column {name!r}.")
        if types[name] != dtype:
            raise DataError(f"{path}: column {name!r} is {types[name]}, not {dtype}.")
    return table


def _read(path: Path) -> pa.Table:
    # Opened once, since another process may replace the file meanwhile.
    with reading(path), pa.OSFile(str(path)) as file:
        # Not pq.read_table: its data set takes longer than a small table.
        table = pq.ParquetFile(file, page_checksum_verification=True).read()
        table.validate(full=True)
    return table


def read_rows(path: Path, schema: pa.Schema) -> list[dict[str, Any]]:
    """Return the rows of a table written by :func:`write_rows`; see :func:`read_table`."""
    with reading(path):
        rows: list[dict[str, Any]] = read_table(path, schema).to_pylist()
    return rows


def write_array(path: Path, array: ArrayLike, dtype: type[np.generic] | None = None) -> None:
    """Write an array as a NumPy file, atomically."""
    whole = np.ascontiguousarray(array, dtype)
    with atomic_path(path) as temporary, temporary.open("wb") as file:
        header = np.lib.format.header_data_from_array_1_0(whole)
        np.lib.format.write_array_header_1_0(file, header)
        # Not np.save, whose error lacks the system's reason.
        file.write(whole.reshape(-1).view(np.uint8).data)


def read_array(path: Path, dtype: type[np.generic], axes: int) -> NDArray[Any]:
    """Map the file of an array into memory; its content is read when it is used.

    Raises:
        DataError: the file is missing or damaged, or its array has another type or shape.
    """
    with reading(path):
        # An empty array, a file of 128 bytes, cannot be mapped.
        is_empty = path.stat().st_size <= 128
        array = np.load(path, mmap_mode=None if is_empty else "r", allow_pickle=False)
    if not isinstance(array, np.ndarray) or array.dtype != dtype or array.ndim != axes:
        raise DataError(f"{path} is not an array of {np.dtype(dtype)} with {axes} axes.")
    return array
