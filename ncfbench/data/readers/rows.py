"""Files of rows that users bring, read column by column as a stream: CSV and JSON Lines.

Arrow reads CSV files. Where it refuses one, the file is read a second time, row by row, to find the
line that is wrong.
"""

from __future__ import annotations

import csv
import io
import json
import lzma
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, ClassVar, NoReturn, TypeAlias

import pyarrow as pa
import pyarrow.csv as pacsv

from ncfbench.data.readers.files import MOST_BYTES, decoded
from ncfbench.errors import DataError, reason

Columns: TypeAlias = Mapping[str, pa.Array]
PIECE_BYTES = 2**24
"""Bytes of a file read at a time."""
PIECE_ROWS = 2**16
"""Rows read at a time, at most."""
MOST_NESTED = 8
"""Levels of lists within lists that JSON may have."""
FIRST_ROWS = 100
"""Rows of JSON Lines that are searched for the names of columns."""
DELIMITERS = {",": "commas", "\t": "tabs", ";": "semicolons", "|": "bars"}
DAMAGED = (pa.ArrowException, OSError, EOFError, lzma.LZMAError)
"""Errors of a damaged or truncated file."""


@dataclass(frozen=True)
class RowFile(ABC):
    """A file of rows and the names of its columns; :func:`ncfbench.data.readers.opening.open_rows`
    makes one.

    Args:
        columns: names as the file spells them; of JSON Lines, those of its first rows.
        compression: its name in Arrow, or ``xz``; None without any.
    """

    format: ClassVar[str]

    path: Path
    columns: tuple[str, ...] = ()
    compression: str | None = None
    warnings: tuple[str, ...] = field(default=(), compare=False)

    @property
    def summary(self) -> str:
        """Format, delimiter and compression, in a few words."""
        return self.format + (f", {self.compression}" if self.compression else "")

    def batches(self, columns: Sequence[str]) -> Iterator[tuple[int, Columns]]:
        """Yield runs of rows: the number of the first, from 0, and the named columns.

        CSV gives strings; JSON Lines gives strings, or lists of strings where it has lists; Parquet
        gives its own types.

        Raises:
            DataError: the file is damaged; the message names the line, or in Parquet the row.
        """
        start = 0
        try:
            for batch in self.read(columns):
                yield start, batch
                start += len(next(iter(batch.values())))
        except (*DAMAGED, MemoryError, UnicodeError) as error:
            raise self.fault(start, error) from error

    @abstractmethod
    def read(self, columns: Sequence[str]) -> Iterator[Columns]:
        """Yield runs of rows with the named columns."""

    def fault(self, row: int, error: BaseException) -> DataError:
        """Return what is wrong after a row, by its number from 0."""
        return DataError(f"{self.path}, after row {row}: {reason(error)}.")

    def has(self, name: str) -> bool:
        """Return whether there is such a column."""
        return name in self.columns

    def location(self, row: int) -> str:
        """Return how messages name a row, by its number from 0."""
        return f"row {row + 1}"

    def refuse(self, row: int, why: str) -> NoReturn:
        """Raise a DataError about a row, by its number from 0."""
        raise DataError(f"{self.path}, {self.location(row)}: {why}")

    def open(self) -> BinaryIO:
        """Open the content, decompressed."""
        if self.compression is None:
            return self.path.open("rb")
        if self.compression == "xz":
            return io.BufferedReader(lzma.open(self.path))
        return io.BufferedReader(
            pa.CompressedInputStream(pa.OSFile(str(self.path)), self.compression)
        )


