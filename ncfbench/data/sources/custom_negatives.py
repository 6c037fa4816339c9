"""Explicit negatives of users' own data: pairs that were shown and not chosen."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from ncfbench.data.content import distinct_links
from ncfbench.data.sources.custom_options import Options
from ncfbench.data.table import Column
from ncfbench.data.text import Int32
from ncfbench.data.values import are_false, at_most


def are_negative(columns: Mapping[str, Column], options: Options) -> NDArray[np.bool_]:
    """Return bool[rows of the links]: which rows are explicit negatives, as the options say.

    Raises:
        DataError: the column holds something else than marks.
    """
    if options.negative_column is not None:
        return are_false(columns["negative"], "is neither 0 (shown and not chosen) nor 1.")
    if options.negative_threshold is not None:
        return at_most(columns["rating"], options.negative_threshold)
    return np.zeros(len(columns["user"].values), bool)


def distinct_negatives(
    users: Int32, items: Int32, links: tuple[Int32, Int32]
) -> tuple[Int32, dict[str, int]]:
    """Return int32[2, n], each pair once, by (user, item), without those that are links; and counts
    of what is left out, by reason.

    Args:
        users, items: int32[rows], -1 for those that are left out.
        links: users and items of all links.
    """
    is_left = (users >= 0) & (items >= 0)
    users, items, repeated = distinct_links(users[is_left], items[is_left])
    pairs, linked = (
        (owners.astype(np.int64) << 32) | owned for owners, owned in ((users, items), links)
    )
    is_link = np.isin(pairs, linked)
    removed = {
        "negatives_of_left_out": int(np.sum(~is_left)),
        "duplicate_negatives": repeated,
        "negatives_that_are_links": int(np.sum(is_link)),
    }
    return np.stack([users, items])[:, ~is_link], removed
