"""Files of rows that users bring: CSV, TSV, JSON Lines or Parquet, compressed or not, read column
by column as a stream.

What a file is is told by its first bytes before its name, so that a wrong ending does no harm. Text
files are read by Arrow; where it refuses one, the file is read a second time, row by row, for the
line that is wrong.
"""

from __future__ import annotations

import csv
import io
import json
import lzma
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

from ncfbench.data.readers.lines import MOST_BYTES, decoded
from ncfbench.data.readers.parquet import PIECE_BYTES, PIECE_ROWS, Columns, pieces
from ncfbench.errors import DataError, UsageError, reason

HEADER_BYTES = 2**20
MOST_NESTED = 8
"""Lists in lists of JSON."""
FIRST_ROWS = 100
"""Of JSON Lines, looked at for the names of columns."""
DELIMITERS = {",": "commas", "\t": "tabs", ";": "semicolons", "|": "bars"}
_COMPRESSIONS = {
    b"\x1f\x8b": "gzip",
    b"BZh": "bz2",
    b"\x28\xb5\x2f\xfd": "zstd",
    b"\x04\x22\x4d\x18": "lz4",
    b"\xfd7zXZ\0": "xz",
}
_SUFFIXES = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd", ".lz4": "lz4", ".xz": "xz"}
_FORMATS = {
    ".csv": "csv",
    ".tsv": "csv",
    ".tab": "csv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
}


