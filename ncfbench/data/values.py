"""Values of a whole column as numbers, times or texts; a DataError names the row of any
other.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from typing import TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ncfbench.data.columns import Column

Float64: TypeAlias = NDArray[np.float64]
ROWS_AT_ONCE = 2**14  # that become Python objects
_NO_TIME = "is not a time: write numbers, or dates such as 2019-11-13 05:53."
_TRUTHS = {"true": 1, "yes": 1, "t": 1, "y": 1, "false": 0, "no": 0, "f": 0, "n": 0}
TIMES = {
    "a year": (1.9e3, 2.1e3),
    "a spreadsheet's days": (3e4, 7.5e4),
    "a date": (1.9e7, 2.11e7),
    "seconds": (1e8, 4.2e9),
    "a date with minutes": (1.9e11, 2.11e11),
    "milliseconds": (3e11, 4.2e12),
    "a date with seconds": (1.9e13, 2.11e13),
    "microseconds": (3e14, 4.2e15),
    "nanoseconds": (3e17, 4.2e18),
}
"""Ranges of numbers that mean a time, since about 1975: times of one column are of one form."""
_LARGE = 1.9e7
"""The least number that is too large for a count or a duration in seconds."""


def numbers(column: Column, why: str = "is not a number.") -> Float64:
    """Return float64[n], all finite; true and yes are 1, false and no are 0."""
    kind = column.values.type
    # Arrow rounds a decimal wrongly: 0.7 becomes 0.7000000000000001.
    values = column.values.cast(pa.string()) if pa.types.is_decimal(kind) else column.values
    found = _cast(values)
    if found is None and not pa.types.is_string(values.type):
        column.refuse(0, f"is of type {kind}, not a number.")
    return _finite(column, _parsed(values) if found is None else found, why)


def rounded(threshold: float, column: Column) -> float:
    """Return a threshold for a column's numbers, rounded as float32 or float16 were: 0.7 written as
    these is not 0.7 in float64.
    """
    kind = column.values.type
    if pa.types.is_floating(kind):
        with np.errstate(over="ignore"):
            return float(np.dtype(kind.to_pandas_dtype()).type(threshold))
    return threshold


def times(column: Column, *, is_named: bool = False) -> Float64:
    """Return float64[n] that grow with time: numbers as they are, or dates as seconds since 1970; a
    date without a zone counts as UTC.

    Args:
        is_named: the user named the column: where numbers of it have no known form of time, larger
            ones are later.

    Raises:
        DataError: times of two forms, by the first two rows that differ; durations, times of day
            without a date, and other values that are no times.
    """
    values, kind = column.values, column.values.type
    if pa.types.is_time(kind) or pa.types.is_duration(kind) or pa.types.is_interval(kind):
        column.refuse(
            0, f"is of type {kind}, which does not say when: name another, --time-column NAME."
        )
    if pa.types.is_temporal(kind):
        whole = pa.int32() if pa.types.is_date32(kind) else pa.int64()
        return numbers(replace(column, values=values.cast(whole)))
    if pa.types.is_string(kind) and _cast(values) is None:
        seconds = np.array([_seconds(text or "") for text in values.to_pylist()])
        is_date = np.isfinite(seconds)
        if is_date.any():
            found = _finite(column, np.where(is_date, seconds, _parsed(values)), _NO_TIME)
            _require_one_form(column, is_date.astype(int), ("a number", "a date"))
            return found
    found = numbers(column, _NO_TIME)
    place = np.searchsorted(np.ravel(list(TIMES.values())), found, side="right")
    is_time = place % 2 == 1
    if is_named and not is_time.all():
        return found
    if not is_time.all() and not (is_time & (found >= _LARGE)).any():
        row = int(np.argmin(is_time))
        column.refuse(
            row,
            f"{str(values[row].as_py())[:40]!r} has no known form of time; durations and counts"
            " look so. Name the column of times; this one, if larger numbers are later:"
            f" --time-column {column.name}.",
        )
    forms = np.where(is_time, place // 2, len(TIMES))
    _require_one_form(column, forms, [*TIMES, "of no known form"])
    return found


def _seconds(text: str) -> float:
    """Return a date's seconds since 1970, NaN for others; digits are a date if they are eight."""
    text = text.strip().removesuffix(" UTC")
    with suppress(ValueError):
        if not text.isdigit() or len(text) == len("20240131"):
            moment = datetime.fromisoformat(text)
            return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    return math.nan


def _require_one_form(column: Column, forms: NDArray[np.integer], names: Sequence[str]) -> None:
    """Refuse times of several forms, which are indices into their names."""
    rows = sorted(int(np.argmax(forms == form)) for form in np.unique(forms))[:2]
    if len(rows) == 2:
        one, two = (f"{str(column.values[row].as_py())[:40]!r}" for row in rows)
        form, other = (names[forms[row]] for row in rows)
        where = column.table.locate(rows[0])
        column.refuse(
            rows[1],
            f"{two} is {other}, and {one} on {where} {form}. Write all times in one"
            " form, or leave out rows without a time.",
        )


def texts(column: Column, rows: NDArray[np.int64]) -> Iterator[list[str]]:
    """Yield the strings of each of some rows: one, or those of a list, or none."""
    kind = column.values.type
    is_list = pa.types.is_list(kind) or pa.types.is_large_list(kind)
    for start in range(0, len(rows), ROWS_AT_ONCE):
        values = column.values.take(pa.array(rows[start : start + ROWS_AT_ONCE]))
        try:
            values = values.cast(pa.list_(pa.string()) if is_list else pa.string())
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            column.refuse(0, f"is of type {kind}, not text.")
        for found in values.to_pylist():
            yield [text for text in (found if isinstance(found, list) else [found]) if text]


def _cast(values: pa.ChunkedArray) -> Float64 | None:
    """Return float64[n], NaN for what is missing; None where Arrow cannot convert all values."""
    try:
        # An integer beyond 2^53 is rounded, as in a text file.
        return np.asarray(values.cast(pa.float64(), safe=False).to_numpy())
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return None


def _parsed(texts: pa.ChunkedArray) -> Float64:
    """Return float64[n], NaN for what is no number: by Python, which is slower and takes more."""
    return np.array([_number(text or "") for text in texts.to_pylist()])


def _number(text: str) -> float:
    text = text.strip().lower()
    with suppress(ValueError):
        if "_" not in text:  # Python would take it for a separator of digits
            return _TRUTHS[text] if text in _TRUTHS else float(text)
    return math.nan


def _finite(column: Column, found: Float64, why: str) -> Float64:
    finite = np.isfinite(found)
    if not finite.all():
        row = int(np.argmin(finite))
        value = column.values[row].as_py()
        column.refuse(row, "is missing." if value is None else f"{str(value)[:40]!r} {why}")
    return found
