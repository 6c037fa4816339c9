"""Recognise a file of rows: format, compression, delimiter, names of columns.

A file's first bytes decide before its name does, so a wrong suffix does no harm.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from ncfbench.data.readers.files import decoded
from ncfbench.data.readers.parquet import ParquetFile
from ncfbench.data.readers.rows import (
    DAMAGED,
    DELIMITERS,
    CsvFile,
    JsonLinesFile,
    RowFile,
    csv_reader,
)
from ncfbench.errors import DataError, UsageError, reason

HEADER_BYTES = 2**20
_COMPRESSIONS = {
    b"\x1f\x8b": "gzip",
    b"BZh": "bz2",
    b"\x28\xb5\x2f\xfd": "zstd",
    b"\x04\x22\x4d\x18": "lz4",
    b"\xfd7zXZ\0": "xz",
}
_SUFFIXES = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd", ".lz4": "lz4", ".xz": "xz"}
_CSV, _JSON = (".csv", ".tsv", ".tab"), (".jsonl", ".ndjson", ".json")


def open_rows(
    path: Path, *, delimiter: str | None = None, quotes: bool = True, encoding: str = "utf-8"
) -> RowFile:
    """Look at a file: its format, and the names of its columns.

    Args:
        delimiter, quotes, encoding: of CSV files; a delimiter of None is found.

    Raises:
        DataError: the file is missing, empty, or of no known format.
        UsageError: an unknown encoding, or a delimiter that is not one character.
    """
    _require_readable(delimiter, encoding)
    magic = _first_bytes(path)
    if magic.startswith(b"PAR1"):
        return _open_parquet(path)
    compression = next(
        (name for head, name in _COMPRESSIONS.items() if magic.startswith(head)), None
    )
    suffixes = [suffix.lower() for suffix in path.suffixes]
    claimed = _SUFFIXES.get(suffixes[-1]) if suffixes else None
    warnings: tuple[str, ...] = ()
    if claimed != compression and suffixes:
        found = f"compressed with {compression}" if compression else "not compressed"
        warnings = (f"{path.name} is {found}, whatever its name says; read as such.",)
    inner = suffixes[-2:-1] if claimed else suffixes[-1:]
    suffix = inner[0] if inner else ""
    if suffix == ".parquet":
        raise DataError(
            f"{path} is not a Parquet file: it does not begin with PAR1. Is it cut off, or named"
            " wrongly?"
        )
    table = CsvFile(
        path, compression=compression, warnings=warnings, quotes=quotes, encoding=encoding
    )
    lines = JsonLinesFile(path, compression=compression, warnings=warnings)
    if suffix not in _JSON:
        first = _header(table)
        if suffix in _CSV or not first.lstrip().startswith(("{", "[")):
            usual = "\t" if suffix in (".tsv", ".tab") else ","
            return _with_header(table, first, delimiter, usual)
    return replace(lines, columns=_json_names(lines))


def _require_readable(delimiter: str | None, encoding: str) -> None:
    if delimiter is not None and len(delimiter) != 1:
        raise UsageError(
            f"--delimiter {delimiter!r}: it must be one character; replace MovieLens's '::' by"
            " commas first."
        )
    try:
        "".encode(encoding)
    except (LookupError, UnicodeError):
        raise UsageError(
            f"--encoding {encoding}: not an encoding that Python knows, such as utf-8 or latin-1."
        ) from None


def _first_bytes(path: Path) -> bytes:
    """Return the first bytes of a file; refuse what is not a file of rows."""
    if path.exists() and not path.is_file() and not path.is_dir():
        raise DataError(
            f"{path} is a pipe or a device, and must be read more than once: write it to a file"
            " first."
        )
    try:
        with path.open("rb") as file:
            magic = file.read(8)
    except OSError as error:
        raise DataError(f"Cannot read {path}: {reason(error)}.") from error
    if not magic:
        raise DataError(f"{path} is empty.")
    if magic.startswith(b"PK\x03\x04"):
        raise DataError(f"{path} is a ZIP archive. Unpack it first: unzip {path.name}.")
    if magic.startswith(b"ARROW1"):
        raise DataError(f"{path} is an Arrow file. Write it as Parquet.")
    return magic


def _open_parquet(path: Path) -> ParquetFile:
    try:
        with pq.ParquetFile(path) as file:
            names = tuple(file.schema_arrow.names)
    except (pa.ArrowException, OSError, MemoryError) as error:
        raise DataError(f"{path} is damaged: {reason(error)}. Is the file cut off?") from error
    _refuse_repeated(path, names)
    return ParquetFile(path, names)


def _json_names(rows: JsonLinesFile) -> tuple[str, ...]:
    try:
        if next(rows.lines(), None) is None:
            raise DataError(f"{rows.path} holds no row.")
        return rows.first_names()
    except DAMAGED as error:
        raise _unreadable(rows, error) from error


def _header(rows: CsvFile) -> str:
    """Return the first line."""
    try:
        with rows.open() as file:
            line = next(decoded(file, rows.path, rows.encoding))
    except DAMAGED as error:
        raise _unreadable(rows, error) from error
    if len(line) > HEADER_BYTES:
        raise DataError(
            f"{rows.path}, line 1: a header of {len(line):,} characters. Is this a table?"
        )
    return line


def _unreadable(rows: RowFile, error: BaseException) -> DataError:
    return DataError(f"Cannot read {rows.path}: {reason(error)}. Is the file damaged, or cut off?")


def _with_header(rows: CsvFile, first: str, delimiter: str | None, usual: str) -> CsvFile:
    """Find the delimiter that gives most columns, and the names of the columns."""
    counts = {
        mark: len(_split(first, mark, rows.quotes))
        for mark in (delimiter or usual, usual, *DELIMITERS)
    }
    # A delimiter that was asked for may be meant for the other file.
    if delimiter is None or counts[delimiter] == 1:
        delimiter = max(counts, key=lambda mark: counts[mark])
        if "::" in first and counts[delimiter] == 1:
            raise DataError(
                f"{rows.path}, line 1: fields are separated by '::'. Replace it by tabs, and give"
                " the file a header."
            )
    names = tuple(name.strip() for name in _split(first, delimiter, rows.quotes))
    _refuse_repeated(rows.path, names)
    if not first.endswith("\n"):
        raise DataError(f"{rows.path} has only one line, so it holds a header at most.")
    warnings = rows.warnings
    if rows.compression is None and not _ends_with_a_line(rows.path):
        warnings += (
            f"Warning: {rows.path.name} does not end with the end of a line. Is it cut off?",
        )
    if delimiter != usual:
        warnings += (
            f"{rows.path.name}: fields are separated by {DELIMITERS.get(delimiter, delimiter)}.",
        )
    return replace(rows, delimiter=delimiter, columns=names, warnings=warnings)


def _refuse_repeated(path: Path, names: Sequence[str]) -> None:
    repeated = next((name for index, name in enumerate(names) if name in names[:index]), None)
    if repeated is not None:
        raise DataError(
            f"{path}, line 1: the column {repeated[:40]!r} is named twice. The first line must be a"
            " header."
        )


def _ends_with_a_line(path: Path) -> bool:
    with path.open("rb") as file:
        file.seek(-1, io.SEEK_END)
        return file.read(1) in b"\r\n"


def _split(line: str, delimiter: str, quotes: bool) -> list[str]:
    try:
        return next(csv_reader(iter([line]), delimiter, quotes), [])
    except csv.Error:
        return []
