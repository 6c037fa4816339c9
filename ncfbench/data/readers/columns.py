"""Values of users' columns as ids, numbers, times, texts or tokens; others are refused by their
line.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NoReturn, Protocol, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ncfbench.data.readers.rows import RowFile

Float32: TypeAlias = NDArray[np.float32]
Float64: TypeAlias = NDArray[np.float64]


class Refusing(Protocol):
    """Refuses a row by its number from 0."""

    def refuse(self, row: int, why: str) -> NoReturn:
        """Raise a DataError about a row."""


def ids(values: pa.Array, rows: RowFile, start: int, name: str) -> pa.StringArray:
    """Return ids as strings, without spaces around them; null where there is none.

    Whole numbers are accepted. An id of two lines is refused, since it comes from an open quote.

    Raises:
        DataError: a value is no id; the message names the line.
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


def numbers(values: pa.Array, rows: Refusing, start: int, name: str) -> Float64:
    """Return float64[n], all finite.

    Raises:
        DataError: a value is not a finite number; the message names the line.
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
    """Return float64[n] that grow with time: numbers as they are, or dates such as 2019-11-13 05:53
    as seconds.

    Raises:
        DataError: a value is neither; the message names the line.
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


def vectors(values: pa.Array, rows: RowFile, start: int, name: str) -> Float32:
    """Return float32[n, W], all finite: a list of W numbers in each row, or one number.

    Raises:
        DataError: a value is no number or too large for float32, or a list is longer or shorter
            than the first; the message names the line.
    """
    values = _decoded(values)
    if not _is_list(values.type) and not pa.types.is_fixed_size_list(values.type):
        return _single(numbers(values, rows, start, name), rows, start, name)[:, None]
    widths = pc.list_value_length(values).fill_null(0).to_numpy(zero_copy_only=False)
    width = int(widths[0]) if len(widths) else 0
    if (widths != width).any() or not width:
        row = int(np.argmax((widths != width) | (widths == 0)))
        expected = f" and not {width}, as in row {start + 1}" if width and row else ""
        rows.refuse(start + row, f"{name} has {widths[row]} numbers{expected}.")
    # Behind the lists the values are one flat column, in which a fault is found by its index.
    flat = _Flat(rows, width)
    found = numbers(values.flatten(), flat, start * width, name)
    return _single(found, flat, start * width, name).reshape(-1, width)


def texts(values: pa.Array, rows: RowFile, start: int, name: str) -> list[str]:
    """Return a text for each row; lists are joined, a missing value is an empty text."""
    return [" ".join(found) for found in _lists(values, rows, start, name)]


def tokens(values: pa.Array, rows: RowFile, start: int, name: str) -> list[list[str]]:
    """Return tokens that are already made: lists, or strings in which spaces separate them."""
    return [
        [token for text in found for token in text.split()]
        for found in _lists(values, rows, start, name)
    ]


def labels(values: pa.Array, rows: RowFile, start: int, name: str) -> list[str]:
    """Return short names, in lower case, without spaces around them."""
    return [text.strip().lower() for text in texts(values, rows, start, name)]


@dataclass(frozen=True)
class _Flat:
    """Names the row of a number in a flattened column of lists."""

    rows: RowFile
    width: int

    def refuse(self, row: int, why: str) -> NoReturn:
        self.rows.refuse(row // self.width, why)


def _lists(values: pa.Array, rows: RowFile, start: int, name: str) -> list[list[str]]:
    """Return the strings of each row."""
    values = _decoded(values)
    if _is_list(values.type) and _is_string(values.type.value_type):
        return [[text for text in found or () if text is not None] for found in values.to_pylist()]
    if pa.types.is_integer(values.type) or pa.types.is_floating(values.type):
        values = values.cast(pa.string())
    if not _is_string(values.type):
        rows.refuse(start, f"{name} is of type {values.type}, not text.")
    return [[text] if text else [] for text in values.to_pylist()]


def _parsed(
    values: pa.Array,
    rows: Refusing,
    start: int,
    name: str,
    parse: Callable[[str], float],
    what: str,
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
    found: Float64, values: pa.Array, rows: Refusing, start: int, name: str, what: str
) -> Float64:
    finite = np.isfinite(found)
    if not finite.all():
        row = int(np.argmin(finite))
        value = values[row].as_py()
        rows.refuse(
            start + row, f"{name} {('' if value is None else str(value)[:40])!r} is not {what}."
        )
    return found


def _single(found: Float64, rows: Refusing, start: int, name: str) -> Float32:
    """Return float32[n]; a number that float32 cannot hold is refused."""
    with np.errstate(over="ignore"):
        single = found.astype(np.float32)
    fits = np.isfinite(single)
    if not fits.all():
        row = int(np.argmin(fits))
        rows.refuse(
            start + row,
            f"{name} {found[row]:g} is too large for float32 (3.4e38). Scale this column down.",
        )
    return single


def _number(text: str) -> float:
    if "_" in text:  # Python would take it for a separator of digits
        raise ValueError(text)
    return float(text)


def _seconds(text: str) -> float:
    """Return a date's seconds since 1970; a number is no date."""
    moment = datetime.fromisoformat(text.strip())
    # A date without a zone counts as UTC, so the machine's zone does not matter.
    zone = moment.utcoffset() or timedelta()
    return (moment.replace(tzinfo=None) - datetime(1970, 1, 1) - zone).total_seconds()


def _decoded(values: pa.Array) -> pa.Array:
    """Decode a dictionary."""
    return values.dictionary_decode() if pa.types.is_dictionary(values.type) else values


def _is_string(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)
    )


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind))
