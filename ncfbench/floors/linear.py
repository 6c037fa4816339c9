"""Linear algebra of floors: products of rows, Gram matrices, and regressions on many columns."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
from scipy import sparse

from ncfbench.data.features import Float32
from ncfbench.floors.task import Features

COLUMNS = 512
"""Columns of a block of a product."""
DIRECT = 1024
"""Rows of a Gram matrix that is factorised; a larger one of sparse content is never computed."""
TOLERANCE, MOST = 1e-3, 1000
"""Length of the residual of a system over that of its right side where iterations end, for which
recall@50 is that by a factor to 0.0005; and the most iterations.
"""
SYSTEMS = 64
"""Systems that a core solves together: their vectors stay in its cache."""
TINY = np.finfo(np.float32).tiny
DENSE = 0.9
"""Share of the rows above which a column of sparse content is dense, such as a feature."""


class Regression:
    """Regressions on the content X of K items and F columns, with one penalty.

    The Gram matrix of columns or of items, whichever are fewer, is factorised by Cholesky if it is
    small. Else conjugate gradients (Hestenes and Stiefel 1952) read it by products with X and X':
    a penalty bounds its condition, so that few iterations do, and it is never computed.
    """

    def __init__(self, content: Features, penalty: float) -> None:
        self._rows, self._columns, self._dense = content, content.T, np.empty(0, np.intp)
        self._is_wide, self._penalty = content.shape[1] > content.shape[0], np.float32(penalty)
        self._solve, self._block, self._threads = self._by_gradients, SYSTEMS, os.cpu_count() or 1
        if isinstance(content, sparse.sparray):
            rows = sparse.csr_array(content)
            is_dense = np.bincount(rows.indices, minlength=rows.shape[1]) > DENSE * rows.shape[0]
            self._dense, self._apart = np.flatnonzero(is_dense), rows[:, is_dense].toarray()
            rows = sparse.csr_array(rows @ sparse.diags_array((~is_dense).astype(np.float32)))
            self._rows, self._columns = rows, sparse.csr_array(rows.T)
        if is_direct(min(content.shape), content):
            factorised = factor(gram(content if self._is_wide else content.T), penalty)
            self._solve, self._block = partial(solve, factorised), COLUMNS
        if self._block == COLUMNS or len(self._dense):  # BLAS has threads of its own
            self._threads = 1

    def of_columns(self, rows: Features) -> Float32:
        """Return X (X'X + penalty I)^-1 r of each row r of F numbers, float32[K, rows]."""
        steps = (self._to_items, self._solve) if self._is_wide else (self._solve, self._to_items)
        return self._map(rows, self._rows.shape[0], *steps)

    def of_items(self, rows: Features) -> Float32:
        """Return (X'X + penalty I)^-1 X'r of each row r of K numbers, float32[F, rows]."""
        steps = self._to_columns, self._solve
        return self._map(rows, self._rows.shape[1], *(steps[::-1] if self._is_wide else steps))

    def _map(self, rows: Features, size: int, *steps: Callable[[Float32], Float32]) -> Float32:
        result = np.empty((size, rows.shape[0]), np.float32)

        def fill(block: slice) -> None:
            first, then = steps
            result[:, block] = then(first(np.ascontiguousarray(columns(rows[block]))))

        with ThreadPoolExecutor(self._threads) as pool:
            list(pool.map(fill, blocks(rows.shape[0], self._block)))
        return result

    def _to_items(self, right: Float32) -> Float32:
        result = np.asarray(self._rows @ right)
        return result + self._apart @ right[self._dense] if len(self._dense) else result

    def _to_columns(self, right: Float32) -> Float32:
        result = np.asarray(self._columns @ right)
        if len(self._dense):
            result[self._dense] = self._apart.T @ right
        return result

    def _by_gradients(self, right: Float32) -> Float32:
        """Return the solutions for the columns of a right side, which is overwritten."""
        steps = self._to_items, self._to_columns
        first, then = steps[::-1] if self._is_wide else steps
        solution, residual, direction = np.zeros_like(right), right, right.copy()
        squares = _dots(residual, residual)
        goal = TOLERANCE**2 * squares
        for _ in range(MOST):
            if (squares <= goal).all():
                break
            image = then(first(direction))
            image += self._penalty * direction
            step = squares / np.maximum(_dots(direction, image), TINY)
            solution += step * direction
            image *= step
            residual -= image
            before, squares = squares, _dots(residual, residual)
            direction *= squares / np.maximum(before, TINY)
            direction += residual
        return solution


def is_direct(rows: int, content: Features) -> bool:
    """Return whether a Gram matrix of so many rows is factorised for regressions on a content."""
    return rows <= DIRECT or not isinstance(content, sparse.sparray)


def _dots(left: Float32, right: Float32) -> Float32:
    return np.asarray(np.einsum("nb,nb->b", left, right))


def products(left: Features, right: Features) -> Float32:
    """Return the products of all rows of two matrices, a block of columns at a time."""
    result = np.empty((left.shape[0], right.shape[0]), np.float32)
    for block in blocks(right.shape[0]):
        result[:, block] = left @ np.ascontiguousarray(columns(right[block]))
    return result


def blocks(n: int, size: int = COLUMNS) -> Iterator[slice]:
    """Yield slices of consecutive indices below n."""
    return (slice(start, start + size) for start in range(0, n, size))


def columns(rows: Features) -> Float32:
    """Return the rows of a matrix as dense columns, in the order that LAPACK overwrites."""
    dense = rows.toarray() if isinstance(rows, sparse.sparray) else np.array(rows, order="C")
    return np.asarray(dense, np.float32).T


def gram(rows: Features) -> Float32:
    """Return the products of all rows of a matrix with each other, in LAPACK's order.

    A sparse product would take three times the memory: with a word that most texts have, nearly all
    products differ from 0.
    """
    rows = sparse.csr_array(rows) if isinstance(rows, sparse.sparray) else rows
    return products(rows, rows).T


def factor(matrix: Float32, penalty: float) -> tuple[Float32, bool]:
    """Return the Cholesky factor of a Gram matrix + penalty I, in place of the matrix."""
    np.einsum("ii->i", matrix)[:] += penalty
    from scipy import linalg

    lower, is_lower = linalg.cho_factor(matrix, lower=True, overwrite_a=True, check_finite=False)
    return lower, is_lower


def solve(factorised: tuple[Float32, bool], right: Float32) -> Float32:
    """Return the solutions of a factorised system, in place of its right side."""
    from scipy import linalg

    return np.asarray(linalg.cho_solve(factorised, right, overwrite_b=True, check_finite=False))


def inverse(matrix: Float32, penalty: float) -> Float32:
    """Return (matrix + penalty I)^-1, in place of a Gram matrix."""
    lower, _ = factor(matrix, penalty)
    from scipy import linalg

    result, failed = linalg.lapack.spotri(lower, lower=True, overwrite_c=True)
    if failed:
        raise np.linalg.LinAlgError("the inverse does not exist")
    for rows in blocks(len(result)):  # LAPACK leaves the upper triangle as it was
        square = np.tril(result[rows, rows])
        result[rows, rows.start :] = result[rows.start :, rows].T
        result[rows, rows] = square + np.tril(square, -1).T
    return np.asarray(result).T  # symmetric, and row by row, as products read it
