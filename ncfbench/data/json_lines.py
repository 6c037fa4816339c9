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

from ncfbench.data.columns import Table
from ncfbench.errors import DataError, reason

ROWS_AT_ONCE = 2**12  # that are Python objects
_UNFIT = pa.binary()  # type of rows among which is a value of no use


def read_json_lines(path: Path, content: bytes, suffix: str = "") -> Table:
    """Return the rows of a file with a JSON object on each line; empty lines do not count. Columns
    are of strings, of lists of strings, or of true and false.

    Raises:
        DataError: it has no row, or a line that is not JSON.
    """
    parts: dict[str, list[pa.Array]] = {}
    rows, n_rows = _rows(path, content), 0
    while chunk := [row for _, row in islice(rows, ROWS_AT_ONCE)]:
        for name in dict.fromkeys([*parts, *chain.from_iterable(chunk)]):
            values = _array([row.get(name) for row in chunk])
            parts.setdefault(name, [pa.nulls(n_rows)]).append(values)
        n_rows += len(chunk)
    if not n_rows:
        raise DataError(f"{path} holds no row.")

    def locate(row: int) -> str:
        return f"line {next(islice(_rows(path, content), row, None))[0]}"

    def load(name: str) -> pa.ChunkedArray:
        found = parts[name]
        kinds = {part.type for part in found} - {pa.null()}
        if _UNFIT in kinds or (pa.bool_() in kinds and len(kinds) > 1):
            line, value = next(
                (line, row[name])
                for line, row in _rows(path, content)
                if not _is_text(row.get(name))
            )
            raise DataError(
                f"{path}, line {line}: {name} is {json.dumps(value)[:40]}, not a text, a number or"
                " a list of these."
            )
        kind = max(kinds or {pa.string()}, key=pa.types.is_list)
        if pa.types.is_list(kind):
            found = [part if part.type == kind else _as_lists(part.to_pylist()) for part in found]
        return pa.chunked_array([part.cast(kind) for part in found], kind)

    return Table(path, "JSON Lines", tuple(parts), load, locate)


def _rows(path: Path, content: bytes) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the line and the object of each row."""
    for number, line in enumerate(BytesIO(content), start=1):
        if not line.strip():
            continue
        try:
            row = _DECODER.decode(line.decode())
            why = "" if isinstance(row, dict) else "no object"
        except (ValueError, RecursionError) as error:
            why = reason(error)
        if why:
            raise DataError(
                f"{path}, line {number}: not JSON Lines ({why}). Is the file cut off, or one array?"
                " Make JSON Lines of that: jq -c '.[]' old > new."
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


def _written_out(number: str) -> str:
    """Return a number as it stands in the file, or without exponent and point if it is whole; from
    2^53 on, where it has lost digits, with both.
    """
    value = Decimal(number)
    if value.adjusted() > 15 or abs(value) >= 2**53:
        return f"{value:E}"
    return str(int(value)) if value == value.to_integral_value() else number


_DECODER = json.JSONDecoder(
    # NaN and its like, which JSON lacks, count as missing.
    parse_constant=lambda name: None,
    parse_int=str,
    parse_float=_written_out,
)
