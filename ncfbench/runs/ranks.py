"""Ranks of held-out links by the scores of their candidates, of trained models and of floors alike.

A rank is two counts: how many candidates have a higher score, and how many others have exactly the
same one. No tie is broken, by index least of all, so the order of the items' file changes no figure
of :mod:`ncfbench.runs.quality`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

Row: TypeAlias = NDArray[np.float32]
Scores: TypeAlias = Callable[[NDArray[np.integer]], NDArray[np.float32]]
"""Returns the scores of all candidates for some users, float32[users, C]."""

FEW = 2
"""Links of a user that are counted one by one: to sort his candidates takes longer."""
NOTHING = np.empty(0, np.int64)


class Ranks(NamedTuple):
    """Ranks of some links, of which the best is 0.

    Attributes:
        above: int64[links], candidates of a higher score. All other ones where the link's own score
            is NaN; a candidate whose score is NaN is above all numbers.
        equal: int64[links], other candidates of exactly the same score.
    """

    above: NDArray[np.int64]
    equal: NDArray[np.int64]


def by_user(
    offsets: NDArray[np.integer], indices: NDArray[np.integer]
) -> Callable[[int], NDArray[np.integer]]:
    """Return the look-up of ``indices[offsets[u]:offsets[u + 1]]``, such as a user's items."""
    return lambda user: indices[offsets[user] : offsets[user + 1]]


def rank_links(
    scores: Scores,
    users: NDArray[np.integer],
    index: NDArray[np.integer],
    block_users: int,
    left_out: Callable[[int], NDArray[np.integer]] | None = None,
) -> Ranks:
    """Rank each link's item among its user's candidates.

    Args:
        users: the user of each link.
        index: the index of its item among the candidates.
        block_users: users whose scores are asked for, and in memory, at a time.
        left_out: returns the indices that are no candidates of a user; no link is to one.
    """
    ranks = Ranks(np.empty(len(users), np.int64), np.empty(len(users), np.int64))
    ranked, row_of_link = np.unique(users, return_inverse=True)
    order = np.argsort(row_of_link, kind="stable")
    links_of = np.split(order, np.searchsorted(row_of_link[order], np.arange(1, len(ranked))))
    for start in range(0, len(ranked), block_users):
        block = ranked[start : start + block_users]
        for user, row, links in zip(block, scores(block), links_of[start:], strict=False):
            linked, excluded = row[index[links]], NOTHING if left_out is None else left_out(user)
            if len(excluded):
                row = row.copy()
                row[excluded] = -np.inf
            ranks.above[links], ranks.equal[links] = ranks_among(row, linked, len(excluded))
    return ranks


def ranks_among(row: Row, linked: Row, n_left_out: int = 0) -> Ranks:
    """Return the ranks of some scores among all of a row, of which so many are -inf, as left out.

    NaN is above the highest score, and a link's own is below all others.
    """
    if len(linked) <= FEW:
        counts = [(np.count_nonzero(row <= at), np.count_nonzero(row < at)) for at in linked]
        at_most, below = np.array(counts).T
    else:
        ordered = np.sort(row)
        at_most, below = (np.searchsorted(ordered, linked, side) for side in ("right", "left"))
    is_nan = np.isnan(linked)
    equal = at_most - below - 1 - n_left_out * (linked == -np.inf)
    above = np.where(is_nan, len(row) - n_left_out - 1, len(row) - at_most)
    return Ranks(above, np.where(is_nan, 0, equal))
