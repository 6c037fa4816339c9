"""JSON Lines, by Python's parser: it keeps numbers as they stand in the file."""

from __future__ import annotations

import json
from collections.abc import Iterator
from decimal import Decimal
from io import BytesIO
from itertools import chain, islice
from pathlib import Path
from typing import Any

import pyarrow as pa

from ncfbench.errors import DataError, reason

ROWS_AT_ONCE = 2**12  # that are Python objects
_UNFIT = pa.binary()  # type of rows among which is a value of no use


class JsonLines:
    """The content of a file with a JSON object on each line; empty lines do not count."""

    def __init__(self, path: Path, content: bytes) -> None:
        self.path, self._content = path, content
        self._parts: dict[str, list[pa.Array]] = {}
        rows, n_rows = self._rows(), 0
        while chunk := [row for _, row in islice(rows, ROWS_AT_ONCE)]:
            for name in dict.fromkeys([*self._parts, *chain.from_iterable(chunk)]):
                parts = self._parts.setdefault(name, [pa.nulls(n_rows)])
                parts.append(_array([row.get(name) for row in chunk]))
            n_rows += len(chunk)
        if not n_rows:
            raise DataError(f"{path} holds no row.")
        self.names = tuple(self._parts)

    def column(self, name: str) -> pa.ChunkedArray:
        """Return a column of strings, of lists of strings, or of true and false."""
        parts = self._parts[name]
        kinds = {part.type for part in parts} - {pa.null()}
        if _UNFIT in kinds or (pa.bool_() in kinds and len(kinds) > 1):
            line, value = next(
                (line, row[name]) for line, row in self._rows() if not _is_text(row.get(name))
            )
            raise DataError(
                f"{self.path}, line {line}: {name} is {json.dumps(value)[:40]}, not a text, a"
                " number or a list of these."
            )
        kind = max(kinds or {pa.string()}, key=pa.types.is_list)
        if pa.types.is_list(kind):
            parts = [part if part.type == kind else _as_lists(part.to_pylist()) for part in parts]
        return pa.chunked_array([part.cast(kind) for part in parts], kind)

    def locate(self, row: int) -> str:
        """Return the line of a row, by its number from 0."""
        return f"line {next(islice(self._rows(), row, None))[0]}"

    def _rows(self) -> Iterator[tuple[int, dict[str, Any]]]:
        """Yield the line and the object of each row."""
        for number, line in enumerate(BytesIO(self._content), start=1):
            if not line.strip():
                continue
            try:
                row = _DECODER.decode(line.decode())
            except (ValueError, RecursionError) as error:
                raise DataError(
                    f"{self.path}, line {number}: not JSON ({reason(error)}). Is the file cut off,"
                    " or one array? Make JSON Lines of that: jq -c '.[]' old > new."
                ) from error
            if not isinstance(row, dict):
                raise DataError(
                    f"{self.path}, line {number}: not a JSON object. Make JSON Lines of one array:"
                    " jq -c '.[]' old > new."
                )
            yield number, row


def _array(values: list[Any]) -> pa.Array:
    kinds = set(map(type, values)) - {type(None)}
    try:
        if kinds <= {str}:
            return pa.array(values, pa.string() if kinds else pa.null())
        if kinds == {bool}:
            return pa.array(values)
        return _as_lists(values) if all(map(_is_text, values)) else pa.nulls(len(values), _UNFIT)
    except UnicodeEncodeError:  # half of a surrogate pair, as in a text that was cut
        text = json.dumps(values, ensure_ascii=False).encode("utf-16", "surrogatepass")
        return _array(json.loads(text.decode("utf-16", "replace")))


def _as_lists(values: list[Any]) -> pa.ListArray:
    lists = [[value] if isinstance(value, str) else value for value in values]
    return pa.array(lists, pa.list_(pa.string()))


def _is_text(value: Any) -> bool:
    return set(map(type, value if isinstance(value, list) else [value])) <= {str, type(None)}


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(row := dict(pairs)) < len(pairs):
        raise ValueError("an object gives a key twice")
    return row


def _written_out(number: str) -> str:
    """Return a number as it stands in the file, or without exponent and point if it is whole; from
    2^53 on, where it has lost digits, with both.
    """
    value = Decimal(number)
    if value.adjusted() > 15 or abs(value) >= 2**53:
        return f"{value:E}"
    return str(int(value)) if value == value.to_integral_value() else number


_DECODER = json.JSONDecoder(
    object_pairs_hook=_once,
    # NaN and its like, which JSON lacks, count as missing.
    parse_constant=lambda name: None,
    parse_int=str,
    parse_float=_written_out,
)
