"""The floors: recommenders in closed form, or in a few sweeps of least squares.

Each is fitted to a :class:`ncfbench.floors.task.Task` with a penalty. Y is the matrix of training
links of U users, over the K items that have any; X their content, x_c that of a candidate c, of F
features.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from scipy import sparse

from ncfbench.data.features import Float32
from ncfbench.data.lsa import Ids
from ncfbench.floors.linear import Regression, gram, inverse, is_direct, products
from ncfbench.floors.task import Features, Task
from ncfbench.runs.ranks import Scores

DIMENSION, SWEEPS, PAIRS = 64, 10, 2.0
"""Length of a vector of iALS, its least squares of both sides, and the weight of all pairs over
that of all links. One weight of a pair for all data would be too large where links are few.
"""
KEPT, LINK_PENALTY = 0.2, 10.0
"""Share of a user's links from which denoising predicts the others, and its penalty."""
BATCH_ROWS, BATCH_LINKS = 1024, 2**16
"""Rows that are solved together in iALS, and links of these, zeros included, at most."""

SMALL = 64
"""Links of a product of a row: OpenBLAS spreads larger ones over threads that mostly wait."""
NUMBER_BYTES = 4
"""Bytes of a float32, of which all matrices are."""
ITERATIONS = 8
"""Typical number of iterations of conjugate gradients."""
SLOW = 8
"""Operations of a large dense product in the time of one of a sparse product or a small system."""


@dataclass(frozen=True)
class Fitted:
    """A fitted floor, whose scores of all users and items are left M content'.

    Attributes:
        apply: returns the product of M and some transposed rows of content.
        adjoint: returns the product of M' and some columns of G numbers.
        alike: the first item of the same content as each item: scores are computed once for these,
            to be equal to the last bit, since libraries round a column by where it stands.
        is_for_fewer: whether M is applied to the users where they are fewer than the candidates.
    """

    left_UxG: Features
    content_IxF: Features
    apply: Callable[[Features], Features] = lambda rows: rows.T
    adjoint: Callable[[Features], Float32] = lambda columns: columns
    alike: Ids | None = None
    is_for_fewer: bool = False

    def __call__(self, candidates: Ids) -> Scores:
        """Return the scores of some candidates, by their ids."""
        column: Ids | slice = slice(None)
        if self.alike is not None:
            distinct, inverse = np.unique(self.alike[candidates], return_inverse=True)
            if len(distinct) < len(candidates):
                candidates, column = distinct, inverse
        chosen = self.content_IxF[candidates]
        if self.is_for_fewer and len(candidates) > self.left_UxG.shape[0]:
            weights_FxU = self.adjoint(self.left_UxG.T)
            return lambda users: np.asarray(chosen @ weights_FxU[:, users]).T[:, column]
        weights_GxC = self.apply(chosen)
        return lambda users: np.asarray(self.left_UxG[users] @ weights_GxC)[:, column]

    def product(self, basis_IxR: Float32) -> Float32:
        """Return the product of all scores, [U, I], with a matrix; they are not computed."""
        return np.asarray(self.left_UxG @ self.apply((self.content_IxF.T @ basis_IxR).T))

    def transposed_product(self, left_UxR: Float32) -> Float32:
        """Return the same of the transposed scores, [I, U]."""
        return np.asarray(self.content_IxF @ self.adjoint(self.left_UxG.T @ left_UxR))