@dataclass(frozen=True)
class RowFile:
    """A file of rows and what its columns are called. Make one with :func:`open_rows`."""

    path: Path
    format: str
    """csv, jsonl or parquet."""
    compression: str | None = None
    delimiter: str = ","
    quotes: bool = True
    encoding: str = "utf-8"
    columns: tuple[str, ...] = ()
    """As the file spells them; of JSON Lines, those of its first rows."""
    warnings: tuple[str, ...] = field(default=(), compare=False)

    @property
    def summary(self) -> str:
        """What was recognised, in a few words."""
        kinds = {"jsonl": "JSON Lines", "parquet": "Parquet", "csv": f"CSV, {self._separators}"}
        return kinds[self.format] + (f", {self.compression}" if self.compression else "")

    @property
    def _separators(self) -> str:
        return DELIMITERS.get(self.delimiter, self.delimiter)

    def batches(self, columns: Sequence[str]) -> Iterator[tuple[int, Columns]]:
        """Runs of rows: the number of the first, from 0, and the named columns.

        CSV gives strings, and so does JSON Lines, lists of strings where there are lists; Parquet
        its own types.

        Raises:
            DataError: the file is damaged; the message names the line, or in Parquet the row.
        """
        start = 0
        try:
            for batch in {"csv": self._csv, "jsonl": self._jsonl, "parquet": self._parquet}[
                self.format
            ](columns):
                yield start, batch
                start += len(next(iter(batch.values())))
        except (
            pa.ArrowException,
            OSError,
            EOFError,
            lzma.LZMAError,
            MemoryError,
            UnicodeError,
        ) as error:
            if self.format == "csv":
                self._find_fault()
            raise DataError(f"{self.path}, after row {start}: {reason(error)}.") from error

    def has(self, name: str) -> bool:
        """Whether there is such a column; in JSON Lines a row far behind the first ones may be the
        only one to have it.
        """
        if name in self.columns or self.format != "jsonl":
            return name in self.columns
        return any(name in self._json_object(line, text) for line, text in self._json_lines())

    def refuse(self, row: int, reason: str) -> NoReturn:
        """Raise a DataError about a row, by its number from 0."""
        place = f"row {row + 1}"
        if self.format == "csv":
            reader = self._reader()
            for number, (line, _) in enumerate(reader, start=-1):
                if number == row:
                    place = f"line {line}"
                    break
        elif self.format == "jsonl":
            for number, (line, _) in enumerate(self._json_lines()):
                if number == row:
                    place = f"line {line}"
                    break
        raise DataError(f"{self.path}, {place}: {reason}")

    # --- CSV

    def _csv(self, columns: Sequence[str]) -> Iterator[Columns]:
        stream = _Counted(self._open())
        names = list(dict.fromkeys(columns))
        reader = pacsv.open_csv(
            pa.PythonFile(stream, "r"),
            read_options=pacsv.ReadOptions(
                use_threads=False,
                block_size=PIECE_BYTES,
                encoding=self.encoding,
                column_names=self.columns,
                skip_rows=1,
            ),
            parse_options=pacsv.ParseOptions(
                delimiter=self.delimiter,
                quote_char='"' if self.quotes else False,
                newlines_in_values=self.quotes,
            ),
            convert_options=pacsv.ConvertOptions(
                include_columns=names,
                column_types=dict.fromkeys(names, pa.string()),
                strings_can_be_null=False,
            ),
        )
        for batch in reader:
            if batch.num_rows:
                yield {name: batch[name] for name in names}
        if self.quotes and stream.quotes % 2:
            # Arrow takes the end of the file for the end of an open quote.
            self._find_fault()

    def _reader(self) -> Iterator[tuple[int, list[str]]]:
        """Each row of a CSV file that is not empty, the header too, and the number of the line on
        which it begins.
        """
        csv.field_size_limit(MOST_BYTES)
        with self._open() as file:
            reader = _csv_reader(
                decoded(file, self.path, self.encoding), self.delimiter, self.quotes
            )
            line = 1
            try:
                for row in reader:
                    if row:
                        yield line, row
                    line = reader.line_num + 1
            except csv.Error as error:
                raise DataError(
                    f"{self.path}, line {line}: {reason(error)}. Is a quote never closed, or the"
                    " file cut off?"
                ) from error

    def _find_fault(self) -> None:
        """Raise a DataError for the first line that is wrong, if one is."""
        try:
            for line, row in self._reader():
                if len(row) != len(self.columns):
                    raise DataError(
                        f"{self.path}, line {line}: {len(row)} fields where the header has"
                        f" {len(self.columns)}. Is the delimiter right ({self._separators}), or the"
                        " file cut off?"
                    )
        except (OSError, EOFError, lzma.LZMAError) as error:
            raise DataError(f"Cannot read {self.path}: {reason(error)}.") from error

    # --- JSON Lines

    def _jsonl(self, columns: Sequence[str]) -> Iterator[Columns]:
        rows: list[list[Any]] = []
        size = 0
        for line, text in self._json_lines():
            size += len(text)
            found = self._json_object(line, text)
            rows.append(
                [_plain(found.get(name), f"{self.path}, line {line}: {name}") for name in columns]
            )
            if len(rows) == PIECE_ROWS or size > PIECE_BYTES:
                yield _as_columns(columns, rows)
                rows, size = [], 0
        if rows:
            yield _as_columns(columns, rows)

    def _json_lines(self) -> Iterator[tuple[int, str]]:
        with self._open() as file:
            for number, line in enumerate(decoded(file, self.path), start=1):
                if not line.isspace():
                    yield number, line

    def _json_object(self, line: int, text: str) -> dict[str, Any]:
        try:
            found = json.loads(
                text, parse_constant=lambda name: None
            )  # NaN and its like, which JSON has not
        except (ValueError, RecursionError) as error:
            raise DataError(
                f"{self.path}, line {line}: not JSON ({reason(error)}). Is the file cut off?"
            ) from error
        if not isinstance(found, dict):
            advice = (
                " Make JSON Lines of an array: jq -c '.[]' old > new."
                if isinstance(found, list)
                else ""
            )
            raise DataError(f"{self.path}, line {line}: not a JSON object.{advice}")
        return found

    # --- Parquet

    def _parquet(self, columns: Sequence[str]) -> Iterator[Columns]:
        return pieces(self.path, columns, self.refuse)

    def _open(self) -> BinaryIO:
        """The content, without its compression."""
        if self.compression is None:
            return self.path.open("rb")
        if self.compression == "xz":
            return io.BufferedReader(lzma.open(self.path))
        return io.BufferedReader(
            pa.CompressedInputStream(pa.OSFile(str(self.path)), self.compression)
        )


