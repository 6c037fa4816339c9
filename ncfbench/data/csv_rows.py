"""CSV files, by Python's strict reader: it refuses what others let pass, a quotation mark that the
end of the file closes, and text after a closing one. Arrow reads those without such marks.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from io import BytesIO, TextIOWrapper
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pacsv

from ncfbench.data.columns import Table
from ncfbench.errors import DataError, reason

DELIMITERS = {",": "commas", "\t": "tabs", ";": "semicolons", "|": "bars"}
SUFFIXES = {".csv": ","} | dict.fromkeys((".tsv", ".tab", ".inter", ".item"), "\t")
"""The usual delimiter of files of a suffix."""
MOST_BYTES = 2**24  # of a field; a longer one is damaged
ROWS_AT_ONCE = 2**14  # that are Python objects
_NUMBER_OR_ID = re.compile(r"\S*[0-9]\S*")


def read_csv(path: Path, content: bytes, suffix: str) -> Table:
    """Return the rows of a CSV file, in UTF-8, whose first line is a header.

    Raises:
        DataError: it has no header, or is malformed.
    """
    usual = SUFFIXES.get(suffix, ",")
    headers = {mark: _header(content, mark) for mark in (usual, *DELIMITERS)}
    delimiter = max(headers, key=lambda mark: len(headers[mark]))
    if usual != "," and len(headers[usual]) > 1:  # commas are in names of columns, too
        delimiter = usual
    header, separators = headers[delimiter], DELIMITERS[delimiter]
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

    schema = pa.schema([(name, pa.string()) for name in names])
    odd: list[int] = []

    def parts() -> Iterator[pa.Table]:
        rows = islice(_rows(path, content, delimiter), 1, None)
        while chunk := list(islice(rows, ROWS_AT_ONCE)):
            for line, n_lines, fields in chunk:
                if len(fields) != len(names):
                    raise DataError(
                        f"{path}, line {line}: {len(fields)} fields where the header has"
                        f" {len(names)}. Is the delimiter right ({separators}), or the file cut"
                        " off?"
                    )
                if n_lines > 1 and _holds_rows(fields, delimiter):
                    odd.append(line)
            columns = zip(*(fields for _, _, fields in chunk), strict=True)
            yield pa.table([pa.array(values, pa.string()) for values in columns], schema=schema)

    rows = _without_quotes(content, delimiter, schema)
    rows = rows or pa.concat_tables([schema.empty_table(), *parts()])
    warnings = []
    if delimiter != usual:
        warnings.append(f"{path.name}: fields are separated by {separators}.")
    if odd:
        more = f", and in {len(odd) - 1:,} more rows" if odd[1:] else ""
        warnings.append(
            f"Warning: {path.name}, line {odd[0]}{more}: a text in quotation marks has lines that"
            " look like rows. They are read as text; if they are rows, correct the marks around"
            " them."
        )
    if not content.endswith((b"\n", b"\r")):
        warnings.append(f"Warning: {path.name} does not end with the end of a line. Is it cut off?")

    def locate(row: int) -> str:
        return f"line {next(islice(_rows(path, content, delimiter), row + 1, None))[0]}"

    return Table(path, f"CSV, {separators}", names, rows.column, locate, warnings)


def _without_quotes(content: bytes, delimiter: str, schema: pa.Schema) -> pa.Table | None:
    """Return the rows of a file without quotation marks by Arrow, which is five times as fast; None
    where it has some, or is malformed.
    """
    if b'"' in content:
        return None
    header = re.match(rb"[^\r\n]*[\r\n]*", content)
    try:
        return pacsv.read_csv(
            pa.BufferReader(pa.py_buffer(content).slice(header.end() if header else 0)),
            pacsv.ReadOptions(use_threads=False, column_names=schema.names, block_size=MOST_BYTES),
            pacsv.ParseOptions(delimiter=delimiter, quote_char=False),
            pacsv.ConvertOptions(column_types=schema, strings_can_be_null=False),
        )
    except pa.ArrowException:
        return None


def _header(content: bytes, delimiter: str) -> list[str]:
    """Return the fields of the first row; none if it is malformed."""
    try:
        return next(_reader(content, delimiter), [])
    except csv.Error:
        return []


def _holds_rows(fields: list[str], delimiter: str) -> bool:
    """Return whether the lines within a row look like rows: they have as many fields, and begin
    with a number or the like, as few lines of prose with so many commas do.
    """
    text = delimiter.join(fields)
    rows = [line.split(delimiter) for line in re.split(r"\r\n|\r|\n", text)]
    whole = rows[1:-1]
    if len(fields) == 1 or any(len(row) != len(fields) for row in whole or rows):
        return False
    if not whole and delimiter != "\t" and any(part[:1] == " " for part in rows[1][1:]):
        return False  # commas of prose
    begins = (row[0].strip() for row in whole or rows[1:])
    return delimiter != "," or all(map(_NUMBER_OR_ID.fullmatch, begins))


def _rows(path: Path, content: bytes, delimiter: str) -> Iterator[tuple[int, int, list[str]]]:
    """Yield the first line of each row, its number of lines, and its fields: the header, then
    others that are not empty.
    """
    reader, line = _reader(content, delimiter), 1
    try:
        for fields in reader:
            if fields:
                yield line, reader.line_num - line + 1, fields
            line = reader.line_num + 1
    except csv.Error as error:
        fault = {"unexpected end of data": "a quotation mark is never closed"}
        if "expected after" in str(error):
            fault[str(error)] = "text stands after a closing quotation mark"
        raise DataError(
            f"{path}, line {line}: {fault.get(str(error), reason(error))}. Close the one that opens"
            " in this row, and double those that are text within it. Or is the file cut off?"
        ) from error


def _reader(content: bytes, delimiter: str) -> Any:
    csv.field_size_limit(MOST_BYTES)
    text = TextIOWrapper(BytesIO(content), encoding="utf-8", newline="")
    return csv.reader(text, delimiter=delimiter, strict=True)
