"""The users, items and links of users' own files that are kept: the frequent ones, then a sample.

Minimum counts are counted in all links. A sample of the users is drawn from those who are left, and
nothing is filtered again: in a small sample few items would have the minimum, and in the next round
few users. So a sampled user has as many links as without the sample.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ncfbench.data.content import distinct_links, draw_users


class Links(NamedTuple):
    """Links as the file has them: numbers of users and items, and times where they are needed."""

    user_ids: pa.StringArray
    users: NDArray[np.int32]
    items: NDArray[np.int32]
    times: NDArray[np.float64]


class Kept(NamedTuple):
    """Flags of the users, items and links that are kept."""

    users: NDArray[np.bool_]
    items: NDArray[np.bool_]
    links: NDArray[np.bool_]


def keep_frequent(links: Links, n_items: int, min_user_links: int, min_item_links: int) -> Kept:
    """Leave out users and items of too few links, again and again until none is left."""
    n_users = len(links.user_ids)
    users, items = np.ones(n_users, bool), np.ones(n_items, bool)
    kept = np.ones(len(links.users), bool)
    while True:
        # A link that is given twice counts once.
        pairs = distinct_links(links.users[kept], links.items[kept])
        enough_users = np.bincount(pairs[0], minlength=n_users) >= max(min_user_links, 1)
        enough_items = np.bincount(pairs[1], minlength=n_items) >= min_item_links
        users &= enough_users
        items &= enough_items
        still = kept & users[links.users] & items[links.items]
        if still.sum() == kept.sum():
            return Kept(users, items, kept)
        kept = still


def sample_users(
    links: Links, kept: Kept, size: int | None, seed: int, *, keep_items: bool
) -> Kept:
    """Keep some of the users who are kept, with their links; all where there are no more of them.

    Items that lose their last link are left out unless ``keep_items``.
    """
    present = np.flatnonzero(kept.users)
    if size is None or size >= len(present):
        return kept
    users = np.zeros(len(kept.users), bool)
    users[present[draw_users(len(present), size, seed)]] = True
    still = kept.links & users[links.users]
    if keep_items:
        return Kept(users, kept.items, still)
    items = np.zeros(len(kept.items), bool)
    items[links.items[still]] = True
    return Kept(users, items, still)


def count_removed(frequent: Kept, kept: Kept) -> dict[str, int]:
    """Return how many users, items and links were left out, by reason.

    Args:
        frequent, kept: those left by the minimum counts, and by the sample.
    """
    counts = {"rare_users": ~frequent.users, "rare_items": ~frequent.items}
    counts |= {"links_of_rare": ~frequent.links}
    counts |= {"users_not_drawn": frequent.users & ~kept.users}
    counts |= {"items_not_drawn": frequent.items & ~kept.items}
    counts |= {"links_of_users_not_drawn": frequent.links & ~kept.links}
    return {reason: int(flags.sum()) for reason, flags in counts.items()}
