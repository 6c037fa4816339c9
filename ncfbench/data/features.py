"""Dense features of users and items: a row of numbers each, such as an image's embedding."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Float32: TypeAlias = NDArray[np.float32]
MAX_FEATURES = 2**16
"""Features that an item or a user may have."""
ROWS_AT_ONCE = 2**14
"""Rows that are checked or standardised at a time."""


def first_not_finite(features: NDArray[np.floating]) -> int | None:
    """Return the first row with a number that is not finite; None where all are.

    Args:
        features: floating[n, F].
    """
    for start in range(0, len(features), ROWS_AT_ONCE):
        is_finite = np.isfinite(features[start : start + ROWS_AT_ONCE]).all(axis=1)
        if not is_finite.all():
            return start + int(np.argmin(is_finite))
    return None


def standardise(features: Float32, fitted: NDArray[np.bool_]) -> int:
    """Give every column a mean of 0 and a variance of 1 over some rows, in place.

    A column that is constant over these rows tells nothing that training could use: it becomes 0.
    A number of the other rows that is too far away from the mean for float32 becomes infinite.

    Args:
        features: float32[n, F], finite.
        fitted: bool[n], the rows that means and variances are taken over; at least one.

    Returns:
        The number of constant columns.
    """
    mean = np.mean(features[fitted], axis=0, dtype=np.float64)
    squares = np.zeros_like(mean)
    rows = np.flatnonzero(fitted)
    for start in range(0, len(rows), ROWS_AT_ONCE):
        squares += np.sum(np.square(features[rows[start : start + ROWS_AT_ONCE]] - mean), axis=0)
    deviation = np.sqrt(squares / len(rows))
    # float32 keeps seven digits of a number: below that a deviation is rounding.
    is_constant = deviation <= 1e-6 * np.abs(mean)
    factor = np.where(is_constant, 0.0, 1 / np.where(is_constant, 1.0, deviation))
    for start in range(0, len(features), ROWS_AT_ONCE):
        part = features[start : start + ROWS_AT_ONCE]
        with np.errstate(over="ignore"):
            part[:] = (part - mean) * factor
    return int(is_constant.sum())
