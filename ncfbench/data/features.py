"""Dense features of items: a row of numbers each, such as an image's embedding."""

from __future__ import annotations

from pathlib import Path
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from ncfbench.data.options import MAX_FEATURES
from ncfbench.errors import DataError, reason

Float32: TypeAlias = NDArray[np.float32]
Numbers: TypeAlias = NDArray[np.number]
ROWS_AT_ONCE = 2**14  # that are standardised at a time


def read_features(path: Path, n_rows: int) -> Numbers:
    """Map a ``.npy`` file, number[rows, F], whose rows are those of the items' file.

    Raises:
        DataError: another number of rows, no feature, or a value that float32 cannot hold.
    """
    try:
        values = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise DataError(f"Cannot read {path}: {reason(error)}. Is it a .npy file?") from error
    if values.ndim != 2 or values.dtype.kind not in "fiub":
        shape = " x ".join(f"{size:,}" for size in values.shape)
        raise DataError(
            f"{path} is an array of {values.dtype} of shape {shape}: features are numbers, a row"
            " for each item."
        )
    if not 1 <= (width := values.shape[1]) <= MAX_FEATURES:
        raise DataError(f"{path}: {width:,} features; 1 to {MAX_FEATURES:,} are supported.")
    if len(values) != n_rows:
        raise DataError(
            f"{path} has {len(values):,} rows, and --items {n_rows:,}: row i of one must belong to"
            " row i of the other."
        )
    with np.errstate(over="ignore"):
        fits = np.isfinite(values.astype(np.float32, copy=False)).all(axis=1)
    if not fits.all():
        raise DataError(
            f"{path}, row {np.argmin(fits) + 1}: a value is not a finite number, or too large for"
            " float32 (3.4e38). Correct it, or scale its column down."
        )
    found: Numbers = values
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