def open_rows(
    path: Path, *, delimiter: str | None = None, quotes: bool = True, encoding: str = "utf-8"
) -> RowFile:
    """Look at a file: what it is, and what its columns are called.

    Args:
        delimiter: of a CSV file; None to see for oneself.

    Raises:
        DataError: it is missing, empty, or nothing that can be read.
        UsageError: an unknown encoding, or a delimiter that is not one character.
    """
    if delimiter is not None and len(delimiter) != 1:
        raise UsageError(
            f"--delimiter {delimiter!r}: it must be one character; of MovieLens's '::' make commas"
            " first."
        )
    try:
        "".encode(encoding)
    except (LookupError, UnicodeError):
        raise UsageError(
            f"--encoding {encoding}: not an encoding that Python knows, such as utf-8 or latin-1."
        ) from None
    if path.exists() and not path.is_file() and not path.is_dir():
        raise DataError(
            f"{path} is a pipe or a device, and is read more than once: write it to a file first."
        )
    try:
        with path.open("rb") as file:
            magic = file.read(8)
    except OSError as error:
        raise DataError(f"Cannot read {path}: {reason(error)}.") from error
    if not magic:
        raise DataError(f"{path} is empty.")
    if magic.startswith(b"PAR1"):
        return _open_parquet(path)
    if magic.startswith(b"PK\x03\x04"):
        raise DataError(f"{path} is a ZIP archive. Unpack it first: unzip {path.name}.")
    if magic.startswith(b"ARROW1"):
        raise DataError(f"{path} is an Arrow file. Write it as Parquet.")
    compression = next(
        (name for head, name in _COMPRESSIONS.items() if magic.startswith(head)), None
    )
    suffixes = [suffix.lower() for suffix in path.suffixes]
    claimed = _SUFFIXES.get(suffixes[-1]) if suffixes else None
    warnings = []
    if claimed != compression:
        found = f"compressed with {compression}" if compression else "not compressed"
        if claimed or suffixes:
            warnings = [f"{path.name} is {found}, whatever its name says; read as such."]
    inner = suffixes[:-1] if claimed else suffixes
    format_ = _FORMATS.get(inner[-1]) if inner else None
    if inner and inner[-1] == ".parquet":
        raise DataError(
            f"{path} is no Parquet file: it does not begin with PAR1. Is it cut off, or named"
            " wrongly?"
        )
    rows = RowFile(
        path,
        format_ or "csv",
        compression,
        quotes=quotes,
        encoding=encoding,
        warnings=tuple(warnings),
    )
    first = _first_line(rows)
    if format_ is None and first.lstrip().startswith(("{", "[")):
        rows = replace(rows, format="jsonl")
    if rows.format == "jsonl":
        keys = (
            key
            for line, text in islice(rows._json_lines(), FIRST_ROWS)
            for key in rows._json_object(line, text)
        )
        return replace(rows, columns=tuple(dict.fromkeys(keys)))
    return _with_header(
        rows, first, delimiter, "\t" if inner and inner[-1] in (".tsv", ".tab") else ","
    )


def _open_parquet(path: Path) -> RowFile:
    try:
        with pq.ParquetFile(path) as file:
            names = tuple(file.schema_arrow.names)
    except (pa.ArrowException, OSError, MemoryError) as error:
        raise DataError(f"{path} is damaged: {reason(error)}. Is the file cut off?") from error
    _refuse_twice(path, names)
    return RowFile(path, "parquet", columns=names)


def _refuse_twice(path: Path, names: Sequence[str]) -> None:
    twice = next((name for place, name in enumerate(names) if name in names[:place]), None)
    if twice is not None:
        raise DataError(
            f"{path}, line 1: the column {twice[:40]!r} is named twice. The first line must be a"
            " header."
        )


