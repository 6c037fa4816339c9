"""JSON Lines: Arrow reads them, and Python those that Arrow refuses or whose numbers it rounds.

Python keeps a number as it stands in the file, and replaces half of a surrogate pair, as in a text
that was cut.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pajson

from ncfbench.data.readers.files import MOST_BYTES
from ncfbench.errors import DataError, reason

MOST_BRACKETS = 1000
"""Brackets in a line that Arrow may read: it crashes where they nest too deep."""
MOST_DIGITS = 40
"""Digits of a number with an exponent that is written out."""


@dataclass(frozen=True)
class JsonLines:
    """The content of a file with a JSON object on each line; empty lines do not count."""

    path: Path
    content: bytes
    faults: dict[str, tuple[int, str]] = field(default_factory=dict)
    """Of columns with a value of no use: its row, and what is wrong."""

    def read(self) -> pa.Table:
        """Return all columns; numbers may have become strings.

        Raises:
            DataError: there is no row, or a line is no JSON object; the message names it.
        """
        if not self.content.strip():
            raise DataError(f"{self.path} holds no row.")
        found = self._by_arrow()
        return self._by_python() if found is None else found

    def refuse_fault(self, name: str) -> None:
        """Raise a DataError if a column has a value of no use."""
        if name in self.faults:
            row, why = self.faults[name]
            raise DataError(f"{self.path}, {self.locate(row)}: {name} {why}")

    def locate(self, row: int) -> str:
        """Return the line of a row, by its number from 0."""
        return f"line {next(islice(self._lines(), row, None))[0]}"

    def _lines(self) -> Iterator[tuple[int, bytes]]:
        for number, line in enumerate(self.content.split(b"\n"), start=1):
            if line.strip():
                yield number, line

    def _by_arrow(self) -> pa.Table | None:
        """Return columns of the types that Arrow finds; None where it would round a number."""
        marks = np.frombuffer(self.content, np.uint8)
        brackets = np.flatnonzero((marks == ord("[")) | (marks == ord("{")))
        ends = np.append(np.flatnonzero(marks == ord("\n")), len(marks))
        if np.diff(np.searchsorted(brackets, ends), prepend=0).max() > MOST_BRACKETS:
            return None
        options = pajson.ReadOptions(use_threads=False, block_size=MOST_BYTES)
        try:
            found = pajson.read_json(pa.BufferReader(self.content), options)
            # Strings that look like dates would become times.
            if texts := [_as_text(column) for column in found.schema if _is_time(column.type)]:
                schema = pajson.ParseOptions(explicit_schema=pa.schema(texts))
                found = pajson.read_json(pa.BufferReader(self.content), options, schema)
        except pa.ArrowException:
            return None
        is_rounded = any(
            pa.types.is_floating(column.type) and (pc.max(pc.abs(column)).as_py() or 0) >= 2**53
            for column in found.columns
        )
        return None if is_rounded else found

    def _by_python(self) -> pa.Table:
        """Return columns of strings, or of lists of strings."""
        rows = [self._object(number, line) for number, line in self._lines()]
        columns = {}
        for name in dict.fromkeys(name for row in rows for name in row):
            values = [row.get(name) for row in rows]
            bad = next((row for row, value in enumerate(values) if not _is_text(value)), None)
            if bad is not None:
                shown = json.dumps(values[bad])[:40]
                self.faults[name] = bad, f"is {shown}, not a text, a number or a list of these."
                values = [None] * len(rows)
            kind = pa.string()
            if any(isinstance(value, list) for value in values):
                values = [[value] if isinstance(value, str) else value for value in values]
                kind = pa.list_(kind)
            try:
                columns[name] = pa.array(values, kind)
            except UnicodeEncodeError:
                columns[name] = pa.array(_whole_characters(values), kind)
        return pa.table(columns)

    def _object(self, number: int, line: bytes) -> dict[str, Any]:
        why = "not a JSON object."
        if len(line) > MOST_BYTES:
            why = f"longer than {MOST_BYTES // 2**20} MiB. Is this JSON Lines?"
        elif line.lstrip().startswith(b"["):
            why += " Make JSON Lines of an array: jq -c '.[]' old > new."
        else:
            try:
                # NaN and its like, which JSON lacks, count as missing.
                found = json.loads(
                    line, parse_constant=lambda name: None, parse_int=str, parse_float=_written_out
                )
                if isinstance(found, dict):
                    return found
            except (ValueError, RecursionError) as error:
                why = f"not JSON ({reason(error)}). Is the file cut off?"
        raise DataError(f"{self.path}, line {number}: {why}")


def _is_time(kind: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(kind.value_type if pa.types.is_list(kind) else kind))


def _as_text(column: pa.Field) -> pa.Field:
    kind = pa.list_(pa.string()) if pa.types.is_list(column.type) else pa.string()
    return pa.field(column.name, kind)


def _written_out(number: str) -> str:
    """Return a number as it stands in the file, or without exponent and point if it is whole."""
    value = Decimal(number)
    is_whole = value.adjusted() < MOST_DIGITS and value == value.to_integral_value()
    return str(int(value)) if is_whole else number


def _is_text(value: Any) -> bool:
    if isinstance(value, list):
        return all(part is None or isinstance(part, str) for part in value)
    return value is None or isinstance(value, str)


def _whole_characters(value: Any) -> Any:
    if isinstance(value, list):
        return [_whole_characters(part) for part in value]
    return value and value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
