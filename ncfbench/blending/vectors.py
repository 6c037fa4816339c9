"""Scores of any recommender as dot products: vectors of users and items by a truncated singular
value decomposition, so that a floor leaves the program as a trained model does.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ncfbench.data.features import Float32
from ncfbench.data.lsa import Float64
from ncfbench.rng import Streams
from ncfbench.runs.ranks import Scores

ROUNDING = 1e-5
"""A length below this share of the largest is rounding in single precision."""
OVERSAMPLED = 32
"""Directions beyond the rank that the decomposition follows."""
PASSES = 2
"""Products with the scores and their transpose that sharpen the directions."""
BLOCK_SCORES = 2**24
"""Scores that are computed at a time, 64 MB."""
KEPT_SCORES = 2**28
"""Scores that are kept between two products, 1 GiB; more are computed each time."""


def factorise(
    scores: Scores,
    n_users: int,
    n_items: int,
    rank: int,
    show: Callable[[float], object] = lambda share: None,
) -> tuple[Float32, Float32]:
    """Return vectors of users float32[U, r] and of items float32[I, r] whose products are the best
    approximation of the scores of a rank, as randomised subspace iteration finds it (Halko,
    Martinsson and Tropp 2011), by falling singular value: fewer columns are a smaller rank.

    Args:
        scores: of all items, for some users.
        rank: r, less where there are fewer users or items.
        show: receives the share that is done.
    """
    size = min(rank + OVERSAMPLED, n_users, n_items)
    basis = Streams(0).generator("vectors").standard_normal((n_items, size), np.float32)
    step = max(BLOCK_SCORES // n_items, 1)
    blocks = [np.arange(at, min(at + step, n_users)) for at in range(0, n_users, step)]
    if n_users * n_items <= KEPT_SCORES:
        whole = np.concatenate([scores(users) for users in blocks])
        scores = whole.__getitem__
    left = np.empty((n_users, size), np.float32)
    for turn in range(PASSES):
        for done, users in enumerate(blocks):
            show((turn + done / len(blocks)) / PASSES)
            left[users] = scores(users) @ basis
        left = _orthonormal(left)
        basis = np.zeros((n_items, size), np.float32)
        for users in blocks:
            basis += scores(users).T @ left[users]
        if turn + 1 < PASSES:
            basis = _orthonormal(basis)
    # The scores are left basis', and the axes of basis' basis are their right singular vectors'.
    _, axes = _axes(basis)
    axes = axes[:, : min(rank, size)]
    return left @ axes, basis @ axes


def _axes(rows: Float32) -> tuple[Float64, Float32]:
    """Return eigenvalues and eigenvectors of rows' rows, the largest first: LAPACK's decompositions
    of tall matrices take twenty times as long.
    """
    exact = rows.astype(np.float64)
    values, vectors = np.linalg.eigh(exact.T @ exact)
    return np.maximum(values[::-1], 0.0), vectors[:, ::-1].astype(np.float32)


def _orthonormal(rows: Float32) -> Float32:
    """Return an orthonormal basis of what the columns span; columns of 0 where that is less."""
    values, axes = _axes(rows)
    lengths = np.sqrt(values)
    inverse = np.where(lengths > ROUNDING * lengths[0], 1 / np.maximum(lengths, 1e-300), 0.0)
    return rows @ (axes * inverse.astype(np.float32))


def products(users_UxD: Float32, items_VxD: Float32) -> Scores:
    """Return the scores that vectors give."""
    return lambda users: users_UxD[users] @ items_VxD.T