def _first_line(rows: RowFile) -> str:
    """The first line, or of JSON Lines the first that is not empty."""
    try:
        if rows.format == "jsonl":
            first = next((line for _, line in rows._json_lines()), None)
            if first is None:
                raise DataError(f"{rows.path} holds no row.")
            return first
        with rows._open() as file:
            line = next(decoded(file, rows.path, rows.encoding))
    except (OSError, EOFError, pa.ArrowException, lzma.LZMAError) as error:
        raise DataError(
            f"Cannot read {rows.path}: {reason(error)}. Is the file damaged, or cut off?"
        ) from error
    if len(line) > HEADER_BYTES:
        raise DataError(
            f"{rows.path}, line 1: a header of {len(line):,} characters. Is this a table?"
        )
    return line


def _with_header(rows: RowFile, first: str, delimiter: str | None, usual: str) -> RowFile:
    """A CSV file with the columns of its header, by the delimiter that makes the most columns of
    it.
    """
    counts = {
        mark: len(_split(first, mark, rows.quotes))
        for mark in (delimiter or usual, usual, *DELIMITERS)
    }
    if delimiter is None or counts[delimiter] == 1:  # asked for, but meant for the other file
        delimiter = max(counts, key=lambda mark: counts[mark])
        if "::" in first and counts[delimiter] == 1:
            raise DataError(
                f"{rows.path}, line 1: fields are separated by '::'. Make tabs of them, and give a"
                " header."
            )
    names = tuple(name.strip() for name in _split(first, delimiter, rows.quotes))
    _refuse_twice(rows.path, names)
    warnings = rows.warnings
    if not first.endswith("\n"):
        raise DataError(f"{rows.path} holds a header at most: it has one line.")
    if rows.compression is None and not _ends_with_a_line(rows.path):
        warnings += (
            f"Warning: {rows.path.name} does not end with the end of a line. Is it cut off?",
        )
    if delimiter != usual:
        warnings += (
            f"{rows.path.name}: fields are separated by {DELIMITERS.get(delimiter, delimiter)}.",
        )
    return replace(rows, delimiter=delimiter, columns=names, warnings=warnings)


def _ends_with_a_line(path: Path) -> bool:
    with path.open("rb") as file:
        file.seek(-1, io.SEEK_END)
        return file.read(1) in b"\r\n"


def _split(line: str, delimiter: str, quotes: bool) -> list[str]:
    try:
        return next(_csv_reader(iter([line]), delimiter, quotes), [])
    except csv.Error:
        return []


def _csv_reader(lines: Iterator[str], delimiter: str, quotes: bool) -> Any:
    return csv.reader(
        lines,
        delimiter=delimiter,
        quoting=csv.QUOTE_MINIMAL if quotes else csv.QUOTE_NONE,
        strict=True,
    )


def _plain(value: Any, what: str, depth: int = 0) -> str | list[str] | None:
    """A JSON value as a string, or a list of strings; half a pair of surrogates, as in a text that
    was cut, is replaced.

    Raises:
        DataError: an object, or true or false, or lists in lists in lists.
    """
    if value is None:
        return None
    if isinstance(value, str):
        return (
            value
            if value.isascii()
            else value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        )
    if isinstance(value, list):
        if depth == MOST_NESTED:
            raise DataError(f"{what} has lists in lists, {depth} deep and more.")
        parts = [_plain(part, what, depth + 1) for part in value]
        return [
            text
            for part in parts
            if part is not None
            for text in ([part] if isinstance(part, str) else part)
        ]
    if isinstance(value, dict | bool):
        raise DataError(f"{what} is {json.dumps(value)[:40]}, not a string, a number or a list.")
    return str(value)


def _as_columns(names: Sequence[str], rows: Sequence[Sequence[Any]]) -> Columns:
    columns = {}
    for name, values in zip(names, zip(*rows, strict=True), strict=True):
        if any(isinstance(value, list) for value in values):
            lists = [[value] if isinstance(value, str) else value for value in values]
            columns[name] = pa.array(lists, pa.list_(pa.string()))
        else:
            columns[name] = pa.array(values, pa.string())
    return columns


class _Counted(io.RawIOBase):
    """A stream, and how many quotation marks have come out of it."""

    def __init__(self, stream: BinaryIO) -> None:
        self.stream = stream
        self.quotes = 0

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        content = self.stream.read(size)
        self.quotes += content.count(b'"')
        return content

    def close(self) -> None:
        self.stream.close()
        super().close()
