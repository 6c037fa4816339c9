"""CSV files: Arrow reads them, and Python's strict reader finds what Arrow lets pass: a quotation
mark that the end of the file closes, and text after a closing one.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator
from io import BytesIO, TextIOWrapper
from itertools import islice
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as pacsv

from ncfbench.data.files import MOST_BYTES
from ncfbench.errors import DataError, reason

DELIMITERS = {",": "commas", "\t": "tabs", ";": "semicolons", "|": "bars"}
_NUMBER_OR_ID = re.compile(r"\S*[0-9]\S*")


class CsvRows:
    """The content of a CSV file, in UTF-8; its first line is a header.

    Args:
        usual: the delimiter preferred among those that give as many columns.
    """

    def __init__(self, path: Path, content: bytes, usual: str) -> None:
        headers = {mark: _header(content, mark) for mark in (usual, *DELIMITERS)}
        delimiter = max(headers, key=lambda mark: len(headers[mark][0]))
        names, lines = headers[delimiter]
        if len(names) == 1 and "::" in names[0]:
            raise DataError(
                f"{path}, line 1: fields are separated by '::'. Replace it by tabs, and give the"
                " file a header."
            )
        if not names:
            raise DataError(
                f"{path}, line 1: no header. The first line must name the columns. Close each"
                " quotation mark that opens in it."
            )
        self.path, self.delimiter = path, delimiter
        self.separators = DELIMITERS[delimiter]
        self.names = tuple(re.sub(r"\s*[\r\n]\s*", " ", name.strip()) for name in names)
        self.warnings: list[str] = []
        self._content, self._start = content, sum(len(line.encode()) for line in lines)
        self._first = 1 + len(lines)
        self._quotes = content.find(b'"', self._start) >= 0
        self.column = self._read().column

    def _read(self) -> pa.Table:
        schema = pa.schema([(name, pa.string()) for name in self.names])
        if not self._content[self._start :].strip(b"\r\n"):
            return schema.empty_table()
        reading = pacsv.ReadOptions(
            use_threads=False, block_size=MOST_BYTES, column_names=self.names
        )
        parsing = pacsv.ParseOptions(
            delimiter=self.delimiter,
            quote_char='"' if self._quotes else False,
            newlines_in_values=self._quotes,
        )
        converting = pacsv.ConvertOptions(column_types=schema, strings_can_be_null=False)
        try:
            content = pa.BufferReader(pa.py_buffer(self._content).slice(self._start))
            rows = pacsv.read_csv(content, reading, parsing, converting)
        except (pa.ArrowException, MemoryError) as error:
            self._require_well_formed()
            raise DataError(f"{self.path}: {reason(error)}. Is this a table?") from error
        if self._quotes:
            self._require_well_formed()
        return rows

    def locate(self, row: int) -> str:
        """Return the line on which a row begins, by its number from 0."""
        return f"line {next(islice(self._rows(), row, None))[0]}"

    def _require_well_formed(self) -> None:
        """Raise a DataError for the first faulty row, if there is one; warn of fields that seem to
        hold rows.
        """
        odd = []
        for number, row, lines in self._rows():
            if len(row) != len(self.names):
                raise DataError(
                    f"{self.path}, line {number}: {len(row)} fields where the header has"
                    f" {len(self.names)}. Is the delimiter right ({self.separators}), or the file"
                    " cut off?"
                )
            if len(lines) > 1 and self._are_rows(lines):
                odd.append(number)
        if odd:
            more = f", and in {len(odd) - 1:,} more rows" if odd[1:] else ""
            self.warnings.append(
                f"Warning: {self.path.name}, line {odd[0]}{more}: a text in quotation marks has"
                " lines that look like rows. They are read as text; if they are rows, correct the"
                " marks around them."
            )

    def _are_rows(self, lines: list[str]) -> bool:
        """Return whether the lines within a row look like rows: they have as many fields, and begin
        with a number or the like, as few lines of prose with so many commas do.
        """
        rows = [line.rstrip("\r\n").split(self.delimiter) for line in lines]
        whole = rows[1:-1]
        if len(self.names) == 1 or any(len(row) != len(self.names) for row in whole or rows):
            return False
        if not whole and self.delimiter != "\t" and any(part[:1] == " " for part in rows[1][1:]):
            return False  # commas of prose
        begins = (row[0].strip() for row in whole or rows[1:])
        return self.delimiter != "," or all(map(_NUMBER_OR_ID.fullmatch, begins))

    def _rows(self) -> Iterator[tuple[int, list[str], list[str]]]:
        """Yield each row that is not empty: the line on which it begins, its fields, its lines."""
        lines: list[str] = []
        number = self._first
        try:
            taken = _noted(self._content, self._start, lines)
            for row in _reader(taken, self.delimiter):
                if row:
                    yield number, row, lines
                number += len(lines)
                lines.clear()
        except csv.Error as error:
            fault = {"unexpected end of data": "a quotation mark is never closed"}
            if "expected after" in str(error):
                fault[str(error)] = "text stands after a closing quotation mark"
            raise DataError(
                f"{self.path}, line {number}: {fault.get(str(error), reason(error))}. Close the"
                " one that opens in this row, and double those that are text within it. Or is the"
                " file cut off?"
            ) from error


def _header(content: bytes, delimiter: str) -> tuple[list[str], list[str]]:
    """Return the fields of the first row, and the lines that it takes; none if it is malformed."""
    lines: list[str] = []
    try:
        return next(_reader(_noted(content, 0, lines), delimiter)), lines
    except csv.Error:
        return [], lines


def _noted(content: bytes, start: int, lines: list[str]) -> Iterator[str]:
    """Yield the lines from a byte on, and append each to ``lines``."""
    stream = BytesIO(content)
    stream.seek(start)
    for line in TextIOWrapper(stream, encoding="utf-8", newline=""):
        lines.append(line)
        yield line


def _reader(lines: Iterable[str], delimiter: str) -> Iterator[list[str]]:
    """Return Python's reader of CSV, which refuses what is malformed."""
    csv.field_size_limit(MOST_BYTES)
    return csv.reader(lines, delimiter=delimiter, strict=True)
