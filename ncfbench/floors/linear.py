"""Linear algebra of floors: products of rows, Gram matrices, and regressions on many columns."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TypeAlias

import numpy as np
from scipy import linalg, sparse

from ncfbench.data.features import Float32
from ncfbench.floors.task import Features

Step: TypeAlias = Callable[[Float32], Float32]
COLUMNS = 512
"""Columns of a block of a product."""
DIRECT = 1024
"""Rows of a Gram matrix that is factorised; a larger one of sparse content is never computed."""
TOLERANCE = 1e-3
"""Length of the residual of a system over that of its right side where iterations end: recall@50 is
then within 0.0005 of that by a factor.
"""
MOST = 1000
"""Iterations of a system, at most."""
SYSTEMS = 64
"""Systems that a core solves together: their vectors stay in its cache."""
DENSE = 0.9
"""Share of the rows above which a column of sparse content is dense, such as a feature."""


class Regression:
    """Regressions on the content X of K items and F columns, with one penalty.

    The Gram matrix of columns or of items, whichever are fewer, is factorised by Cholesky if it is
    small. Else conjugate gradients (Hestenes and Stiefel 1952) read it by products with X and X':
    a penalty bounds its condition, so that few iterations do, and it is never computed.
    """

    def __init__(self, content: Features, penalty: float) -> None:
        self._shape, self._penalty = content.shape, np.float32(penalty)
        self._is_wide = content.shape[1] > content.shape[0]
        self._solve, self._block, self._threads = self._by_gradients, SYSTEMS, os.cpu_count() or 1
        if is_direct(min(content.shape), content):
            factorised = factor(gram(content if self._is_wide else content.T), penalty)
            self._solve, self._block, self._threads = partial(solve, factorised), COLUMNS, 1
        self._rows, self._columns, self._dense = content, content.T, np.empty(0, np.intp)
        if isinstance(content, sparse.sparray):
            rows = sparse.csr_array(content)
            shares = np.bincount(rows.indices, minlength=rows.shape[1]) / rows.shape[0]
            self._dense = np.flatnonzero(shares > DENSE)
            if len(self._dense):  # BLAS has threads of its own
                self._apart, self._threads = rows[:, self._dense].toarray(), 1
                rows = rows @ sparse.diags_array((shares <= DENSE).astype(np.float32))
                rows.eliminate_zeros()
            self._rows, self._columns = sparse.csr_array(rows), sparse.csr_array(rows.T)

    def of_columns(self, rows: Features) -> Float32:
        """Return X (X'X + penalty I)^-1 r of each row r of F numbers, float32[K, rows]."""
        return self._map(rows, self._shape[0], self._to_items, crosses_first=self._is_wide)

    def of_items(self, rows: Features) -> Float32:
        """Return (X'X + penalty I)^-1 X'r of each row r of K numbers, float32[F, rows]."""
        return self._map(rows, self._shape[1], self._to_columns, crosses_first=not self._is_wide)

    def _map(self, rows: Features, size: int, cross: Step, *, crosses_first: bool) -> Float32:
        """Return the solutions, crossed to the other side of X before or after they are solved."""
        result = np.empty((size, rows.shape[0]), np.float32)

        def fill(block: slice) -> None:
            right = np.ascontiguousarray(columns(rows[block]))
            solution = self._solve(cross(right)) if crosses_first else cross(self._solve(right))
            result[:, block] = solution

        with ThreadPoolExecutor(self._threads) as pool:
            list(pool.map(fill, blocks(rows.shape[0], self._block)))
        return result

    def _to_items(self, right: Float32) -> Float32:
        """Return X right."""
        result = np.asarray(self._rows @ right)
        return result + self._apart @ right[self._dense] if len(self._dense) else result

    def _to_columns(self, right: Float32) -> Float32:
        """Return X'right."""
        result = np.asarray(self._columns @ right)
        if len(self._dense):
            result[self._dense] = self._apart.T @ right
        return result

    def _by_gradients(self, right: Float32) -> Float32:
        """Return the solutions for the columns of a right side, which is overwritten."""
        first, then = self._to_items, self._to_columns
        if self._is_wide:
            first, then = then, first
        solution, residual, direction = np.zeros_like(right), right, right.copy()
        squares = _squares(residual)
        goal = TOLERANCE**2 * squares
        for _ in range(MOST):
            if not (squares > goal).any():
                break
            image = then(first(direction))
            image += self._penalty * direction
            curvature = np.einsum("nb,nb->b", direction, image)
            step = squares / np.maximum(curvature, np.finfo(np.float32).tiny)
            solution += step * direction
            image *= step
            residual -= image
            before, squares = squares, _squares(residual)
            direction *= squares / np.maximum(before, np.finfo(np.float32).tiny)
            direction += residual
        return solution


def is_direct(rows: int, content: Features) -> bool:
    """Return whether a Gram matrix of so many rows is factorised for regressions on a content."""
    return rows <= DIRECT or not isinstance(content, sparse.sparray)


def _squares(rows: Float32) -> Float32:
    """Return the sum of squares of each column."""
    return np.asarray(np.einsum("nb,nb->b", rows, rows))


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
    lower, is_lower = linalg.cho_factor(matrix, lower=True, overwrite_a=True, check_finite=False)
    return lower, is_lower


def solve(factorised: tuple[Float32, bool], right: Float32) -> Float32:
    """Return the solutions of a factorised system, in place of its right side."""
    return np.asarray(linalg.cho_solve(factorised, right, overwrite_b=True, check_finite=False))


def inverse(matrix: Float32, penalty: float) -> Float32:
    """Return (matrix + penalty I)^-1, in place of a Gram matrix."""
    lower, _ = factor(matrix, penalty)
    result, failed = linalg.lapack.spotri(lower, lower=True, overwrite_c=True)
    if failed:
        raise linalg.LinAlgError("the inverse does not exist")
    for rows in blocks(len(result)):  # LAPACK leaves the upper triangle as it was
        square = np.tril(result[rows, rows])
        result[rows, rows.start :] = result[rows.start :, rows].T
        result[rows, rows] = square + np.tril(square, -1).T
    return np.asarray(result).T  # symmetric, and row by row, as products read it
