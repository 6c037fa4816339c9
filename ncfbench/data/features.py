"""Dense features of users and items: a row of numbers each, such as an image's embedding."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ncfbench.data.ids import Ids, first_rows, positions
from ncfbench.data.table import Table
from ncfbench.data.values import vectors
from ncfbench.errors import DataError, reason

Float32: TypeAlias = NDArray[np.float32]
Numbers: TypeAlias = NDArray[np.number]
MAX_FEATURES = 2**16
"""Features that an item or a user may have."""
ROWS_AT_ONCE = 2**14
"""Rows that are checked or standardised at a time."""


@dataclass(frozen=True)
class FeatureTable:
    """Features by id.

    Args:
        what: "item" or "user", for messages.
        id: the column of ids.
        names: the columns that hold features.
    """

    table: Table
    what: str
    id: str
    names: tuple[str, ...]

    @classmethod
    def of(cls, table: Table, what: str, id_: str) -> FeatureTable:
        """Take all columns but that of ids.

        Raises:
            DataError: there is no other column.
        """
        names = tuple(name for name in table.names if name != id_)
        if not names:
            raise DataError(f"{table.path} has no column beside {id_}: it holds no features.")
        return cls(table, what, id_, names)

    @property
    def path(self) -> Path:
        """The file."""
        return self.table.path

    def describe(self) -> str:
        """Return what was chosen."""
        shown = ", ".join(self.names[:5]) + (", ..." if len(self.names) > 5 else "")
        return (
            f"Features of {self.what}s: {self.path.name} ({self.table.summary}): id {self.id},"
            f" columns {shown}."
        )

    def read(self, own: Ids, ids: pa.StringArray) -> Numbers:
        """Return floating[n, F]: the features of each id; of rows with one id the first counts.

        Args:
            own: the ids of the table's rows.

        Raises:
            DataError: a value is no finite number of float32, a list is longer or shorter than
                others, or an id has no row; the message names the row or the id.
        """
        parts = [vectors(self.table[name]) for name in self.names]
        _require_width(self.path, sum(part.shape[1] for part in parts))
        row_of = np.append(first_rows(own), -1)
        rows = row_of[positions(ids, own.names)]
        if (rows < 0).any():
            missing = ids[int(np.argmin(rows))].as_py()
            raise DataError(
                f"{self.path} has no features of {int(np.sum(rows < 0)):,} of {len(ids):,}"
                f" {self.what}s, for example of {missing[:40]!r}. Each needs a row."
            )
        return np.concatenate([part[rows] for part in parts], axis=1)


@dataclass(frozen=True)
class FeatureArray:
    """Features in the order of the items' file."""

    path: Path
    values: Numbers
    """[rows of the items' file, features]: mapped, not read."""
    what: ClassVar[str] = "item"

    @classmethod
    def open(cls, path: Path) -> FeatureArray:
        """Look at a ``.npy`` file.

        Raises:
            DataError: it cannot be read, or holds no table of numbers.
        """
        try:
            values = np.load(path, mmap_mode="r", allow_pickle=False)
        except (OSError, ValueError, EOFError) as error:
            raise DataError(f"Cannot read {path}: {reason(error)}.") from error
        if values.ndim != 2 or values.dtype.kind not in "fiub":
            shape = " x ".join(map(str, values.shape))
            raise DataError(
                f"{path} is an array of {values.dtype} of shape {shape}: features are numbers, a"
                " row for each item."
            )
        _require_width(path, values.shape[1])
        return cls(path, values)

    def describe(self) -> str:
        """Return what was found."""
        rows, width = self.values.shape
        return (
            f"Features of items: {self.path.name} ({rows:,} x {width:,}), in the order of the"
            " items' file."
        )

    def read(self, rows: NDArray[np.int64], n_rows: int) -> Numbers:
        """Return number[n, F]: the features of the items in some rows of their file.

        Args:
            n_rows: number of rows of the items' file.

        Raises:
            DataError: another number of rows, or a number that is not finite or too large for
                float32; the message names the row.
        """
        if len(self.values) != n_rows:
            raise DataError(
                f"{self.path} has {len(self.values):,} rows, and --items {n_rows:,}: row i of"
                " one must belong to row i of the other. A table with ids may have any order."
            )
        found = np.asarray(self.values[rows])
        with np.errstate(over="ignore"):
            bad = first_not_finite(found.astype(np.float32))
        if bad is not None:
            raise DataError(
                f"{self.path}, row {rows[bad] + 1}: a value is not a finite number, or too large"
                " for float32 (3.4e38). Correct it, or scale its column down."
            )
        return found


