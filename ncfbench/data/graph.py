"""The bipartite graph of training links: compressed rows both ways, degrees, and fast questions
about pairs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ncfbench.errors import DataError

Int32 = NDArray[np.int32]
Int64 = NDArray[np.int64]
Bool = NDArray[np.bool_]

MAX_LINKS = np.iinfo(np.int32).max
"""Links there may be, and users, and items: what int32 can number."""
CHUNK = 2**20
"""Links worked on at a time where a whole column of temporaries would cost memory."""
MANY_IDS = 16
"""Ids there are for each id of a list, above which sorting finds the distinct ones sooner than a
scan of a table.
"""
LONG_ROW = 32
"""Links a user has for each item of a list, above which the items are searched for in her row
instead of scanning it: a batch of Negative Sharing on 10^7 links of heavy-tailed users in 0.9
instead of 1.4 ms.
"""
FILTER_BITS = 8
"""Bits of the link filter for each link, at least; for a power of two up to twice as many. One
unlinked pair in 8 to 16 passes.
"""


class Places:
    """Where ids stand in short lists of distinct ids, through tables that are kept between
    questions.

    5 bytes for each id there is; a question costs the lengths of its two lists. Not to be shared
    between threads.

    Args:
        size: ids are below it.
    """

    def __init__(self, size: int) -> None:
        self._present = np.zeros(size, bool)
        self._place = np.zeros(size, np.int32)

    def distinct(self, values: Int32) -> tuple[Int32, Int32]:
        """Ascending distinct ids, and for each of ``values`` its place among them, both int32.

        Through the table, or where that is much longer than ``values``, by sorting: 512 of 10^6 ids
        in 3 instead of 120 us.
        """
        if len(self._present) > MANY_IDS * len(values):
            ranked = np.sort(values)
            ids = ranked[np.concatenate([[True], ranked[1:] != ranked[:-1]])]
        else:
            self._present[values] = True
            ids = np.flatnonzero(self._present).astype(np.int32)
            self._present[ids] = False
        self._place[ids] = np.arange(len(ids), dtype=np.int32)
        return ids, self._place[values]

    def hits(self, values: Int32, ids: Int32) -> tuple[Int64, Int32]:
        """Which of ``values`` are among some distinct ids, ascending, and for each of these its
        place in ``ids``.
        """
        self._present[ids] = True
        # This mode spares a pass that checks what is in range anyway: 60 instead of 90 us for
        # 36,000 values.
        hit = np.flatnonzero(self._present.take(values, mode="clip"))
        self._present[ids] = False
        self._place[ids] = np.arange(len(ids), dtype=np.int32)
        return hit, self._place[values[hit]]


class Scratch:
    """Tables of a graph's users and of its items, for one thread."""

    def __init__(self, graph: BipartiteGraph) -> None:
        self.users, self.items = Places(graph.n_users), Places(graph.n_items)


