"""JSON Lines, by Python's parser: it keeps numbers as they stand in the file."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import suppress
from decimal import Decimal
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from ncfbench.data.files import MOST_BYTES
from ncfbench.errors import DataError, reason

ROWS_AT_ONCE = 2**12
"""Rows that are Python objects at a time."""
MOST_DIGITS = 40
"""Digits of a number with an exponent that is written out."""
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")


class JsonLines:
    """The content of a file with a JSON object on each line; empty lines do not count.

    Its columns are of strings, lists of strings, or true and false.

    Raises:
        DataError: there is no row, or a line is no JSON object; the message names it.
    """

    def __init__(self, path: Path, content: bytes) -> None:
        self.path = path
        self._content = content
        self._faults: dict[str, tuple[int, str]] = {}
        columns: dict[str, list[pa.Array]] = {}
        lines, first = self._lines(), 0
        while rows := self._objects(list(islice(lines, ROWS_AT_ONCE))):
            for name in dict.fromkeys([*columns, *chain.from_iterable(rows)]):
                values = self._array(name, first, [row.get(name) for row in rows])
                columns.setdefault(name, [pa.nulls(first)]).append(values)
            first += len(rows)
        if not first:
            raise DataError(f"{path} holds no row.")
        self._columns = {name: self._joined(name, parts) for name, parts in columns.items()}
        self.names = tuple(columns)

    def column(self, name: str) -> pa.ChunkedArray:
        """Return a column; refuse one with a value of no use."""
        if name in self._faults:
            row, why = self._faults[name]
            raise DataError(f"{self.path}, {self.locate(row)}: {name} {why}")
        return self._columns[name]

    def locate(self, row: int) -> str:
        """Return the line of a row, by its number from 0."""
        return f"line {next(islice(self._lines(), row, None))[0]}"

    def _lines(self) -> Iterator[tuple[int, bytes]]:
        for number, line in enumerate(self._content.split(b"\n"), start=1):
            if line.strip():
                yield number, line

    def _objects(self, lines: list[tuple[int, bytes]]) -> list[dict[str, Any]]:
        """Return an object for each line: of all lines at once, which is three times as fast, or
        one by one where that fails, so that the faulty line is named.
        """
        every = b",".join(line for _, line in lines)
        with suppress(ValueError, RecursionError):
            rows: list[dict[str, Any]] = _DECODER.decode(f"[{every.decode()}]")
            is_short = all(len(line) <= MOST_BYTES for _, line in lines)
            if is_short and len(rows) == len(lines) and all(isinstance(row, dict) for row in rows):
                return list(map(_whole_characters, rows)) if _SURROGATE.search(every) else rows
        return [self._object(number, line) for number, line in lines]

    def _object(self, number: int, line: bytes) -> dict[str, Any]:
        why = "not a JSON object."
        if len(line) > MOST_BYTES:
            why = f"longer than {MOST_BYTES // 2**20} MiB. Is this JSON Lines?"
        elif line.lstrip().startswith(b"["):
            why += " Make JSON Lines of an array: jq -c '.[]' old > new."
        else:
            try:
                found = _DECODER.decode(line.decode())
                if isinstance(found, dict):
                    return _whole_characters(found) if _SURROGATE.search(line) else found
            except (ValueError, RecursionError) as error:
                why = f"not JSON ({reason(error)}). Is the file cut off?"
        raise DataError(f"{self.path}, line {number}: {why}")

    def _array(self, name: str, first: int, values: list[Any]) -> pa.Array:
        """Return some rows of a column; of nulls where one is of no use, which is noted."""
        kinds = {type(value) for value in values} - {type(None)}
        if kinds <= {str}:
            return pa.array(values, pa.string() if kinds else pa.null())
        if kinds == {bool}:
            return pa.array(values)
        bad = next((row for row, value in enumerate(values) if not _is_text(value)), None)
        if bad is not None:
            self._note(name, first + bad, values[bad])
            return pa.nulls(len(values))
        lists = [[value] if isinstance(value, str) else value for value in values]
        return pa.array(lists, pa.list_(pa.string()))

    def _joined(self, name: str, parts: list[pa.Array]) -> pa.ChunkedArray:
        kinds = {part.type for part in parts} - {pa.null()}
        if pa.bool_() in kinds and len(kinds) > 1:
            index = next(index for index, part in enumerate(parts) if part.type == pa.bool_())
            row = int(np.argmax(parts[index].is_valid()))
            self._note(name, sum(map(len, parts[:index])) + row, parts[index][row].as_py())
            parts = [pa.nulls(sum(map(len, parts)))]
        kind = max(kinds or {pa.string()}, key=pa.types.is_list)
        return pa.chunked_array([_as_kind(part, kind) for part in parts], kind)

    def _note(self, name: str, row: int, value: object) -> None:
        shown = json.dumps(value)[:40]
        why = f"is {shown}, not a text, a number or a list of these."
        self._faults.setdefault(name, (row, why))


def _written_out(number: str) -> str:
    """Return a number as it stands in the file, or without exponent and point if it is whole."""
    if number.endswith(".0"):
        return number[:-2]
    if number[-1] != "0" and "e" not in number and "E" not in number:
        return number
    value = Decimal(number)
    is_whole = value.adjusted() < MOST_DIGITS and value == value.to_integral_value()
    return str(int(value)) if is_whole else number


_DECODER = json.JSONDecoder(
    # NaN and its like, which JSON lacks, count as missing.
    parse_constant=lambda name: None,
    parse_int=str,
    parse_float=_written_out,
)


def _as_kind(part: pa.Array, kind: pa.DataType) -> pa.Array:
    if part.type != kind and part.type == pa.string():
        return pa.ListArray.from_arrays(np.arange(len(part) + 1, dtype=np.int32), part)
    return part.cast(kind)


def _is_text(value: Any) -> bool:
    return set(map(type, value if isinstance(value, list) else [value])) <= {str, type(None)}


def _whole_characters(value: Any) -> Any:
    """Replace halves of surrogate pairs, as in a text that was cut."""
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, dict):
        return {_whole_characters(name): _whole_characters(part) for name, part in value.items()}
    return [_whole_characters(part) for part in value] if isinstance(value, list) else value
