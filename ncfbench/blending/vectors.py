"""Scores of any recommender as dot products: vectors of users and items by a truncated singular
value decomposition, so that a floor leaves the program as a trained model does.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ncfbench.data.features import Float32
from ncfbench.data.lsa import Float64
from ncfbench.rng import Streams

ROUNDING = 1e-5
"""A length below this share of the largest is rounding in single precision."""
OVERSAMPLED = 32
"""Directions beyond the rank that the decomposition follows."""
PASSES = 2
"""Products with the scores and their transpose that sharpen the directions."""
BLOCK_ROWS = 2**16
"""Rows that are multiplied in double precision at a time."""


def factorise(
    times: Callable[[Float32], Float32],
    transposed: Callable[[Float32], Float32],
    n_users: int,
    n_items: int,
    rank: int,
) -> tuple[Float32, Float32]:
    """Return vectors of users float32[U, r] and of items float32[I, r] whose products are the best
    approximation of the scores of a rank, as randomised subspace iteration finds it (Halko,
    Martinsson and Tropp 2011), by falling singular value: fewer columns are a smaller rank.

    Args:
        times: multiplies the scores, [U, I], by a matrix; they are never there as a whole.
        transposed: multiplies their transpose by a matrix.
        rank: r, less where there are fewer users or items.
    """
    size = min(rank + OVERSAMPLED, n_users, n_items)
    basis = Streams(0).generator("vectors").standard_normal((n_items, size), np.float32)
    for _ in range(PASSES - 1):
        basis = _orthonormal(transposed(_orthonormal(times(basis))))
    left = _orthonormal(times(basis))
    basis = transposed(left)
    # The scores are left basis', and the axes of basis' basis are their right singular vectors'.
    _, axes = _axes(basis)
    axes = axes[:, : min(rank, size)]
    return left @ axes, basis @ axes


def _axes(rows: Float32) -> tuple[Float64, Float32]:
    """Return eigenvalues and eigenvectors of rows' rows, the largest first: LAPACK's decompositions
    of tall matrices take twenty times as long.
    """
    starts = range(0, len(rows), BLOCK_ROWS)
    blocks = (rows[start : start + BLOCK_ROWS].astype(np.float64) for start in starts)
    values, vectors = np.linalg.eigh(sum(block.T @ block for block in blocks))
    return np.maximum(values[::-1], 0.0), vectors[:, ::-1].astype(np.float32)


def _orthonormal(rows: Float32) -> Float32:
    """Return an orthonormal basis of what the columns span; columns of 0 where that is less."""
    values, axes = _axes(rows)
    lengths = np.sqrt(values)
    inverse = np.where(lengths > ROUNDING * lengths[0], 1 / np.maximum(lengths, 1e-300), 0.0)
    return rows @ (axes * inverse.astype(np.float32))
