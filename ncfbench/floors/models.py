"""The floors: recommenders in closed form, or in a few sweeps of least squares.

Each is fitted to a :class:`ncfbench.floors.task.Task` and returns a function that scores its
candidates for some users, float32[users, C]. Y is the matrix of training links, X_n the content of
the n items with training links, x_c that of a candidate.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import linalg, sparse

from ncfbench.floors.task import Features, Float32, Task

Scores: TypeAlias = Callable[[NDArray[np.integer]], Float32]
"""Returns the scores of all candidates for some users."""


@dataclass(frozen=True)
class Floor:
    """A recommender that needs no gradient.

    Attributes:
        formula: the score of user u and candidate c.
        source: where it comes from.
        needs_content: whether it reads the items' content.
        needs_links: whether it can rank only items with training links.
        penalties: values to choose from on validation; empty where it has none.
        fit: fits it to a task with a penalty.
        cost: its largest arrays in bytes, and its floating-point operations, for a task.
    """

    name: str
    formula: str
    source: str
    fit: Callable[[Task, float], Scores]
    cost: Callable[[Task], tuple[float, float]]
    needs_content: bool = False
    needs_links: bool = False
    penalties: Sequence[float] = ()


def popularity(task: Task, penalty: float = 0.0) -> Scores:
    """Score a candidate by its number of training links."""
    counts = np.bincount(task.links_UxI.indices, minlength=task.links_UxI.shape[1])
    scores = counts[task.candidates].astype(np.float32)
    return lambda users: np.broadcast_to(scores, (len(users), len(scores)))


def profile(task: Task, penalty: float = 0.0) -> Scores:
    """Score a candidate by its product with the sum of a user's items."""
    features = _content(task)
    return _products(task.links_UxI @ features, _dense(features[task.candidates]).T)


def ridge(task: Task, penalty: float) -> Scores:
    """Regress links on content: (X'X + penalty I)^-1 whitens profiles.

    Solved for the candidates, of which there are fewer than users: in the primal where there are
    fewer features than items, else in the dual.
    """
    features = _content(task)
    known = task.training_items
    of_known, of_candidates = features[known], features[task.candidates]
    if features.shape[1] <= len(known):
        gram = _dense(of_known.T @ of_known)
        solved = _solve(gram, penalty, _dense(of_candidates.T))
        return _products(task.links_UxI @ features, solved)
    gram = _dense(of_known @ of_known.T)
    solved = _solve(gram, penalty, _dense(of_known @ of_candidates.T))
    return _products(task.links_UxI[:, known], solved)


def ease(task: Task, penalty: float) -> Scores:
    """Regress each item's links on those of all other items (Steck 2019)."""
    links = task.links_UxI
    gram = _dense(links.T @ links)
    inverse = _solve(gram, penalty, np.eye(len(gram), dtype=np.float32))
    weights = inverse / -np.diag(inverse)
    np.fill_diagonal(weights, 0.0)
    return _products(links, weights[:, task.candidates])


def ials(task: Task, penalty: float) -> Scores:
    """Factorise all pairs by weighted least squares (Hu et al. 2008), of 64 dimensions."""
    users, items = factors(task.links_UxI, penalty, dimension=64, unobserved=0.1, sweeps=10)
    return _products(users, items[task.candidates].T)


def factors(
    links: sparse.csr_array, penalty: float, *, dimension: int, unobserved: float, sweeps: int
) -> tuple[Float32, Float32]:
    """Return vectors of users and items whose products fit all pairs: 1 at a link, else 0.

    A link costs (product - 1)^2, every pair ``unobserved`` times product^2 besides. The penalty of
    a row grows with these weights (Rendle et al. 2021, exponent 1). Rows without links are zero.
    """
    sides = links, sparse.csr_array(links.T)
    rng = np.random.default_rng(0)
    users, items = (
        (rng.normal(size=(side.shape[0], dimension)) * 0.1 / np.sqrt(dimension)).astype(np.float32)
        for side in sides
    )
    for _ in range(sweeps):
        users = _least_squares(sides[0], items, penalty, unobserved)
        items = _least_squares(sides[1], users, penalty, unobserved)
    return users, items


def _least_squares(
    links: sparse.csr_array, other: Float32, penalty: float, unobserved: float
) -> Float32:
    """Return the vectors of one side that fit best to those of the other."""
    gram = unobserved * (other.T @ other)
    eye = np.eye(other.shape[1], dtype=np.float32)
    found = np.zeros((links.shape[0], other.shape[1]), np.float32)
    for row, (start, end) in enumerate(zip(links.indptr[:-1], links.indptr[1:], strict=True)):
        if start == end:
            continue
        linked = other[links.indices[start:end]]
        weight = penalty * (end - start + unobserved * len(other))
        found[row] = np.linalg.solve(gram + linked.T @ linked + weight * eye, linked.sum(axis=0))
    return found


def _content(task: Task) -> Features:
    if task.features_IxF is None:
        raise ValueError("the items of this task have no content")
    return task.features_IxF


def _dense(matrix: Features) -> Float32:
    dense = matrix.toarray() if isinstance(matrix, sparse.sparray) else matrix
    return np.asarray(dense)


def _solve(gram: Float32, penalty: float, right: Float32) -> Float32:
    """Return (gram + penalty I)^-1 right; the Gram matrix is overwritten."""
    gram.flat[:: len(gram) + 1] += penalty
    factor = linalg.cho_factor(gram, lower=True, overwrite_a=True, check_finite=False)
    return np.asarray(linalg.cho_solve(factor, right, overwrite_b=True, check_finite=False))


def _products(of_users: Features, of_candidates: Float32) -> Scores:
    """Return the scores as products of a row of each user and a column of each candidate."""
    return lambda users: np.asarray(of_users[users] @ of_candidates, np.float32)