@dataclass(frozen=True)
class Floor:
    """A recommender that needs no gradient.

    Attributes:
        fit: fits it to a task with a penalty.
        needs_content: whether it reads the items' content.
        needs_links: whether it can rank only items with training links.
        needs_new_items: whether it is for items without training links alone.
        penalties: values to choose from, ascending, begun in the middle; empty where it has none.
        settings: other numbers that decide its scores.
    """

    fit: Callable[[Task, float], Fitted]
    needs_content: bool = False
    needs_links: bool = False
    needs_new_items: bool = False
    penalties: Sequence[float] = ()
    settings: Mapping[str, float] = field(default_factory=dict)

    @property
    def usual_penalty(self) -> float:
        """That of a choice's first fit, which stands where there is no time for others."""
        return self.penalties[len(self.penalties) // 2]


def popularity(task: Task, penalty: float = 0.0) -> Fitted:
    """Score a candidate by its number of training links."""
    ones = np.ones((task.links_UxI.shape[0], 1), np.float32)
    return Fitted(ones, task.item_degrees[:, None].astype(np.float32))


def profile(task: Task, penalty: float = 0.0) -> Fitted:
    """Score a candidate by its product with the sum of a user's items (Rocchio 1971)."""
    content, known = task.content, task.content[task.known]
    links, alike = task.known_UxK, task.first_alike
    return Fitted(links, content, lambda rows: products(known, rows), known.T.__matmul__, alike)


def ridge(task: Task, penalty: float) -> Fitted:
    """Regress a user's links on content: w_u = (X'X + penalty I)^-1 X'y_u (Hoerl, Kennard 1970).

    Solved for the candidates or for the users, whichever are fewer (:class:`Regression`).
    """
    links, content = task.known_UxK, task.content
    fitted = Regression(content[task.known], penalty)
    ways = fitted.of_columns, lambda columns: fitted.of_items(columns.T)
    return Fitted(links, content, *ways, task.first_alike, is_for_fewer=True)


def denoised(task: Task, penalty: float) -> Fitted:
    """Regress on content a user's links and what a denoising autoencoder adds, Y + YB.

    Dropout keeps a share p of the links, and B predicts the others from these (Steck 2020):
    B = w (Y'Y + w D + nu I)^-1 (Y'Y - D), with w = (1 - p) / p and D the items' degrees.
    """
    content, links, weight = task.content, task.known_UxK, np.float32((1 - KEPT) / KEPT)
    degrees_Kx1 = task.item_degrees[task.known].astype(np.float32)[:, None]
    scales_Kx1 = 1 / np.sqrt(weight * degrees_Kx1 + np.float32(LINK_PENALTY))
    regression = Regression(content[task.known], penalty)
    # With the scales S, Y (Y'Y + S^-2)^-1 = YS (SY'YS + I)^-1 S.
    autoencoder = Regression(links @ sparse.diags_array(scales_Kx1[:, 0]), 1.0)

    def shared(weights_KxN: Float32) -> Float32:
        """Return (Y'Y - D) W."""
        return np.asarray(links.T @ (links @ weights_KxN) - degrees_Kx1 * weights_KxN)

    def apply(rows: Features) -> Float32:
        weights_KxC = regression.of_columns(rows)
        added_UxC = autoencoder.of_columns((weight * scales_Kx1 * shared(weights_KxC)).T)
        return np.asarray(links @ weights_KxC + added_UxC)

    def adjoint(columns: Features) -> Float32:
        scaled_KxN = weight * scales_Kx1 * autoencoder.of_items(columns.T)
        return regression.of_items((links.T @ columns + shared(scaled_KxN)).T)

    is_user_UxU = sparse.eye_array(links.shape[0], dtype=np.float32, format="csr")
    return Fitted(is_user_UxU, content, apply, adjoint, task.first_alike)


def ease(task: Task, penalty: float) -> Fitted:
    """Regress each item's links on those of all other items (Steck 2019).

    With P = (Y'Y + penalty I)^-1 the scores are Y - Y P diag(1 / P_ii). With fewer users than items
    Y P = A = (YY' + penalty I)^-1 Y, and P_ii = (1 - y_i'a_i) / penalty.
    """
    links = task.known_UxK
    n_items = task.links_UxI.shape[1]
    is_item_IxK = sparse.eye_array(n_items, dtype=np.float32, format="csr")[:, task.known]
    if links.shape[1] <= links.shape[0]:
        weights = inverse(gram(links.T), penalty)
        weights /= -np.diag(weights).copy()
        np.fill_diagonal(weights, 0.0)
        return Fitted(links, is_item_IxK, lambda rows: weights @ rows.T, weights.T.__matmul__)
    by_item = sparse.csr_array(links.T)
    scores_KxU = by_item @ inverse(gram(links), penalty)
    item, user = by_item.tocoo().coords
    shared = np.bincount(item, scores_KxU[item, user].astype(np.float64), links.shape[1])
    if shared.max() >= 1.0:
        raise np.linalg.LinAlgError("P_ii is not above 0 in single precision")
    scores_KxU *= (-penalty / (1.0 - shared)).astype(np.float32)[:, None]
    scores_KxU[item, user] += 1.0
    return Fitted(scores_KxU.T, is_item_IxK)


def ials(task: Task, penalty: float) -> Fitted:
    """Factorise all pairs by weighted least squares (Hu et al. 2008), of 64 dimensions."""
    links = task.links_UxI
    unobserved = PAIRS * links.nnz / math.prod(links.shape)
    vectors = factors(links, penalty, dimension=DIMENSION, unobserved=unobserved, sweeps=SWEEPS)
    return Fitted(*vectors)


FLOORS: Mapping[str, Floor] = {
    "popularity": Floor(popularity, needs_links=True),
    "profile": Floor(profile, needs_content=True),
    "ridge": Floor(
        ridge,
        needs_content=True,
        penalties=(1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0),
    ),
    "denoised": Floor(
        denoised,
        needs_content=True,
        needs_new_items=True,
        penalties=(0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0),
        settings={"kept": KEPT, "link_penalty": LINK_PENALTY},
    ),
    "ease": Floor(
        ease, needs_links=True, penalties=(3.0, 10.0, 30.0, 100.0, 300.0, 1000.0, 3000.0)
    ),
    "ials": Floor(
        ials,
        needs_links=True,
        penalties=(0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3),
        settings={"dimension": DIMENSION, "sweeps": SWEEPS, "pairs_weight": PAIRS},
    ),
}
"""The floors by name."""


def cost(name: str, task: Task, candidates: int) -> tuple[float, float]:
    """Return the bytes of the dense matrices of a fit and a number of candidates, and about how
    many operations of a large dense product take as long.
    """
    n_users, n_known, links = task.links_UxI.shape[0], len(task.known), task.links_UxI.nnz
    content = np.empty((0, 0)) if task.content_IxF is None else task.content_IxF
    width, values = content.shape[1], content.size
    factor, pairs, sides = min(width, n_known), min(n_users, n_known), min(candidates, n_users)
    solved, solution = 4 * SLOW * ITERATIONS * values * sides, sides * (width + n_known)
    if is_direct(factor, content):
        solved = factor**3 / 3 + 2 * factor**2 * sides + 2 * SLOW * values * (factor + sides)
        solution += factor**2
    numbers, operations = {
        "popularity": (candidates, 0.0),
        "profile": (n_known * candidates, 2 * SLOW * (links + values) * candidates),
        "ridge": (solution, solved),
        "denoised": (
            solution + (2 * n_known + n_users) * candidates,
            solved + 4 * SLOW * 2 * ITERATIONS * links * candidates,  # links take more of them
        ),
        "ease": (2 * pairs**2 + n_known * n_users * (n_users < n_known), pairs**3),
        "ials": (
            2 * sum(task.links_UxI.shape) * DIMENSION,
            SWEEPS * DIMENSION**2 * (4 * links + SLOW * (n_users + n_known) * DIMENSION),
        ),
    }[name]
    return NUMBER_BYTES * numbers, operations


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
    padded = np.vstack([other, np.zeros_like(other[:1])])
    vectors = np.zeros((links.shape[0], other.shape[1]), np.float32)
    degrees = np.diff(links.indptr)
    for rows in _alike(degrees):
        index = np.full((len(rows), degrees[rows].max()), len(other))
        index[np.arange(index.shape[1]) < degrees[rows][:, None]] = links[rows].indices
        linked = padded[index]
        weight = (penalty * (degrees[rows] + unobserved * len(other))).astype(np.float32)
        systems = gram + weight[:, None, None] * eye
        for start in range(0, linked.shape[1], SMALL):
            part = linked[:, start : start + SMALL]
            systems += part.transpose(0, 2, 1) @ part
        vectors[rows] = np.linalg.solve(systems, linked.sum(axis=1)[:, :, None])[:, :, 0]
    return vectors


def _alike(degrees: Ids) -> Iterator[Ids]:
    """Yield the rows that have links in batches of similar degree."""
    order = np.argsort(degrees, kind="stable")[::-1]
    end = np.count_nonzero(degrees)
    start = 0
    while start < end:
        size = min(BATCH_ROWS, max(BATCH_LINKS // int(degrees[order[start]]), 1))
        yield order[start : min(start + size, end)]
        start += size
