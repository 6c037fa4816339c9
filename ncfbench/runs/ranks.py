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

Scores: TypeAlias = Callable[[NDArray[np.integer]], NDArray[np.float32]]
"""Returns the scores of all candidates for some users, float32[users, C]."""

FEW = 3
"""Links of a user that are counted one by one: to sort his candidates takes longer."""


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
    order = np.argsort(users, kind="stable")
    ranked, first = np.unique(users[order], return_index=True)
    blocks = np.split(ranked, range(block_users, len(ranked), block_users))
    ranks = Ranks(*np.empty((2, len(users)), np.int64))
    for block, links in zip(blocks, np.split(order, first[block_users::block_users]), strict=True):
        rows, n_left_out = scores(block), np.zeros(len(block), np.int64)
        row_of = np.searchsorted(block, users[links])
        linked = rows[row_of, index[links]]
        if left_out is not None:
            rows = rows.copy()
            for number, excluded in enumerate(map(left_out, block)):
                rows[number, excluded], n_left_out[number] = -np.inf, len(excluded)
        ranks.above[links], ranks.equal[links] = ranks_among(rows, linked, row_of, n_left_out)
    return ranks


def ranks_among(
    rows: NDArray[np.float32],
    linked: NDArray[np.float32],
    row_of: NDArray[np.integer],
    n_left_out: NDArray[np.integer],
) -> Ranks:
    """Return the ranks of some scores, each among all of a row.

    NaN is above the highest score, and a link's own is below all others.

    Args:
        linked: scores, those of a row side by side.
        row_of: the row of each, ascending.
        n_left_out: scores of each row that are -inf, as left out.
    """
    size, (below, at_most) = rows.shape[1], np.empty((2, len(linked)), np.int64)
    ends = np.searchsorted(row_of, np.arange(len(rows) + 1)).tolist()
    for row, start, stop in zip(rows, ends, ends[1:], strict=False):
        if stop - start > FEW:
            ordered, part = np.sort(row), slice(start, stop)
            below[part] = ordered.searchsorted(linked[part])
            at_most[part] = ordered.searchsorted(linked[part], "right")
        else:
            for link in range(start, stop):
                below[link] = np.count_nonzero(row < linked[link])
                at_most[link] = np.count_nonzero(row <= linked[link])
    is_nan, excluded = np.isnan(linked), n_left_out[row_of]
    equal = at_most - below - 1 - excluded * (linked == -np.inf)
    above = np.where(is_nan, size - excluded - 1, size - at_most)
    return Ranks(above, np.where(is_nan, 0, equal))
