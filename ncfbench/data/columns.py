"""Tables that users bring, as their readers give them, and their columns as numbers, times or
texts; a DataError names the row of any other value.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import NoReturn, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ncfbench.errors import DataError, reason

Float64: TypeAlias = NDArray[np.float64]
DAMAGED = (pa.ArrowException, OSError, EOFError, MemoryError)
"""What reading a damaged file raises."""
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


@dataclass(frozen=True)
class Table:
    """A file of rows; make one with :func:`~ncfbench.data.table.read_table`.

    Args:
        summary: format, delimiter and compression, in a few words.
        names: names of the columns, as the file spells them.
        load: returns the values of a column.
        locate: returns how messages name a row, by its number from 0.
    """

    path: Path
    summary: str
    names: tuple[str, ...]
    load: Callable[[str], pa.ChunkedArray] = field(compare=False)
    locate: Callable[[int], str] = field(compare=False)
    warnings: Sequence[str] = ()

    def __post_init__(self) -> None:
        for index, name in enumerate(self.names):
            if name in self.names[:index]:
                raise DataError(
                    f"{self.path}, line 1: the column {name[:40]!r} is named twice. The first line"
                    " must be a header."
                )

    def __getitem__(self, name: str) -> Column:
        """Return a column: of strings where the format is text, else of the file's own types."""
        try:
            values = self.load(name)
        except DAMAGED as error:
            raise DataError(f"{self.path}: {name} is damaged: {reason(error)}.") from error
        if pa.types.is_dictionary(values.type):
            values = values.cast(values.type.value_type)
        if pa.types.is_large_string(values.type) or pa.types.is_string_view(values.type):
            values = values.cast(pa.string())
        return Column(self, name, values)


@dataclass(frozen=True)
class Column:
    """A column of a table."""

    table: Table
    name: str
    values: pa.ChunkedArray

    def refuse(self, row: int, why: str) -> NoReturn:
        """Raise a DataError about a row, by its number from 0."""
        raise DataError(f"{self.table.path}, {self.table.locate(row)}: {self.name} {why}")

    def numbers(self, why: str = "is not a number.") -> Float64:
        """Return float64[n], all finite; true and yes are 1, false and no are 0."""
        return self._finite(self._numbers(), why)

    def _finite(self, numbers: Float64, why: str) -> Float64:
        finite = np.isfinite(numbers)
        if not finite.all():
            value = self.values[row := int(np.argmin(finite))].as_py()
            self.refuse(row, "is missing." if value is None else f"{str(value)[:40]!r} {why}")
        return numbers

    def _numbers(self) -> Float64:
        """Return float64[n], NaN for what is missing or no number."""
        kind = self.values.type
        # Arrow rounds a decimal wrongly: 0.7 becomes 0.7000000000000001.
        values = self.values.cast(pa.string()) if pa.types.is_decimal(kind) else self.values
        try:
            # An integer beyond 2^53 is rounded, as in a text file.
            return np.asarray(values.cast(pa.float64(), safe=False).to_numpy())
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            if not pa.types.is_string(kind):
                self.refuse(0, f"is of type {kind}, not a number.")
        # Python is slower, and takes more.
        return np.array([_number(text or "") for text in values.to_pylist()])

    def at_least(self, threshold: float) -> NDArray[np.bool_]:
        """Return bool[n]: which numbers are a threshold or more. It is rounded as float32 or
        float16 numbers were: 0.7 written as these is not 0.7 in float64.
        """
        kind = self.values.type
        if pa.types.is_floating(kind):
            with np.errstate(over="ignore"):
                threshold = float(np.dtype(f"f{kind.bit_width // 8}").type(threshold))
        return self.numbers() >= threshold

    def times(self, *, is_named: bool = False) -> Float64:
        """Return float64[n] that grow with time: numbers as they are, or dates as seconds since
        1970; a date without a zone counts as UTC.

        Args:
            is_named: the user named the column: where numbers of it have no known form of time,
                larger ones are later.

        Raises:
            DataError: times of two forms, by the first two rows that differ; durations, times of
                day without a date, and other values that are no times.
        """
        values, kind = self.values, self.values.type
        if pa.types.is_time(kind) or pa.types.is_duration(kind) or pa.types.is_interval(kind):
            self.refuse(
                0, f"is of type {kind}, which does not say when: name another, --time-column NAME."
            )
        if pa.types.is_temporal(kind):
            whole = pa.int32() if pa.types.is_date32(kind) else pa.int64()
            return replace(self, values=values.cast(whole)).numbers()
        numbers = self._numbers()
        if pa.types.is_string(kind) and np.isnan(numbers).any():
            seconds = np.array([_seconds(text or "") for text in values.to_pylist()])
            if (is_date := np.isfinite(seconds)).any():
                numbers = self._finite(np.where(is_date, seconds, numbers), _NO_TIME)
                self._require_one_form(is_date.astype(int), ("a number", "a date"))
                return numbers
        self._finite(numbers, _NO_TIME)
        index = np.searchsorted(np.ravel(list(TIMES.values())), numbers, side="right")
        is_time = index % 2 == 1
        if is_named and not is_time.all():
            return numbers
        if not (is_time.all() or (is_time & (numbers >= _LARGE)).any()):
            row = int(np.argmin(is_time))
            self.refuse(
                row,
                f"{str(values[row].as_py())[:40]!r} has no known form of time; durations and counts"
                " look so. Name the column of times; this one, if larger numbers are later:"
                f" --time-column {self.name}.",
            )
        forms = np.where(is_time, index // 2, len(TIMES))
        self._require_one_form(forms, [*TIMES, "of no known form"])
        return numbers

    def _require_one_form(self, forms: NDArray[np.integer], names: Sequence[str]) -> None:
        """Refuse times of several forms, which are indices into their names."""
        rows = sorted(int(np.argmax(forms == form)) for form in np.unique(forms))[:2]
        if len(rows) == 2:
            one, two = (f"{str(self.values[row].as_py())[:40]!r}" for row in rows)
            form, other = (names[forms[row]] for row in rows)
            where = self.table.locate(rows[0])
            self.refuse(
                rows[1],
                f"{two} is {other}, and {one} on {where} {form}. Write all times in one form, or"
                " leave out rows without a time.",
            )

    def texts(self, rows: NDArray[np.int64]) -> Iterator[list[str]]:
        """Yield the strings of each of some rows: one, or those of a list, or none."""
        kind = self.values.type
        is_list = pa.types.is_list(kind) or pa.types.is_large_list(kind)
        for start in range(0, len(rows), ROWS_AT_ONCE):
            values = self.values.take(pa.array(rows[start : start + ROWS_AT_ONCE]))
            try:
                values = values.cast(pa.list_(pa.string()) if is_list else pa.string())
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
                self.refuse(0, f"is of type {kind}, not text.")
            for value in values.to_pylist():
                yield [text for text in (value if isinstance(value, list) else [value]) if text]


def _seconds(text: str) -> float:
    """Return a date's seconds since 1970, NaN for others; digits are a date if they are eight."""
    text = text.strip().removesuffix(" UTC")
    with suppress(ValueError):
        if not text.isdigit() or len(text) == len("20240131"):
            moment = datetime.fromisoformat(text)
            return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    return math.nan


def _number(text: str) -> float:
    text = text.strip().lower()
    with suppress(ValueError):
        if "_" not in text:  # Python would take it for a separator of digits
            return _TRUTHS[text] if text in _TRUTHS else float(text)
    return math.nan
