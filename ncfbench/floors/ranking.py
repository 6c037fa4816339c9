"""Ranks of held-out links by the scores of a floor, as those of trained models are ranked."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

BLOCK_SCORES = 2**24
"""Scores of a block of users, 64 MB."""


def link_ranks(
    scores: Callable[[NDArray[np.integer]], NDArray[np.float32]],
    users: NDArray[np.integer],
    index: NDArray[np.integer],
    n_candidates: int,
) -> NDArray[np.int64]:
    """Return the rank of each link's item for its user, int64[links]; the best is 0.

    Candidates of a higher score rank before it, and those of an equal score with a smaller index.

    Args:
        scores: the scores of all candidates for some users, float32[users, C].
        users: the user of each link, ascending.
        index: the index of its item among the candidates.
    """
    ranks = np.empty(len(users), np.int64)
    ranked, first = np.unique(users, return_index=True)
    ends = np.append(first[1:], len(users))
    block = max(BLOCK_SCORES // n_candidates, 1)
    for start in range(0, len(ranked), block):
        chosen = slice(start, start + block)
        for row, begin, end in zip(
            scores(ranked[chosen]), first[chosen], ends[chosen], strict=True
        ):
            ranks[begin:end] = _ranks(row, index[begin:end])
    return ranks


def _ranks(scores: NDArray[np.float32], index: NDArray[np.integer]) -> NDArray[np.int64]:
    own, ordered = scores[index], np.sort(scores)
    above = len(scores) - np.searchsorted(ordered, own, "right")
    equal = len(scores) - above - np.searchsorted(ordered, own, "left")
    for link in np.flatnonzero(equal > 1):
        above[link] += np.count_nonzero(scores[: index[link]] == own[link])
    return np.asarray(above, np.int64)