@dataclass(frozen=True)
class CsvFile(RowFile):
    """Comma-separated values, or values with another delimiter; the first line is a header."""

    format: ClassVar[str] = "CSV"

    delimiter: str = ","
    quotes: bool = True
    encoding: str = "utf-8"

    @property
    def summary(self) -> str:
        """Format, delimiter and compression, in a few words."""
        compression = f", {self.compression}" if self.compression else ""
        return f"{self.format}, {self._separators}{compression}"

    @property
    def _separators(self) -> str:
        return DELIMITERS.get(self.delimiter, self.delimiter)

    def read(self, columns: Sequence[str]) -> Iterator[Columns]:
        """Yield runs of rows with the named columns."""
        stream = _QuoteCounter(self.open())
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
            # Arrow lets the end of the file close an open quote.
            self._find_fault()

    def fault(self, row: int, error: BaseException) -> DataError:
        """Return what is wrong after a row; raises it where a line can be named."""
        self._find_fault()
        return super().fault(row, error)

    def _find_fault(self) -> None:
        """Raise a DataError for the first faulty line, if there is one."""
        try:
            for line, row in self._rows():
                if len(row) != len(self.columns):
                    raise DataError(
                        f"{self.path}, line {line}: {len(row)} fields where the header has"
                        f" {len(self.columns)}. Is the delimiter right ({self._separators}), or the"
                        " file cut off?"
                    )
        except DAMAGED as error:
            raise DataError(f"Cannot read {self.path}: {reason(error)}.") from error

    def location(self, row: int) -> str:
        """Return the line on which a row begins."""
        found = next(islice(self._rows(), row + 1, None), None)  # behind the header
        return super().location(row) if found is None else f"line {found[0]}"

    def _rows(self) -> Iterator[tuple[int, list[str]]]:
        """Yield each row that is not empty, header included, with the line on which it begins."""
        csv.field_size_limit(MOST_BYTES)
        with self.open() as file:
            reader = csv_reader(
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


@dataclass(frozen=True)
class JsonLinesFile(RowFile):
    """A JSON object on each line; empty lines do not count."""

    format: ClassVar[str] = "JSON Lines"

    def read(self, columns: Sequence[str]) -> Iterator[Columns]:
        """Yield runs of rows with the named columns."""
        rows: list[list[Any]] = []
        size = 0
        for line, text in self.lines():
            size += len(text)
            found = self._object(line, text)
            rows.append(
                [_plain(found.get(name), f"{self.path}, line {line}: {name}") for name in columns]
            )
            if len(rows) == PIECE_ROWS or size > PIECE_BYTES:
                yield _as_columns(columns, rows)
                rows, size = [], 0
        if rows:
            yield _as_columns(columns, rows)

    def has(self, name: str) -> bool:
        """Return whether any row has such a column: it may be one far behind the first rows."""
        return name in self.columns or any(
            name in self._object(line, text) for line, text in self.lines()
        )

    def location(self, row: int) -> str:
        """Return the line of a row."""
        found = next(islice(self.lines(), row, None), None)
        return super().location(row) if found is None else f"line {found[0]}"

    def lines(self) -> Iterator[tuple[int, str]]:
        """Yield the number and the text of each line that is not empty."""
        with self.open() as file:
            for number, line in enumerate(decoded(file, self.path), start=1):
                if not line.isspace():
                    yield number, line

    def first_names(self) -> tuple[str, ...]:
        """Return the names of the columns of the first rows."""
        first = islice(self.lines(), FIRST_ROWS)
        return tuple(dict.fromkeys(key for line, text in first for key in self._object(line, text)))

    def _object(self, line: int, text: str) -> dict[str, Any]:
        try:
            # NaN and its like, which JSON lacks, count as missing.
            found = json.loads(text, parse_constant=lambda name: None)
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


def csv_reader(lines: Iterator[str], delimiter: str, quotes: bool) -> Any:
    """Return Python's reader of CSV, which refuses what is malformed."""
    return csv.reader(
        lines,
        delimiter=delimiter,
        quoting=csv.QUOTE_MINIMAL if quotes else csv.QUOTE_NONE,
        strict=True,
    )


def _plain(value: Any, what: str, depth: int = 0) -> str | list[str] | None:
    """Return a JSON value as a string or a list of strings; half of a surrogate pair, as in a text
    that was cut, is replaced.

    Raises:
        DataError: an object, true or false, or too many lists within lists.
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


class _QuoteCounter(io.RawIOBase):
    """A stream that counts the quotation marks read from it."""

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
