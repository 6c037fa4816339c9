"""Dense features of items: a row of numbers each, such as an image's embedding."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ncfbench.data.ids import Ids
from ncfbench.data.options import MAX_FEATURES
from ncfbench.data.table import Column, Table
from ncfbench.data.values import vectors
from ncfbench.errors import DataError, reason

Float32: TypeAlias = NDArray[np.float32]
Numbers: TypeAlias = NDArray[np.number]
ROWS_AT_ONCE = 2**14  # that are standardised at a time


@dataclass(frozen=True)
class Features:
    """Dense features as a file has them.

    Args:
        summary: the file and what was chosen of it.
        values: number[rows, F], finite, and at most what float32 can hold.
        ids: the id of each row; None where the rows are those of the items' file.
        warnings: those of the table.
    """

    path: Path
    summary: str
    values: Numbers
    ids: Column | None
    warnings: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not 1 <= (width := self.values.shape[1]) <= MAX_FEATURES:
            raise DataError(
                f"{self.path}: {width:,} features; 1 to {MAX_FEATURES:,} are supported."
            )

    @classmethod
    def of_table(cls, table: Table, id_: str, names: Sequence[str] = ()) -> Features:
        """Take some columns, by default all but that of ids; for refusals see :func:`vectors`."""
        names = names or [name for name in table.names if name != id_]
        if not names:
            raise DataError(f"{table.path} has no column beside {id_}: it holds no features.")
        listed = ", ".join(names[:5]) + (", ..." if len(names) > 5 else "")
        summary = f"{table.path.name} ({table.summary}): id {id_}, columns {listed}"
        values = np.concatenate([vectors(table[name]) for name in names], axis=1)
        return cls(table.path, summary, values, table[id_], table.warnings)

    @classmethod
    def of_array(cls, path: Path, n_rows: int) -> Features:
        """Map a ``.npy`` file whose rows are those of the items' file; refuse another number of
        rows, and what float32 cannot hold.
        """
        try:
            values = np.load(path, mmap_mode="r", allow_pickle=False)
        except (OSError, ValueError, EOFError) as error:
            raise DataError(f"Cannot read {path}: {reason(error)}.") from error
        shape = " x ".join(f"{size:,}" for size in values.shape)
        if values.ndim != 2 or values.dtype.kind not in "fiub":
            raise DataError(
                f"{path} is an array of {values.dtype} of shape {shape}: features are numbers, a"
                " row for each item."
            )
        if len(values) != n_rows:
            raise DataError(
                f"{path} has {len(values):,} rows, and --items {n_rows:,}: row i of one must"
                " belong to row i of the other. A table with ids may have any order."
            )
        with np.errstate(over="ignore"):
            fits = np.isfinite(values.astype(np.float32, copy=False)).all(axis=1)
        if not fits.all():
            raise DataError(
                f"{path}, row {np.argmin(fits) + 1}: a value is not a finite number, or too large"
                " for float32 (3.4e38). Correct it, or scale its column down."
            )
        summary = f"{path.name} ({shape}), in the order of the items' file"
        return cls(path, summary, values, None)

    def standardised(
        self,
        rows: NDArray[np.int64] | Ids,
        names: pa.StringArray,
        fitted: NDArray[np.bool_],
        say: Callable[[str], None],
    ) -> Float32:
        """Return float32[n, F], see :func:`standardise`; a DataError if a name has no row, or a
        value is too far from those of training.

        Args:
            rows: of the items; or the ids of all rows, of which the first counts.
            names: ids of the items.
            fitted: bool[n], those of training.
        """
        if isinstance(rows, Ids):
            if repeated := int(np.sum(rows.codes >= 0)) - len(rows.names):
                say(
                    f"Warning: left out, rows of {self.path.name} that repeat the"
                    f" {rows.column.name} of an earlier one: {repeated:,}."
                )
            rows = rows.rows_of(names)
        if (rows < 0).any():
            missing = names[int(np.argmin(rows))].as_py()
            raise DataError(
                f"{self.path} has no features of {int(np.sum(rows < 0)):,} of {len(names):,}"
                f" items, for example of {missing[:40]!r}. Each needs a row."
            )
        found, constant = standardise(self.values[rows], fitted)
        fits = np.isfinite(found).all(axis=1)
        if not fits.all():
            name = names[int(np.argmin(fits))].as_py()
            raise DataError(
                f"{self.path}: item {name[:40]!r} has a feature that is too far from those"
                " of the training items to be standardised in float32. Correct its value."
            )
        if constant:
            say(
                f"Warning: {constant:,} of {found.shape[1]:,} features of the items are the"
                " same for all in training, but for rounding, and are set to 0."
            )
        return found


def standardise(features: Numbers, fitted: NDArray[np.bool_]) -> tuple[Float32, int]:
    """Give every column a mean of 0 and a variance of 1 over some rows, by float64.

    A column that is constant over these rows, but for rounding, becomes 0. A number of the other
    rows that is too far away from the mean for float32 becomes infinite.

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
    # A deviation below the distance of two neighbouring numbers is rounding.
    rounding = float(np.finfo(str(features.dtype)).eps) if is_single else 1e-14
    is_constant = deviation <= rounding * np.abs(mean)
    factor = np.where(is_constant, 0.0, 1 / np.where(is_constant, 1.0, deviation))
    found = np.empty(features.shape, np.float32)
    for start in range(0, len(features), ROWS_AT_ONCE):
        part = slice(start, start + ROWS_AT_ONCE)
        with np.errstate(over="ignore"):
            found[part] = (features[part] - mean) * factor
    return found, int(is_constant.sum())
