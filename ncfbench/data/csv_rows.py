"""CSV files: Arrow reads them, and Python's strict reader finds what Arrow lets pass: a quotation
mark that the end of the file closes, and text after a closing one.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from io import BytesIO, TextIOWrapper
from itertools import islice
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as pacsv

from ncfbench.data.columns import Table
from ncfbench.data.files import MOST_BYTES
from ncfbench.errors import DataError, reason

DELIMITERS = {",": "commas", "\t": "tabs", ";": "semicolons", "|": "bars"}
_NUMBER_OR_ID = re.compile(r"\S*[0-9]\S*")


def read_csv(path: Path, content: bytes, suffix: str) -> Table:
    """Return the rows of a CSV file, in UTF-8, whose first line is a header.

    Raises:
        DataError: it has no header, or is malformed.
    """
    usual = "\t" if suffix in (".tsv", ".tab") else ","
    headers = {mark: _header(content, mark) for mark in (usual, *DELIMITERS)}
    delimiter = max(headers, key=lambda mark: len(headers[mark][0]))
    header, lines = headers[delimiter]
    if len(header) == 1 and "::" in header[0]:
        raise DataError(
            f"{path}, line 1: fields are separated by '::'. Replace it by tabs, and give the file a"
            " header."
        )
    if not header:
        raise DataError(
            f"{path}, line 1: no header. The first line must name the columns. Close each quotation"
            " mark that opens in it."
        )
    names = tuple(re.sub(r"\s*[\r\n]\s*", " ", name.strip()) for name in header)
    separators = DELIMITERS[delimiter]
    warnings = []
    if delimiter != usual:
        warnings.append(f"{path.name}: fields are separated by {separators}.")

    def require_well_formed() -> None:
        odd = []
        for number, row, lines in _rows(path, content, delimiter):
            if len(row) != len(names):
                raise DataError(
                    f"{path}, line {number}: {len(row)} fields where the header has {len(names)}."
                    f" Is the delimiter right ({separators}), or the file cut off?"
                )
            if len(lines) > 1 and number > 1 and _are_rows(lines, delimiter, len(names)):
                odd.append(number)
        if odd:
            more = f", and in {len(odd) - 1:,} more rows" if odd[1:] else ""
            warnings.append(
                f"Warning: {path.name}, line {odd[0]}{more}: a text in quotation marks has lines"
                " that look like rows. They are read as text; if they are rows, correct the marks"
                " around them."
            )

    def locate(row: int) -> str:
        return f"line {next(islice(_rows(path, content, delimiter), row + 1, None))[0]}"

    start = sum(len(line.encode()) for line in lines)
    schema = pa.schema([(name, pa.string()) for name in names])
    has_quotes = content.find(b'"', start) >= 0
    rows = schema.empty_table()
    try:
        if content[start:].strip(b"\r\n"):
            rows = pacsv.read_csv(
                pa.BufferReader(pa.py_buffer(content).slice(start)),
                pacsv.ReadOptions(use_threads=False, block_size=MOST_BYTES, column_names=names),
                pacsv.ParseOptions(
                    delimiter=delimiter,
                    quote_char='"' if has_quotes else False,
                    newlines_in_values=has_quotes,
                ),
                pacsv.ConvertOptions(column_types=schema, strings_can_be_null=False),
            )
    except (pa.ArrowException, MemoryError) as error:
        require_well_formed()
        raise DataError(f"{path}: {reason(error)}. Is this a table?") from error
    if has_quotes:
        require_well_formed()
    if not content.endswith((b"\n", b"\r")):
        warnings.append(f"Warning: {path.name} does not end with the end of a line. Is it cut off?")
    return Table(path, f"CSV, {separators}", names, rows.column, locate, warnings)


def _header(content: bytes, delimiter: str) -> tuple[list[str], list[str]]:
    """Return the fields of the first row, and the lines that it takes; none if it is malformed."""
    lines: list[str] = []
    try:
        return next(_reader(content, delimiter, lines)), lines
    except csv.Error:
        return [], lines


def _are_rows(lines: list[str], delimiter: str, n_fields: int) -> bool:
    """Return whether the lines within a row look like rows: they have as many fields, and begin
    with a number or the like, as few lines of prose with so many commas do.
    """
    rows = [line.rstrip("\r\n").split(delimiter) for line in lines]
    whole = rows[1:-1]
    if n_fields == 1 or any(len(row) != n_fields for row in whole or rows):
        return False
    if not whole and delimiter != "\t" and any(part[:1] == " " for part in rows[1][1:]):
        return False  # commas of prose
    begins = (row[0].strip() for row in whole or rows[1:])
    return delimiter != "," or all(map(_NUMBER_OR_ID.fullmatch, begins))


def _rows(path: Path, content: bytes, delimiter: str) -> Iterator[tuple[int, list[str], list[str]]]:
    """Yield each row that is not empty, the header first: the line on which it begins, its fields,
    its lines.
    """
    lines: list[str] = []
    number = 1
    try:
        for row in _reader(content, delimiter, lines):
            if row:
                yield number, row, lines
            number += len(lines)
            lines.clear()
    except csv.Error as error:
        fault = {"unexpected end of data": "a quotation mark is never closed"}
        if "expected after" in str(error):
            fault[str(error)] = "text stands after a closing quotation mark"
        raise DataError(
            f"{path}, line {number}: {fault.get(str(error), reason(error))}. Close the one that"
            " opens in this row, and double those that are text within it. Or is the file cut off?"
        ) from error


def _reader(content: bytes, delimiter: str, lines: list[str]) -> Iterator[list[str]]:
    """Return Python's reader of CSV, which refuses what is malformed, and appends each line that it
    takes to ``lines``.
    """

    def noted() -> Iterator[str]:
        for line in TextIOWrapper(BytesIO(content), encoding="utf-8", newline=""):
            lines.append(line)
            yield line

    csv.field_size_limit(MOST_BYTES)
    return csv.reader(noted(), delimiter=delimiter, strict=True)