def _require_width(path: Path, width: int) -> None:
    if not 1 <= width <= MAX_FEATURES:
        raise DataError(f"{path}: {width:,} features; 1 to {MAX_FEATURES:,} are supported.")


def first_not_finite(features: Numbers) -> int | None:
    """Return the first row with a number that is not finite; None where all are.

    Args:
        features: number[n, F].
    """
    for start in range(0, len(features), ROWS_AT_ONCE):
        is_finite = np.isfinite(features[start : start + ROWS_AT_ONCE]).all(axis=1)
        if not is_finite.all():
            return start + int(np.argmin(is_finite))
    return None


def standardise(features: Numbers, fitted: NDArray[np.bool_]) -> tuple[Float32, int]:
    """Give every column a mean of 0 and a variance of 1 over some rows.

    Means and deviations are of float64: float32 cannot tell one second of 1.6e9 from the next. A
    column that is constant over these rows, but for rounding, becomes 0. A number of the other rows
    that is too far away from the mean for float32 becomes infinite.

    Args:
        features: number[n, F], finite.
        fitted: bool[n], the rows that means and variances are taken over; at least one.

    Returns:
        float32[n, F], and the number of constant columns.
    """
    is_single = features.dtype in (np.float32, np.float16)
    # Sums of differences from a row are exact where a column is constant.
    origin = 0.0 if is_single else features[np.argmax(fitted)].astype(np.float64)
    mean = origin + np.mean(features[fitted] - origin, axis=0, dtype=np.float64)
    squares = np.zeros_like(mean)
    rows = np.flatnonzero(fitted)
    for start in range(0, len(rows), ROWS_AT_ONCE):
        squares += np.sum(np.square(features[rows[start : start + ROWS_AT_ONCE]] - mean), axis=0)
    deviation = np.sqrt(squares / len(rows))
    # float32 keeps seven digits of a number, float64 fifteen: below that a deviation is rounding.
    rounding = 1e-6 if is_single else 1e-14
    is_constant = deviation <= rounding * np.abs(mean)
    factor = np.where(is_constant, 0.0, 1 / np.where(is_constant, 1.0, deviation))
    found = np.empty(features.shape, np.float32)
    for start in range(0, len(features), ROWS_AT_ONCE):
        part = slice(start, start + ROWS_AT_ONCE)
        with np.errstate(over="ignore"):
            found[part] = (features[part] - mean) * factor
    return found, int(is_constant.sum())


def standardised(
    features: Numbers,
    source: FeatureTable | FeatureArray,
    ids: pa.StringArray,
    fitted: NDArray[np.bool_],
    say: Callable[[str], None],
) -> Float32:
    """Return the features of users or items, standardised; tell of constant ones.

    Raises:
        DataError: a value is so far from those of training that float32 cannot hold it.
    """
    found, constant = standardise(features, fitted)
    if (bad := first_not_finite(found)) is not None:
        raise DataError(
            f"{source.path}: {source.what} {ids[bad].as_py()[:40]!r} has a feature that is too far"
            f" from those of the training {source.what}s to be standardised in float32. Correct"
            " its value."
        )
    if constant:
        say(
            f"Warning: {constant:,} of {found.shape[1]:,} features of the {source.what}s are the"
            " same for all in training, and are set to 0."
        )
    return found
