"""The users, items and links of users' own files that are kept: the frequent ones, then a sample.

Minimum counts are counted in all links. A sample of the users is drawn from those who are left, and
nothing is filtered again: in a small sample few items would have the minimum, and in the next round
few users. So a sampled user has as many links as without the sample.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ncfbench.data.content import distinct_links, draw_users

if TYPE_CHECKING:
    from ncfbench.data.sources.custom import Options
    from ncfbench.data.sources.custom_columns import Columns


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


def keep_frequent(links: Links, n_items: int, options: Options) -> Kept:
    """Leave out users and items of too few links, again and again until none is left."""
    n_users = len(links.user_ids)
    users, items = np.ones(n_users, bool), np.ones(n_items, bool)
    kept = np.ones(len(links.users), bool)
    while True:
        # A link that is given twice counts once.
        pairs = distinct_links(links.users[kept], links.items[kept])
        enough_users = np.bincount(pairs[0], minlength=n_users) >= max(options.min_user_links, 1)
        enough_items = np.bincount(pairs[1], minlength=n_items) >= options.min_item_links
        users &= enough_users
        items &= enough_items
        still = kept & users[links.users] & items[links.items]
        if still.sum() == kept.sum():
            return Kept(users, items, kept)
        kept = still


def sample_users(links: Links, kept: Kept, options: Options) -> Kept:
    """Keep ``options.sample_users`` of the users who are kept, with their links.

    Items that lose their last link are left out, unless items without links are kept. All users
    stay where there are no more of them.
    """
    present = np.flatnonzero(kept.users)
    size = options.sample_users
    if size is None or size >= len(present):
        return kept
    users = np.zeros(len(kept.users), bool)
    users[present[draw_users(len(present), size, options.split_seed)]] = True
    still = kept.links & users[links.users]
    if not options.min_item_links:
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


def describe_removed(
    removed: Mapping[str, int], n_users: int, options: Options, chosen: Columns
) -> Iterator[str]:
    """Yield a message for each reason for which something was left out.

    Args:
        n_users: number of users who are kept.
    """
    links, items = options.links.name, options.items.name
    fewer = {
        name: "without a link" if least <= 1 else f"of fewer than {least} links"
        for name, least in (
            ("users", options.min_user_links),
            ("items", options.min_item_links),
        )
    }
    messages = {
        "items_without_id": f"rows of {items} without {chosen.id}",
        "duplicate_items": f"rows of {items} that repeat the {chosen.id} of an earlier one",
        "links_without_id": f"rows of {links} without a user or an item",
        "links_to_unknown_items": f"links to items that {items} does not have",
        "duplicate_links": f"links of {links} that are given again",
        "links_of_rare": "links of users or items that are left out",
        "rare_users": f"users {fewer['users']}",
        "rare_items": f"items {fewer['items']}",
    }
    for reason, message in messages.items():
        if removed.get(reason):
            yield f"Warning: left out, {message}: {removed[reason]:,}."
    if removed["links_below_threshold"]:
        yield (
            f"Rows of {links} below the threshold, which are not links:"
            f" {removed['links_below_threshold']:,}."
        )
    if cold := removed.get("links_of_cold_users"):
        yield f"Links of cold users that are not trained on: {cold:,}."
    if options.sample_users is not None:
        yield _describe_sample(removed, n_users, options.sample_users)


def _describe_sample(removed: Mapping[str, int], n_users: int, wanted: int) -> str:
    not_drawn = removed["users_not_drawn"]
    if not not_drawn:
        return f"--sample-users {wanted:,}: there are {n_users:,} users; all are kept."
    return (
        f"A sample: {n_users:,} of {n_users + not_drawn:,} users; left out with the others:"
        f" {removed['links_of_users_not_drawn']:,} links,"
        f" {removed['items_not_drawn']:,} items without a link."
    )
