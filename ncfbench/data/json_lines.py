"""JSON Lines, by Python's parser: it keeps numbers as they stand in the file."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from decimal import Decimal
from io import BytesIO
from itertools import chain, islice
from pathlib import Path
from types import NoneType
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ncfbench.data.columns import Table
from ncfbench.errors import DataError, reason

ROWS_AT_ONCE = 2**12  # that are Python objects
_LISTS = pa.list_(pa.string())


def read_json_lines(path: Path, content: bytes, suffix: str) -> Table:
    """Return the rows of a file with a JSON object on each line; empty lines do not count. Columns
    are of strings, of lists of strings, or of true and false.

    Raises:
        DataError: it has no row, or a line that is not JSON.
    """
    parts: dict[str, list[pa.ListArray]] = {}
    kinds: defaultdict[str, set[type]] = defaultdict(set)
    rows, n_rows = _rows(path, content), 0
    while chunk := [row for _, row in islice(rows, ROWS_AT_ONCE)]:
        for name in dict.fromkeys([*parts, *chain.from_iterable(chunk)]):
            values = [row.get(name) for row in chunk]
            kinds[name].update(map(_kind, values))
            lists = [] if dict in kinds[name] else [_as_list(value) for value in values]
            parts.setdefault(name, [pa.nulls(n_rows, _LISTS)]).append(pa.array(lists, _LISTS))
        n_rows += len(chunk)
    if not n_rows:
        raise DataError(f"{path} holds no row.")

    def locate(row: int) -> str:
        return f"line {next(islice(_rows(path, content), row, None))[0]}"

    def load(name: str) -> pa.ChunkedArray:
        lists, kind = pa.chunked_array(parts[name], _LISTS), kinds[name] - {NoneType}
        if dict in kind or (bool in kind and len(kind) > 1):
            line, value = next(
                (line, row[name])
                for line, row in _rows(path, content)
                if _kind(row.get(name)) in (dict, bool)
            )
            raise DataError(
                f"{path}, line {line}: {name} is {json.dumps(value)[:40]}, not a text, a number or"
                " a list of these."
            )
        if list in kind:
            return lists
        return pc.list_element(lists, 0).cast(pa.bool_() if bool in kind else pa.string())

    return Table(path, "JSON Lines", tuple(parts), load, locate)


def _kind(value: Any) -> type:
    """Return the type of a value: str, bool, None's, list of texts, and dict for all of no use."""
    if isinstance(value, list):
        return list if {*map(type, value)} <= {str, NoneType} else dict
    return type(value)


def _as_list(value: Any) -> list[str | None] | None:
    if isinstance(value, bool):
        value = str(value)
    return [value] if isinstance(value, str) else value


def _rows(path: Path, content: bytes) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the line and the object of each row."""
    for number, line in enumerate(BytesIO(content), start=1):
        if not line.strip():
            continue
        try:
            row = _DECODER.decode(line.decode())
            if b"\\ud" in line.lower():  # half of a surrogate pair, as in a text that was cut
                text = json.dumps(row, ensure_ascii=False).encode("utf-16", "surrogatepass")
                row = json.loads(text.decode("utf-16", "replace"))
            why = "" if isinstance(row, dict) else "no object"
        except (ValueError, RecursionError) as error:
            why = reason(error)
        if why:
            raise DataError(
                f"{path}, line {number}: not JSON Lines ({why}). Is the file cut off, or one array?"
                " Make JSON Lines of that: jq -c '.[]' old > new."
            )
        yield number, row


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