@dataclass(frozen=True)
class BipartiteGraph:
    """N links between users and items, each link an id in 0..N-1, ordered by (user, item).

    Twelve bytes a link: ``link_user`` and ``link_item`` (int32[N]) are the ends of each link; a
    user's items are ``link_item[user_offsets[u]:user_offsets[u+1]]`` and an item's users
    ``item_users[item_offsets[v]:item_offsets[v+1]]``, both ascending. For links (0,1) (1,0) (1,1)::

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
    def from_links(
        cls, users: NDArray[np.integer], items: NDArray[np.integer], n_users: int, n_items: int
    ) -> BipartiteGraph:
        """Build from the two ends of each link, in any order.

        Arrays of int32 that are in order by (user, item) are kept, not copied; the caller leaves
        them as they are. Building takes 8 bytes a link besides the graph, and 16 where links have
        to be put in order.

        Raises:
            DataError: no link, an id out of range, a link given twice, or more links than int32 can
                number.
        """
        if len(users) == 0:
            raise DataError(
                "There are no training links: every link belongs to a held-out item, or the data is"
                " empty."
            )
        for kind, size in (("links", len(users)), ("users", n_users), ("items", n_items)):
            if size > MAX_LINKS:
                raise DataError(f"{size:,} {kind}: more than {MAX_LINKS:,} are not supported.")
        for kind, ids, size in (("user", users, n_users), ("item", items, n_items)):
            if ids.min() < 0 or ids.max() >= size:
                raise DataError(
                    f"A link names {kind} {ids.max() if ids.max() >= size else ids.min()}, outside"
                    f" 0..{size - 1}."
                )
        if _in_order(users, items):
            link_user, link_item = (
                users.astype(np.int32, copy=False),
                items.astype(np.int32, copy=False),
            )
        else:
            link_user, link_item = _ordered(users, items)
        item_users = link_user.copy()
        sort_stably(item_users, lambda part: link_item[part])
        return cls(
            n_users=n_users,
            n_items=n_items,
            link_user=link_user,
            link_item=link_item,
            user_offsets=_offsets(link_user, n_users),
            item_users=item_users,
            item_offsets=_offsets(link_item, n_items),
        )

    @property
    def n_links(self) -> int:
        """N, the number of training links."""
        return len(self.link_user)

    @cached_property
    def links_by_item(self) -> Int32:
        """int32[N]: link ids ordered by (item, user), as ``item_users`` is."""
        links = np.arange(self.n_links, dtype=np.int32)
        sort_stably(links, lambda part: self.link_item[part])
        return links

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
        """int32[nodes]: items of training degree 1 or more, ascending; held-out items are not among
        them.
        """
        return np.flatnonzero(self.item_degrees > 0).astype(np.int32)

    @cached_property
    def place_in_use(self) -> Int32:
        """int32[n_items]: where an item stands in ``items_in_use``; 0 for an item that is not
        there.
        """
        place = np.zeros(self.n_items, np.int32)
        place[self.items_in_use] = np.arange(len(self.items_in_use))
        return place

    def linked(self, users: Int32, items: Int32) -> Bool:
        """Whether each pair is a training link; the two arrays broadcast.

        Pairs that the link filter lets pass, a few in a hundred, are searched for: see
            :meth:`searched`.
        """
        users, items = np.broadcast_arrays(users, items)
        shape, users, items = users.shape, users.reshape(-1), items.reshape(-1)
        place, bit = self._hashed(users, items)
        found: Bool = ((self._link_filter.take(place, mode="clip") >> bit) & np.uint8(1)).view(
            np.bool_
        )
        maybe = np.flatnonzero(found)
        found[maybe] = self.searched(users[maybe], items[maybe])
        return found.reshape(shape)

    def searched(self, users: Int32, items: Int32) -> Bool:
        """Like :meth:`linked`, of arrays of one shape: a binary search in the users' rows, all
        pairs at once.

        log2(largest degree) passes over the pairs.
        """
        base = self.user_offsets[users]
        size = self.user_offsets[users + 1] - base
        is_linked: Bool = size > 0
        for _ in range((int(size.max(initial=1)) - 1).bit_length()):
            # Where the item is in the row at all, it stays within base .. base + size - 1.
            half = size >> 1
            base += half * (self.link_item[base + half - 1] < items)
            size -= half
        is_linked &= self.link_item[np.minimum(base, self.n_links - 1)] == items
        return is_linked

    @cached_property
    def _link_filter(self) -> NDArray[np.uint8]:
        """A bit for each value of a hash of pairs, set where a link has that value: one or two
        bytes a link.
        """
        size = 1 << ((FILTER_BITS * self.n_links - 1).bit_length() - 3)
        bits = np.zeros(size, np.uint8)
        for start in range(0, self.n_links, CHUNK):
            part = slice(start, start + CHUNK)
            place, bit = self._hashed(self.link_user[part], self.link_item[part])
            for number in range(8):
                # Links of one byte and one bit write the same, so that repeats do no harm.
                bits[place[bit == number]] |= np.uint8(1 << number)
        return bits

    def _hashed(self, users: Int32, items: Int32) -> tuple[Int64, NDArray[np.uint8]]:
        """Byte and bit of each pair in the link filter: the upper bits of its number times 2^64
        over the golden ratio.
        """
        key = users.astype(np.uint64)
        key *= np.uint64(self.n_items)
        key += items.astype(np.uint64)
        key *= np.uint64(0x9E3779B97F4A7C15)
        key >>= np.uint64(64 - (FILTER_BITS * self.n_links - 1).bit_length())
        return (key >> np.uint64(3)).astype(np.int64), (key & np.uint64(7)).astype(np.uint8)

    def linked_block(
        self, users: Int32, items: Int32, scratch: Scratch | None = None
    ) -> tuple[Int64, Int64]:
        """The linked pairs of a whole block: (row, column) such that (users[row], items[column]) is
        a training link.

        Scans the lists of whichever side has fewer links, never the block's len(users) x len(items)
        cells; only in the rows of users with very many links the items are searched for.

        Args:
            users: int32[b], repeats allowed.
            items: int32[V], ascending, distinct.
            scratch: tables kept between calls; else one is made for this call, or ids are searched
                for.
        """
        user_counts = self.user_offsets[users + 1] - self.user_offsets[users]
        item_counts = self.item_offsets[items + 1] - self.item_offsets[items]
        is_long = user_counts > LONG_ROW * len(items)
        if is_long.any() and is_long.sum() * LONG_ROW * len(items) < item_counts.sum():
            short, long = np.flatnonzero(~is_long), np.flatnonzero(is_long)
            few, of_few = self.linked_block(users[short], items, scratch)
            many, of_many = np.nonzero(
                self.searched(*np.broadcast_arrays(users[long][:, None], items[None, :]))
            )
            return np.concatenate([short[few], long[many]]), np.concatenate([of_few, of_many])
        if user_counts.sum() <= item_counts.sum():
            row = np.repeat(np.arange(len(users)), user_counts)
            values = self.link_item.take(
                _expand(self.user_offsets[users], user_counts), mode="clip"
            )
            hit, column = (
                scratch.items.hits(values, items) if scratch else _hits(values, items, self.n_items)
            )
            return row[hit], column.astype(np.int64)
        order = np.argsort(users, kind="stable")
        ranked = users[order]
        first = np.flatnonzero(np.concatenate([[True], ranked[1:] != ranked[:-1]]))
        count = np.diff(first, append=len(users))
        values = self.item_users.take(_expand(self.item_offsets[items], item_counts), mode="clip")
        distinct = ranked[first]
        hit, which = (
            scratch.users.hits(values, distinct)
            if scratch
            else _hits(values, distinct, self.n_users)
        )
        # The columns' links stand one after another, so that a hit's place tells its column.
        column = np.searchsorted(np.cumsum(item_counts), hit, side="right")
        return order[_expand(first[which], count[which])], np.repeat(column, count[which])


def sort_stably(values: Int32, keys: Callable[[slice], Int32]) -> None:
    """Rearrange ``values`` in place: ascending by key, and where keys are equal in the order they
    had.

    The plain form is ``values[:] = values[np.argsort(keys, kind="stable")]``. Here key and position
    are sorted as one 64-bit number: faster, and 8 bytes of scratch a value instead of 12 and more.

    Args:
        values: int32[n].
        keys: the keys, 0 or above, of a slice of ``values``.
    """
    n = len(values)
    packed = np.empty(n, np.uint64)
    for start in range(0, n, CHUNK):
        part = slice(start, min(start + CHUNK, n))
        packed[part] = keys(part)
        packed[part] <<= np.uint64(32)
        packed[part] |= np.arange(part.start, part.stop, dtype=np.uint64)
    packed.sort()
    # Written over what has been read already: 4 bytes behind 8.
    result = packed.view(np.int32)[:n]
    for start in range(0, n, CHUNK):
        part = slice(start, min(start + CHUNK, n))
        result[part] = values[(packed[part] & np.uint64(2**32 - 1)).astype(np.int64)]
    values[:] = result


def _in_order(users: NDArray[np.integer], items: NDArray[np.integer]) -> bool:
    """Whether links ascend by (user, item), none given twice."""
    for start in range(0, len(users) - 1, CHUNK):
        user, item = users[start : start + CHUNK + 1], items[start : start + CHUNK + 1]
        if not ((user[1:] > user[:-1]) | ((user[1:] == user[:-1]) & (item[1:] > item[:-1]))).all():
            return False
    return True


def _ordered(users: NDArray[np.integer], items: NDArray[np.integer]) -> tuple[Int32, Int32]:
    """Links by (user, item).

    Raises:
        DataError: a link is given twice.
    """
    packed = users.astype(np.uint64)
    packed <<= np.uint64(32)
    np.bitwise_or(packed, items, out=packed, dtype=np.uint64, casting="unsafe")
    packed.sort()
    ends = packed.view(np.int32).reshape(-1, 2)
    for start in range(0, len(packed) - 1, CHUNK):
        repeated = (
            packed[start + 1 : start + CHUNK + 1]
            == packed[start : start + CHUNK][: len(packed) - start - 1]
        )
        if repeated.any():
            item, user = ends[start + int(np.argmax(repeated))]
            raise DataError(f"Link (user {user}, item {item}) is given twice.")
    return ends[:, 1].copy(), ends[:, 0].copy()


def _offsets(ids: Int32, size: int) -> Int64:
    """int64[size + 1]: how many of ``ids`` are below 0, 1, ... size."""
    counts = np.zeros(size + 1, np.int64)
    # NumPy counts 64-bit copies.
    step = max(CHUNK, size)
    for start in range(0, len(ids), step):
        counts[1:] += np.bincount(ids[start : start + step], minlength=size)
    return np.cumsum(counts, out=counts)


def _hits(values: Int32, ids: Int32, size: int) -> tuple[Int64, NDArray[np.integer]]:
    """:meth:`Places.hits` without tables to begin with: by binary search, or through new ones where
    that is shorter.
    """
    if size <= MANY_IDS * len(values):
        return Places(size).hits(values, ids)
    place = np.minimum(np.searchsorted(ids, values), len(ids) - 1)
    hit = np.flatnonzero(ids[place] == values)
    return hit, place[hit]


def _expand(starts: Int64, counts: Int64) -> Int64:
    """The concatenation of ``range(start, start + count)`` for each pair."""
    total = int(counts.sum())
    before = np.cumsum(counts) - counts
    return np.repeat(starts - before, counts) + np.arange(total)
