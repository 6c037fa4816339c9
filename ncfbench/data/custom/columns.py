"""What columns of users' files mean: ids, numbers, times, texts, tokens. What is none is refused by
its line.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ncfbench.data.readers.rows import RowFile

Float64: TypeAlias = NDArray[np.float64]


def ids(values: pa.Array, rows: RowFile, start: int, name: str) -> pa.StringArray:
    """Ids as strings, without spaces around them; null where there is none.

    Numbers are accepted where they are whole; an id of two lines is refused, for it is what an open
    quote looks like.

    Raises:
        DataError: something else; the message names the line.
    """
    values = _decoded(values)
    if pa.types.is_floating(values.type):
        numbers = values.to_numpy(zero_copy_only=False)
        whole = np.isnan(numbers) | ((numbers == np.floor(numbers)) & (np.abs(numbers) < 2**53))
        if not whole.all():
            row = int(np.argmin(whole))
            rows.refuse(
                start + row,
                f"{name} {numbers[row]} is not a whole number; ids are strings or whole numbers.",
            )
        values = pa.array(np.nan_to_num(numbers).astype(np.int64), mask=np.isnan(numbers))
    if pa.types.is_integer(values.type):
        return values.cast(pa.string())
    if not _is_string(values.type):
        rows.refuse(start, f"{name} is of type {values.type}; ids are strings or whole numbers.")
    texts = pc.utf8_trim_whitespace(values.cast(pa.string()))
    broken = (
        pc.match_substring_regex(texts, "[\\r\\n]").fill_null(False).to_numpy(zero_copy_only=False)
    )
    if broken.any():
        rows.refuse(
            start + int(np.argmax(broken)),
            f"{name} has more than one line. Is a quote never closed?",
        )
    return pc.if_else(pc.equal(texts, ""), pa.scalar(None, pa.string()), texts)


def numbers(values: pa.Array, rows: RowFile, start: int, name: str) -> Float64:
    """float64[n]; nothing that is not a finite number.

    Raises:
        DataError: something else; the message names the line.
    """
    values = _decoded(values)
    if _is_string(values.type):
        return _parsed(values, rows, start, name, _number, "a number")
    try:
        # An integer beyond 2^53 is rounded, as in a text file.
        found = values.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        rows.refuse(start, f"{name} is of type {values.type}, not a number.")
    return _finite(found, values, rows, start, name, "a number")


def times(values: pa.Array, rows: RowFile, start: int, name: str) -> Float64:
    """float64[n]: something that grows with time: the numbers themselves, or seconds of dates such
    as 2019-11-13 05:53.

    Raises:
        DataError: something else; the message names the line.
    """
    values = _decoded(values)
    if (
        pa.types.is_date(values.type)
        or pa.types.is_timestamp(values.type)
        or pa.types.is_duration(values.type)
    ):
        values = values.cast(pa.int32() if pa.types.is_date32(values.type) else pa.int64())
    if _is_string(values.type):
        return _parsed(
            values,
            rows,
            start,
            name,
            _seconds,
            "a time: numbers, or dates such as 2019-11-13 05:53",
        )
    return numbers(values, rows, start, name)


def texts(values: pa.Array, rows: RowFile, start: int, name: str) -> list[str]:
    """A text for each row; lists are joined, nothing is an empty text."""
    return [" ".join(found) for found in _lists(values, rows, start, name)]


def tokens(values: pa.Array, rows: RowFile, start: int, name: str) -> list[list[str]]:
    """Tokens that are already made: lists of them, or strings in which spaces separate them."""
    return [
        [token for text in found for token in text.split()]
        for found in _lists(values, rows, start, name)
    ]


def labels(values: pa.Array, rows: RowFile, start: int, name: str) -> list[str]:
    """Short names, in lower case, without spaces around them."""
    return [text.strip().lower() for text in texts(values, rows, start, name)]


def _lists(values: pa.Array, rows: RowFile, start: int, name: str) -> list[list[str]]:
    """The strings of each row."""
    values = _decoded(values)
    if _is_list(values.type) and _is_string(values.type.value_type):
        return [[text for text in found or () if text is not None] for found in values.to_pylist()]
    if pa.types.is_integer(values.type) or pa.types.is_floating(values.type):
        values = values.cast(pa.string())
    if not _is_string(values.type):
        rows.refuse(start, f"{name} is of type {values.type}, not text.")
    return [[text] if text else [] for text in values.to_pylist()]


def _parsed(
    values: pa.Array, rows: RowFile, start: int, name: str, parse: Callable[[str], float], what: str
) -> Float64:
    try:
        found = values.cast(pa.string()).cast(pa.float64()).to_numpy(zero_copy_only=False)
    except pa.ArrowInvalid:
        found = np.empty(len(values))
        for row, text in enumerate(values.to_pylist()):
            try:
                found[row] = parse(text or "")
            except ValueError:
                rows.refuse(start + row, f"{name} {str(text or '')[:40]!r} is not {what}.")
    return _finite(found, values, rows, start, name, what)


def _finite(
    found: Float64, values: pa.Array, rows: RowFile, start: int, name: str, what: str
) -> Float64:
    finite = np.isfinite(found)
    if not finite.all():
        row = int(np.argmin(finite))
        value = values[row].as_py()
        rows.refuse(
            start + row, f"{name} {('' if value is None else str(value)[:40])!r} is not {what}."
        )
    return found


def _number(text: str) -> float:
    if "_" in text:  # which Python takes for a separator
        raise ValueError(text)
    return float(text)


def _seconds(text: str) -> float:
    """Of a date. Numbers are none: where one value of a column is a date, all are."""
    moment = datetime.fromisoformat(text.strip())
    # Without a zone: as if in Greenwich, so that the machine's does not matter.
    zone = moment.utcoffset() or timedelta()
    return (moment.replace(tzinfo=None) - datetime(1970, 1, 1) - zone).total_seconds()


def _decoded(values: pa.Array) -> pa.Array:
    """Without a dictionary."""
    return values.dictionary_decode() if pa.types.is_dictionary(values.type) else values


def _is_string(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)
    )


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind))
