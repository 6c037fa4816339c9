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
import pyarrow.compute as pc
from numpy.typing import NDArray

from ncfbench.data.table import Column
from ncfbench.errors import DataError

Float64: TypeAlias = NDArray[np.float64]
ROWS_AT_ONCE = 2**14  # that become Python objects
_NO_TIME = "is not a time: write numbers, or dates such as 2019-11-13 05:53."
_TRUTHS = {"true": 1, "yes": 1, "t": 1, "y": 1, "false": 0, "no": 0, "f": 0, "n": 0}
_CLOCK = r"^\s*([01]?[0-9]|2[0-3]):[0-5][0-9](:[0-5][0-9]([.,][0-9]+)?)?\s*(Z|[+-][0-9:]+)?\s*$"
_HOUR = r"^\s*([01]?[0-9]|2[0-3])(:[0-5][0-9].*)?\s*$"
_MIDNIGHT = r"([ T]00:00(:00(\.0+)?)?(Z|[+-][0-9:]+)?)?\s*$"
_DAY = r"^\s*[0-9]{4}-?[0-9]{2}-?[0-9]{2}" + _MIDNIGHT
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


def is_time_of_day(column: Column, has_bare_hours: bool = False) -> bool:
    """Return whether all values of a column are times of day, such as 09:30; or hours, 0 to 23."""
    values, form = column.values, _HOUR if has_bare_hours else _CLOCK
    if has_bare_hours and pa.types.is_integer(values.type):
        values = values.cast(pa.string())
    if not pa.types.is_string(values.type):
        return bool(pa.types.is_time(values.type))
    present = values.filter(pc.greater(pc.utf8_length(pc.utf8_trim_whitespace(values)), 0))
    return len(present) > 0 and bool(pc.all(pc.match_substring_regex(present, form)).as_py())


def is_duration(column: Column) -> bool:
    """Return whether a column's type is that of durations."""
    return bool(
        pa.types.is_duration(column.values.type) or pa.types.is_interval(column.values.type)
    )


def are_days(column: Column) -> bool:
    """Return whether all values of a column are dates without a time of day."""
    if pa.types.is_nested(column.values.type):
        return False
    return bool(pc.all(pc.match_substring_regex(column.values.cast(pa.string()), _DAY)).as_py())


def with_time_of_day(days: Column, clock: Column) -> Column:
    """Return a column of dates with a time of day, or the time since midnight, as texts, of two
    columns; null where one is missing. A DataError where they cannot be texts.
    """
    for column in (days, clock):
        if pa.types.is_nested(column.values.type):
            column.refuse(0, f"is of type {column.values.type}, not a date or a time of day.")
    day = pc.replace_substring_regex(days.values.cast(pa.string()), _MIDNIGHT, "")
    time = clock.values
    if pa.types.is_duration(time.type):
        time = time.cast(pa.int64()).cast(pa.timestamp(time.type.unit)).cast(pa.string())
        time = pc.replace_substring_regex(time, "^1970-01-01 ", "")
    time = pc.utf8_trim_whitespace(time.cast(pa.string()))
    time = pc.replace_substring_regex(time, "^([0-9])(:|$)", r"0\1\2")
    both = pc.binary_join_element_wise(pc.utf8_trim_whitespace(day), time, " ")
    is_missing = pc.or_(pc.equal(day, ""), pc.equal(time, ""))
    both = pc.if_else(is_missing, pa.scalar(None, pa.string()), both)
    return Column(days.table, f"{days.name},{clock.name}", both)


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
    what = "a duration" if is_duration(column) else ""
    if what or is_time_of_day(column):
        raise DataError(
            f"{column.table.path}: {column.name} is {what or 'a time of day'}, which does not say"
            " when. Name a column of dates and times, or of dates and one of times of day:"
            " --time-column DATE,TIME."
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
