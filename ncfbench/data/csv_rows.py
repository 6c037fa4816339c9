"""CSV files: Arrow reads them, and Python's strict reader finds what Arrow lets pass.

Arrow lets the end of a file close an open quotation mark, and joins what stands after a closing one
to its field: rows would become words of another row.
"""

from __future__ import annotations

import csv
import io
import re
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv

from ncfbench.data.files import MOST_BYTES
from ncfbench.errors import DataError, reason

DELIMITERS = {",": "commas", "\t": "tabs", ";": "semicolons", "|": "bars"}


@dataclass(frozen=True)
class CsvRows:
    """The content of a CSV file, in UTF-8; its first line is a header."""

    path: Path
    content: bytes
    delimiter: str
    names: tuple[str, ...]
    quotes: bool

    @classmethod
    def of(
        cls, path: Path, content: bytes, delimiter: str | None, usual: str, quotes: bool
    ) -> CsvRows:
        """Find the delimiter, which is the one that gives most columns, and their names.

        Args:
            delimiter: the one that was asked for; it may be meant for another file.

        Raises:
            DataError: there is a header at most.
        """
        line, end, _ = content.partition(b"\n")
        first = line.decode()
        counts = {
            mark: len(_fields(first, mark, quotes))
            for mark in (delimiter or usual, usual, *DELIMITERS)
        }
        if delimiter is None or counts[delimiter] == 1:
            delimiter = max(counts, key=lambda mark: counts[mark])
            if "::" in first and counts[delimiter] == 1:
                raise DataError(
                    f"{path}, line 1: fields are separated by '::'. Replace it by tabs, and give"
                    " the file a header."
                )
        names = tuple(name.strip() for name in _fields(first, delimiter, quotes))
        if not end:
            raise DataError(f"{path} has only one line, so it holds a header at most.")
        return cls(path, content, delimiter, names, quotes)

    @property
    def separators(self) -> str:
        """The delimiter in a word."""
        return DELIMITERS.get(self.delimiter, self.delimiter)

    def read(self) -> pa.Table:
        """Return all columns, as strings.

        Raises:
            DataError: a row has another number of fields than the header, or a quotation mark is
                never closed, or text stands after a closing one; the message names the line.
        """
        schema = pa.schema([(name, pa.string()) for name in self.names])
        start = self.content.index(b"\n")
        if not self.content[start:].strip(b"\r\n"):
            return schema.empty_table()
        try:
            found = pacsv.read_csv(
                pa.BufferReader(self.content),
                pacsv.ReadOptions(
                    use_threads=False, block_size=MOST_BYTES, column_names=self.names, skip_rows=1
                ),
                pacsv.ParseOptions(
                    delimiter=self.delimiter,
                    quote_char='"' if self.quotes else False,
                    newlines_in_values=self.quotes,
                ),
                pacsv.ConvertOptions(column_types=schema, strings_can_be_null=False),
            )
        except (pa.ArrowException, MemoryError) as error:
            self._require_well_formed()
            raise DataError(f"{self.path}: {reason(error)}. Is this a table?") from error
        if self.quotes and self.content.find(b'"', start) >= 0:
            try:
                deque(self._reader(), maxlen=0)
            except csv.Error:
                self._require_well_formed()
            for index in range(len(self.names)):
                self._require_no_rows_within(found.column(index), index)
        return found

    def locate(self, row: int) -> str:
        """Return the line on which a row begins, by its number from 0."""
        return f"line {next(islice(self._rows(), row + 1, None))[0]}"

    def _require_well_formed(self) -> None:
        """Raise a DataError for the first faulty line, if there is one."""
        for line, row in self._rows():
            if len(row) != len(self.names):
                raise DataError(
                    f"{self.path}, line {line}: {len(row)} fields where the header has"
                    f" {len(self.names)}. Is the delimiter right ({self.separators}), or the file"
                    " cut off?"
                )

    def _require_no_rows_within(self, values: pa.ChunkedArray, column: int) -> None:
        """Raise a DataError for the first field that encloses ends of rows."""
        for row in np.flatnonzero(pc.match_substring(values, "\n").to_numpy()):
            if self._holds_rows(text := values[int(row)].as_py(), column):
                raise DataError(
                    f"{self.path}, {self.locate(int(row))}: quotation marks enclose"
                    f" {text.count(chr(10))} ends of lines, and lines that look like rows. If they"
                    " are text, add --no-quotes; else join the lines of this text."
                )

    def _holds_rows(self, value: str, column: int) -> bool:
        """Return whether all whole lines within a field look like rows: they have as many fields,
        and begin with a number or the like, as few lines of prose with so many commas do. Without a
        whole line, the two parts of lines decide.
        """
        first, *whole, last = (
            _fields(line.rstrip("\r"), self.delimiter, False) for line in value.split("\n")
        )
        width = len(self.names)
        if whole:
            return all(len(row) == width > 1 and self._begins_as_row(row) for row in whole)
        return (
            (len(first), len(last)) == (width - column, column + 1)
            and width > 1
            and self._begins_as_row(last)
            and (self.delimiter == "\t" or not any(field[:1].isspace() for field in last[1:]))
        )

    def _begins_as_row(self, row: list[str]) -> bool:
        return self.delimiter != "," or bool(re.fullmatch(r"\s*\S*[0-9]\S*\s*", row[0]))

    def _reader(self) -> Any:
        text = io.TextIOWrapper(io.BytesIO(self.content), encoding="utf-8", newline="")
        return _strict_reader(text, self.delimiter, self.quotes)

    def _rows(self) -> Iterator[tuple[int, list[str]]]:
        """Yield each row that is not empty, header included, with the line on which it begins."""
        reader = self._reader()
        line = 1
        try:
            for row in reader:
                if row:
                    yield line, row
                line = reader.line_num + 1
        except csv.Error as error:
            fault = {"unexpected end of data": "a quotation mark is never closed"}
            if "expected after" in str(error):
                fault[str(error)] = "text stands after a closing quotation mark"
            raise DataError(
                f"{self.path}, line {line}: {fault.get(str(error), reason(error))}. If quotation"
                " marks are text, add --no-quotes; else close the one that opens in this row, and"
                " double those within. Or is the file cut off?"
            ) from error


def _fields(line: str, delimiter: str, quotes: bool) -> list[str]:
    try:
        return next(_strict_reader([line], delimiter, quotes), [])
    except csv.Error:
        return []


def _strict_reader(lines: Iterable[str], delimiter: str, quotes: bool) -> Any:
    """Return Python's reader of CSV, which refuses what is malformed."""
    csv.field_size_limit(MOST_BYTES)
    return csv.reader(
        lines,
        delimiter=delimiter,
        quoting=csv.QUOTE_MINIMAL if quotes else csv.QUOTE_NONE,
        strict=True,
    )
