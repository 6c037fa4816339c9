"""The bipartite graph of training links: compressed rows both ways, degrees, and fast questions about pairs."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ncfbench.errors import DataError

Int32 = NDArray[np.int32]
Int64 = NDArray[np.int64]
Bool = NDArray[np.bool_]

MAX_LINKS = np.iinfo(np.int32).max


@dataclass(frozen=True)
class BipartiteGraph:
    """N links between users and items, each link an id in 0..N-1, ordered by (user, item).

    Twelve bytes a link: ``link_user`` and ``link_item`` (int32[N]) are the ends of each link; a user's items are
    ``link_item[user_offsets[u]:user_offsets[u+1]]`` and an item's users ``item_users[item_offsets[v]:item_offsets[v+1]]``,
    both ascending. For links (0,1) (1,0) (1,1)::

        link_user    = [0 1 1]    user_offsets = [0 1 3]
        link_item    = [1 0 1]
        item_users   = [1 0 1]    item_offsets = [0 1 3]
    """

    n_users: int
    n_items: int
    link_user: Int32
    link_item: Int32
    user_offsets: Int64
    item_users: Int32
    item_offsets: Int64

    @classmethod
    def from_links(cls, users: NDArray[np.integer], items: NDArray[np.integer], n_users: int, n_items: int) -> BipartiteGraph:
        """Build from the two ends of each link, in any order.

        Raises:
            DataError: no link, an id out of range, a link given twice, or more links than int32 can number.
        """
        if len(users) == 0:
            raise DataError("There are no training links: every link belongs to a held-out item, or the data is empty.")
        if len(users) > MAX_LINKS or max(n_users, n_items) > MAX_LINKS:
            raise DataError(f"{len(users):,} links: more than {MAX_LINKS:,} links, users or items are not supported.")
        for kind, ids, size in (("user", users, n_users), ("item", items, n_items)):
            if ids.min() < 0 or ids.max() >= size:
                raise DataError(
                    f"A link names {kind} {ids.max() if ids.max() >= size else ids.min()}, outside 0..{size - 1}."
                )
        by_user = np.lexsort((items, users))
        link_user, link_item = users[by_user].astype(np.int32), items[by_user].astype(np.int32)
        repeated = (link_user[1:] == link_user[:-1]) & (link_item[1:] == link_item[:-1])
        if repeated.any():
            first = int(np.argmax(repeated))
            raise DataError(f"Link (user {link_user[first]}, item {link_item[first]}) is given twice.")
        by_item = np.argsort(link_item, kind="stable")
        return cls(
            n_users=n_users,
            n_items=n_items,
            link_user=link_user,
            link_item=link_item,
            user_offsets=_offsets(link_user, n_users),
            item_users=link_user[by_item],
            item_offsets=_offsets(link_item, n_items),
        )

    @property
    def n_links(self) -> int:
        """N, the number of training links."""
        return len(self.link_user)

    @cached_property
    def links_by_item(self) -> Int32:
        """int32[N]: link ids ordered by (item, user), as ``item_users`` is."""
        return np.argsort(self.link_item, kind="stable").astype(np.int32)

    @cached_property
    def user_degrees(self) -> Int64:
        """int64[n_users]: training links of each user."""
        return np.diff(self.user_offsets)

    @cached_property
    def item_degrees(self) -> Int64:
        """int64[n_items]: training links of each item; P_d(v) is this over N."""
        return np.diff(self.item_offsets)

    @cached_property
    def items_in_use(self) -> Int32:
        """int32[nodes]: items of training degree 1 or more, ascending; held-out items are not among them."""
        return np.flatnonzero(self.item_degrees > 0).astype(np.int32)

    @cached_property
    def place_in_use(self) -> Int32:
        """int32[n_items]: where an item stands in ``items_in_use``; 0 for an item that is not there."""
        place = np.zeros(self.n_items, np.int32)
        place[self.items_in_use] = np.arange(len(self.items_in_use))
        return place

    def linked(self, users: Int32, items: Int32) -> Bool:
        """Whether each pair is a training link; the two arrays broadcast.

        A binary search inside the users' rows, all pairs at once: log2(largest degree) passes over the pairs.
        """
        users, items = np.broadcast_arrays(users, items)
        low, high = self.user_offsets[users], self.user_offsets[users + 1]
        end = high
        last = self.n_links - 1
        for _ in range(int((high - low).max(initial=0)).bit_length()):
            middle = (low + high) >> 1
            open_ = low < high
            below = (self.link_item[np.minimum(middle, last)] < items) & open_
            low, high = np.where(below, middle + 1, low), np.where(below | ~open_, high, middle)
        found: Bool = (low < end) & (self.link_item[np.minimum(low, last)] == items)
        return found

    def linked_block(self, users: Int32, items: Int32) -> tuple[Int64, Int64]:
        """The linked pairs of a whole block: (row, column) such that (users[row], items[column]) is a training link.

        Scans the lists of whichever side has fewer links, never the block's len(users) x len(items) cells.

        Args:
            users: int32[b], repeats allowed.
            items: int32[V], ascending, distinct.
        """
        row_links = int(self.user_degrees[users].sum())
        column_links = int(self.item_degrees[items].sum())
        if row_links <= column_links:
            links, row = _ragged(self.user_offsets, users)
            column = _places(self.link_item[links], items, self.n_items)
            hit = column >= 0
            return row[hit], column[hit]
        links, column = _ragged(self.item_offsets, items)
        order = np.argsort(users, kind="stable")
        distinct, first, count = np.unique(users[order], return_index=True, return_counts=True)
        which = _places(self.item_users[links], distinct, self.n_users)
        hit = which >= 0
        which, column = which[hit], column[hit]
        return order[_expand(first[which], count[which])], np.repeat(column, count[which])


def _offsets(sorted_ids: Int32, size: int) -> Int64:
    return np.concatenate([[0], np.cumsum(np.bincount(sorted_ids, minlength=size), dtype=np.int64)])


def _places(values: Int32, ids: Int32, size: int) -> Int64:
    """For each value, where it stands in the ascending ``ids`` (all below ``size``), or -1.

    Through a table where that is shorter than the work of searching, else by binary search.
    """
    if size <= 16 * len(values):
        table = np.full(size, -1, np.int64)
        table[ids] = np.arange(len(ids))
        return table[values]
    place = np.minimum(np.searchsorted(ids, values), len(ids) - 1)
    return np.where(ids[place] == values, place, -1)


def _expand(starts: Int64, counts: Int64) -> Int64:
    """The concatenation of ``range(start, start + count)`` for each pair."""
    total = int(counts.sum())
    before = np.cumsum(counts) - counts
    return np.repeat(starts - before, counts) + np.arange(total)


def _ragged(offsets: Int64, rows: Int32) -> tuple[Int64, Int64]:
    """Indices of all entries of the given rows, and for each the row's place in ``rows``."""
    counts = offsets[rows + 1] - offsets[rows]
    return _expand(offsets[rows], counts), np.repeat(np.arange(len(rows)), counts)
