"""Tables that users bring, read whole: CSV, JSON Lines and Parquet."""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from pathlib import Path
from typing import NoReturn
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ncfbench.data.csv_rows import CsvRows
from ncfbench.data.files import parquet_files, visible_files
from ncfbench.data.json_lines import JsonLines
from ncfbench.errors import DataError, reason

_DAMAGED = (pa.ArrowException, OSError, EOFError, MemoryError)
_COMPRESSIONS = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd", ".lz4": "lz4"}
"""Compressions by the suffixes that mean them."""
_CSV, _JSON = (".csv", ".tsv", ".tab"), (".jsonl", ".ndjson", ".json")
_SHEETS = (".xlsx", ".xlsm", ".xlsb", ".xls", ".ods", ".numbers")
_MARKUP = re.compile(
    rb"\s*(<!--|<(!doctype|\?xml|html|head|meta|body|table|workbook)\b|mime-version:)",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Table:
    """A file of rows; make one with :func:`read_table`.

    Args:
        summary: format, delimiter and compression, in a few words.
        names: names of the columns, as the file spells them.
        load: returns the values of a column.
        locate: returns how messages name a row, by its number from 0.
    """

    path: Path
    summary: str
    names: tuple[str, ...]
    load: Callable[[str], pa.ChunkedArray] = field(compare=False)
    locate: Callable[[int], str] = field(compare=False)
    warnings: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for index, name in enumerate(self.names):
            if name in self.names[:index]:
                raise DataError(
                    f"{self.path}, line 1: the column {name[:40]!r} is named twice. The first line"
                    " must be a header."
                )

    def __getitem__(self, name: str) -> Column:
        """Return a column: of strings where the format is text, else of the file's own types."""
        try:
            values = self.load(name)
        except _DAMAGED as error:
            raise DataError(f"{self.path}: {name} is damaged: {reason(error)}.") from error
        if pa.types.is_dictionary(values.type):
            values = values.cast(values.type.value_type)
        if pa.types.is_large_string(values.type) or pa.types.is_string_view(values.type):
            values = values.cast(pa.string())
        return Column(self, name, values)


@dataclass(frozen=True)
class Column:
    """A column of a table."""

    table: Table
    name: str
    values: pa.ChunkedArray

    def refuse(self, row: int, why: str) -> NoReturn:
        """Raise a DataError about a row, by its number from 0."""
        raise DataError(f"{self.table.path}, {self.table.locate(row)}: {self.name} {why}")


def read_table(path: Path) -> Table:
    """Read a file, or a folder of Parquet files; text is UTF-8.

    Raises:
        DataError: the file is missing, empty, damaged, or of no known format.
    """
    warnings: list[str] = []
    if path.is_dir():
        parts = parquet_files(path)
        if others := [file.name for file in visible_files(path) if file not in parts]:
            warnings = [f"Warning: {path.name} has other files than .parquet, such as {others[0]}."]
        return _parquet(path, parts, warnings)
    content = _content(path)
    if content.startswith(b"PAR1"):
        return _parquet(path, [path], warnings)
    suffixes = [suffix.lower() for suffix in path.suffixes]
    compression = _COMPRESSIONS.get("".join(suffixes[-1:]))
    suffix = "".join((suffixes[:-1] if compression else suffixes)[-1:])
    content = _utf8(content, path)
    if _MARKUP.match(content):
        raise DataError(
            f"{path} is HTML or XML, not a table. If a spreadsheet wrote it, open it there, and"
            " save it as CSV, with its ids as text."
        )
    rows: CsvRows | JsonLines
    if suffix in _JSON or (suffix not in _CSV and content.lstrip()[:1] in (b"{", b"[")):
        rows, summary = JsonLines(path, content), "JSON Lines"
    else:
        usual = "\t" if suffix in (".tsv", ".tab") else ","
        rows = CsvRows(path, content, usual)
        summary = f"CSV, {rows.separators}"
        if rows.delimiter != usual:
            warnings.append(f"{path.name}: fields are separated by {rows.separators}.")
        warnings += rows.warnings
        if not compression and not content.endswith(b"\n"):
            warnings.append(
                f"Warning: {path.name} does not end with the end of a line. Is it cut off?"
            )
    summary += f", {compression}" if compression else ""
    return Table(path, summary, rows.names, rows.column, rows.locate, tuple(warnings))


def _content(path: Path) -> bytes:
    """Return the content of a file, decompressed where its suffix says so; of Parquet the first
    bytes.
    """
    if path.exists() and not path.is_file():
        raise DataError(
            f"{path} is a pipe or a device, and must be read more than once: write it to a file"
            " first."
        )
    try:
        with path.open("rb") as file:
            content = file.read(4)
        if content == b"PAR1":
            return content
        compression = _COMPRESSIONS.get(path.suffix.lower())
        with pa.input_stream(str(path), compression=compression) as stream:
            content = bytes(stream.read())
    except _DAMAGED as error:
        raise DataError(
            f"Cannot read {path}: {reason(error)}. Is the file damaged, or cut off?"
        ) from error
    if not content:
        raise DataError(f"{path} is empty.")
    is_zip = content.startswith(b"PK\x03\x04")
    is_sheet = content.startswith(b"\xd0\xcf\x11\xe0") or (
        is_zip
        and (path.suffix.lower() in _SHEETS or b"xl/work" in content or b"ument.sp" in content[:99])
    )
    if is_sheet:
        raise DataError(f"{path} is a spreadsheet. Save it as CSV, with its ids as text.")
    if is_zip:
        raise DataError(f"{path} is a ZIP archive. Unpack it first: unzip {path.name}.")
    if content.startswith(b"ARROW1"):
        raise DataError(f"{path} is an Arrow file. Write it as Parquet.")
    if path.suffix == ".parquet" and not content.startswith(b"PAR1"):
        raise DataError(
            f"{path} is not a Parquet file: it does not begin with PAR1. Is it cut off, or named"
            " wrongly?"
        )
    return content


def _utf8(content: bytes, path: Path) -> bytes:
    """Return the content without a byte order mark; refuse what is not UTF-8."""
    convert = f"iconv -f {{}} -t UTF-8 {path.name} > new"
    if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise DataError(f"{path} is UTF-16. Convert it: {convert.format('UTF-16')}.")
    try:
        content.decode()
    except UnicodeDecodeError as error:
        line, byte = content.count(b"\n", 0, error.start) + 1, content[error.start]
        raise DataError(
            f"{path}, line {line}: byte 0x{byte:02x} is not valid UTF-8. Convert the file:"
            f" {convert.format('LATIN1')}, for example; or, if it is compressed, name it by its"
            f" suffix: {', '.join(_COMPRESSIONS)}."
        ) from error
    if (zero := content.find(b"\0")) >= 0:
        line = content.count(b"\n", 0, zero) + 1
        raise DataError(
            f"{path}, line {line}: a zero byte. If the file is UTF-16, convert it:"
            f" {convert.format('UTF-16LE')}."
        )
    return content.removeprefix(codecs.BOM_UTF8)


def _parquet(path: Path, parts: Sequence[Path], warnings: Sequence[str]) -> Table:
    """Look at Parquet files, whose columns are read when they are wanted; folders such as
    ``year=2020`` hold a column.
    """
    if not parts:
        raise DataError(f"{path} is a folder without a .parquet file.")
    names: tuple[str, ...] = ()
    folders = [_folder_values(part.relative_to(path)) for part in parts]
    for part in parts:
        try:
            columns = tuple(pq.read_schema(part).names)
        except _DAMAGED as error:
            raise DataError(f"{part} is damaged: {reason(error)}. Is the file cut off?") from error
        names = names or columns
        if set(columns) != set(names):
            raise DataError(f"{part} has other columns than {parts[0]}: {', '.join(columns)}.")
    summary = f"{len(parts)} Parquet files" if path.is_dir() else "Parquet"
    of_folders = [name for name in dict.fromkeys(chain(*folders)) if name not in names]
    names = (*names, *of_folders)
    load = partial(_parquet_column, parts, folders, of_folders)
    return Table(path, summary, names, load, lambda row: f"row {row + 1}", tuple(warnings))


def _folder_values(part: Path) -> dict[str, str | None]:
    """Return the values that a file's folders give, as Hive and Spark name these."""
    pairs = (map(unquote, folder.split("=", 1)) for folder in part.parts[:-1] if "=" in folder)
    return {name: None if text == "__HIVE_DEFAULT_PARTITION__" else text for name, text in pairs}


def _parquet_column(
    parts: Sequence[Path],
    folders: Sequence[Mapping[str, str | None]],
    of_folders: Sequence[str],
    name: str,
) -> pa.ChunkedArray:
    """Return a column of some files; as strings where they store it in several types, or where it
    is one of their folders.
    """
    if name in of_folders:
        values = [pa.scalar(values.get(name), pa.string()) for values in folders]
        rows = [pq.read_metadata(part).num_rows for part in parts]
        return pa.chunked_array(list(map(pa.repeat, values, rows)))
    columns = []
    for part, of_part in zip(parts, folders, strict=True):
        with pq.ParquetFile(part, page_checksum_verification=True, pre_buffer=False) as file:
            column = file.read([name], use_threads=False).column(name)
        column.validate(full=True)
        if name in of_part:
            _require_value(part, name, column, of_part[name])
        columns.append(column)
    if len({column.type for column in columns}) > 1:
        for part, column in zip(parts, columns, strict=True):
            if not pa.types.is_floating(column.type):
                continue
            digits = np.finfo(column.type.to_pandas_dtype()).nmant + 1
            if (pc.max(pc.abs(column.cast(pa.float64()))).as_py() or 0) >= 2**digits:
                raise DataError(
                    f"{part}: {name} has floats from 2^{digits}, which have lost digits, and is of"
                    " another type in other parts. Write all parts with that type."
                )
        columns = [column.cast(pa.string()) for column in columns]
    chunks = [chunk for column in columns for chunk in column.chunks]
    return pa.chunked_array(chunks, columns[0].type)


def _require_value(part: Path, name: str, column: pa.ChunkedArray, value: str | None) -> None:
    """Refuse a file's column that differs from the value that a folder gives."""
    values, wanted = column.cast(pa.string()), pa.scalar(value, pa.string())
    # As values of the column where the folder's text is one, so that 00 is 0; else as texts.
    with suppress(pa.ArrowInvalid, pa.ArrowNotImplementedError):
        values, wanted = column, wanted.cast(column.type)
    if value is None:
        differs = pc.is_valid(values)
    else:
        differs = pc.fill_null(pc.not_equal(values, wanted), True)
    if (row := pc.index(differs, True).as_py()) >= 0:
        raise DataError(
            f"{part}: {name} is {str(column[row].as_py())[:40]!r} in row {row + 1} of the file, and"
            f" {value!r} by its folder. Rename the folder, or leave out the file's column."
        )
