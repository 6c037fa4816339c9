"""Ranks of held-out links by the scores of a floor, as those of trained models are ranked."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

BLOCK_SCORES = 2**24
"""Scores of a block of users, 64 MB."""
Scores = Callable[[NDArray[np.integer]], NDArray[np.float32]]
"""Returns the scores of all candidates for some users, float32[users, C]."""


def link_ranks(
    scores: Scores,
    users: NDArray[np.integer],
    index: NDArray[np.integer],
    n_candidates: int,
    *,
    left_out_UxC: sparse.csr_array | None = None,
    top: int = 0,
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the rank of each link's item for its user, int64[links], and the best items of each
    user who has a link, int64[such users, top].

    Candidates of a higher score rank before others, and those of an equal score with a smaller
    index. The best is 0; a link whose score is NaN is the last. A user with fewer candidates has -1
    in the rest of his list.

    Args:
        users: the user of each link, ascending.
        index: the index of its item among the candidates.
        left_out_UxC: nonzero at candidates that are not ranked for a user; no link is such a one.
    """
    ranks = np.empty(len(users), np.int64)
    ranked, first = np.unique(users, return_index=True)
    best = np.full((len(ranked), top), -1)
    ends = np.append(first[1:], len(users))
    size = max(BLOCK_SCORES // n_candidates, 1)
    for start in range(0, len(ranked), size):
        block = ranked[start : start + size]
        rows = scores(block)
        if left_out_UxC is not None:
            rows = np.array(rows)
            left_out = left_out_UxC[block]
            rows[
                np.repeat(np.arange(len(block)), np.diff(left_out.indptr)), left_out.indices
            ] = -np.inf
        for user, row in enumerate(np.ascontiguousarray(rows), start):
            ordered = np.sort(row)
            links = slice(first[user], ends[user])
            ranks[links] = _ranks(row, ordered, index[links])
            if top:
                items = _best(row, ordered, top)
                best[user, : len(items)] = items
    return ranks, best


def _ranks(
    scores: NDArray[np.float32], ordered: NDArray[np.float32], index: NDArray[np.integer]
) -> NDArray[np.int64]:
    own = scores[index]
    above = len(scores) - np.searchsorted(ordered, own, "right")
    equal = len(scores) - above - np.searchsorted(ordered, own, "left")
    for link in np.flatnonzero(equal > 1):
        above[link] += np.count_nonzero(scores[: index[link]] == own[link])
    above[np.isnan(own)] = len(scores) - 1  # NaN is sorted behind the highest
    return np.asarray(above, np.int64)


def _best(scores: NDArray[np.float32], ordered: NDArray[np.float32], top: int) -> NDArray[np.int64]:
    """Return the indices of the best candidates, without those that are left out."""
    last = max(ordered[-min(top, len(ordered))], np.finfo(np.float32).min)
    indices = np.flatnonzero(scores >= last)
    return indices[np.argsort(-scores[indices], kind="stable")][:top]
