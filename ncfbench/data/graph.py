"""The bipartite graph of training links: compressed rows both ways, degrees, and fast look-ups of
pairs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ncfbench.data.lookup import IdIndex, LinkBits
from ncfbench.errors import DataError

Int32 = NDArray[np.int32]
Int64 = NDArray[np.int64]
Bool = NDArray[np.bool_]

MAX_LINKS = np.iinfo(np.int32).max
"""Most links, users and items: what int32 can number."""
CHUNK = 2**20
"""Links per pass where a whole column of temporaries would take too much memory."""
CELLS_PER_LINK = 8
"""Cells of a block for each link to scan, up to which bits are sooner."""
MOST_BYTES, MOST_BYTES_A_LINK = 2**26, 16
"""Largest table of bits, and how much it may take beside the graph's 12 bytes a link. Data with a
larger one are so sparse that scanning the links is as fast.
"""
FILTER_BITS = 8
"""Least bits of the link filter per link, rounded up to a power of two in all: one unlinked pair in
8 to 16 passes.
"""


class LookupTables:
    """An index of a graph's users and one of its items, for one thread, and its links as bits where
    these are few.
    """

    def __init__(self, graph: BipartiteGraph) -> None:
        self.users, self.items = IdIndex(graph.n_users), IdIndex(graph.n_items)
        self.bits = graph.link_bits


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
    user_ids: Sequence[Any] | None = None
    """The source's ids of users, for messages; None where these are the numbers."""
    item_ids: Sequence[Any] | None = None

    @classmethod
    def from_links(
        cls,
        users: ArrayLike,
        items: ArrayLike,
        n_users: int,
        n_items: int,
        *,
        user_ids: Sequence[Any] | None = None,
        item_ids: Sequence[Any] | None = None,
    ) -> BipartiteGraph:
        """Build a graph from the two ends of each link, in any order.

        Arrays of int32 in order by (user, item) are kept, not copied; the caller must not change
        them. Building takes 8 bytes a link besides the graph, and 16 where links must be sorted.

        Raises:
            DataError: no link, an id that is no whole number or out of range, not as many users as
                items, a link given twice, or more links than int32 can number.
        """
        users, items = np.asarray(users), np.asarray(items)
        if users.ndim != 1 or users.shape != items.shape:
            raise DataError(
                f"A link is a user and an item: users of shape {users.shape} and items of shape"
                f" {items.shape} do not belong together."
            )
        if len(users) == 0:
            raise DataError(
                "There are no training links: every link belongs to a held-out item, or the data is"
                " empty."
            )
        for kind, size in (("links", len(users)), ("users", n_users), ("items", n_items)):
            if size > MAX_LINKS:
                raise DataError(f"{size:,} {kind}: more than {MAX_LINKS:,} are not supported.")
        for kind, ids, size in (("user", users, n_users), ("item", items, n_items)):
            if ids.dtype.kind not in "iu":
                raise DataError(
                    f"The links' {kind}s are of type {ids.dtype}, and ids are whole numbers. For"
                    " names: names, ids = numpy.unique(names, return_inverse=True)"
                )
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
            user_ids=user_ids,
            item_ids=item_ids,
        )

    def name(self, kind: str, node: int) -> str:
        """Return a ``user`` or an ``item`` as messages name it, by the source's id."""
        ids = self.user_ids if kind == "user" else self.item_ids
        return f"{kind} {node}" if ids is None else f"{kind} {str(ids[node])[:80]!r}"

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
        """int32[nodes]: items of training degree 1 or more, ascending; no held-out item is."""
        return np.flatnonzero(self.item_degrees > 0).astype(np.int32)

    @cached_property
    def index_in_use(self) -> Int32:
        """int32[n_items]: the index of each item in ``items_in_use``; 0 for an item without one."""
        index = np.zeros(self.n_items, np.int32)
        index[self.items_in_use] = np.arange(len(self.items_in_use))
        return index

    def linked(self, users: Int32, items: Int32) -> Bool:
        """Return whether each pair is a training link; the two arrays broadcast.

        Pairs that pass the link filter, a few in a hundred, are searched for: see :meth:`searched`.
        """
        users, items = np.broadcast_arrays(users, items)
        shape, users, items = users.shape, users.reshape(-1), items.reshape(-1)
        byte, bit = self._hashed(users, items)
        found: Bool = ((self._link_filter.take(byte, mode="clip") >> bit) & np.uint8(1)).view(
            np.bool_
        )
        maybe = np.flatnonzero(found)
        found[maybe] = self.searched(users[maybe], items[maybe])
        return found.reshape(shape)

    def searched(self, users: Int32, items: Int32) -> Bool:
        """Return what :meth:`linked` does for arrays of one shape, by binary search in the users'
        rows, in log2(largest degree) passes over all pairs.
        """
        base = self.user_offsets[users]
        size = self.user_offsets[users + 1] - base
        is_linked: Bool = size > 0
        for _ in range((int(size.max(initial=1)) - 1).bit_length()):
            # An item that is in the row stays within base .. base + size - 1.
            half = size >> 1
            base += half * (self.link_item[base + half - 1] < items)
            size -= half
        is_linked &= self.link_item[np.minimum(base, self.n_links - 1)] == items
        return is_linked

    @cached_property
    def link_bits(self) -> LinkBits | None:
        """The links as bits; None where their table is large."""
        if self.n_items * -(-self.n_users // 8) > min(MOST_BYTES, MOST_BYTES_A_LINK * self.n_links):
            return None
        return LinkBits(self.link_user, self.link_item, self.n_users, self.n_items)

    @cached_property
    def _link_filter(self) -> NDArray[np.uint8]:
        """A bit per hash value of pairs, set where some link has that value: one or two bytes a
        link.
        """
        size = 1 << ((FILTER_BITS * self.n_links - 1).bit_length() - 3)
        bits = np.zeros(size, np.uint8)
        for start in range(0, self.n_links, CHUNK):
            part = slice(start, start + CHUNK)
            byte, bit = self._hashed(self.link_user[part], self.link_item[part])
            for number in range(8):
                # Repeats of one byte and one bit write the same value, so they do no harm.
                bits[byte[bit == number]] |= np.uint8(1 << number)
        return bits

    def _hashed(self, users: Int32, items: Int32) -> tuple[Int64, NDArray[np.uint8]]:
        """Return byte and bit of each pair in the link filter: the upper bits of the pair's number
        times 2^64 over the golden ratio.
        """
        key = users.astype(np.uint64)
        key *= np.uint64(self.n_items)
        key += items.astype(np.uint64)
        key *= np.uint64(0x9E3779B97F4A7C15)
        key >>= np.uint64(64 - (FILTER_BITS * self.n_links - 1).bit_length())
        return (key >> np.uint64(3)).astype(np.int64), (key & np.uint64(7)).astype(np.uint8)

    def users_of(self, items: Int32) -> tuple[Int32, Int64]:
        """Return the users that are linked with each of some items, item after item, and the
        position in ``items`` that each belongs to.
        """
        counts = self.item_offsets[items + 1] - self.item_offsets[items]
        users = self.item_users.take(_expand(self.item_offsets[items], counts), mode="clip")
        return users, np.repeat(np.arange(len(items)), counts)

    def linked_block(
        self, users: Int32, items: Int32, tables: LookupTables | None = None
    ) -> tuple[Int64, Int64]:
        """Return the linked pairs of a whole block: all (row, column) for which (users[row],
        items[column]) is a training link.

        It looks at the bits of the block's cells where there are bits and few cells, and else scans
        the links of whichever side has fewer.

        Args:
            users: int32[b], repeats allowed.
            items: int32[V], ascending, distinct.
            tables: kept between calls; by default this call makes its own.
        """
        tables = tables or LookupTables(self)
        user_counts = self.user_offsets[users + 1] - self.user_offsets[users]
        item_counts = self.item_offsets[items + 1] - self.item_offsets[items]
        of_users, of_items = user_counts.sum(), item_counts.sum()
        if tables.bits and len(users) * len(items) < CELLS_PER_LINK * min(of_users, of_items):
            return tables.bits.block(users, items)
        if of_users <= of_items:
            row = np.repeat(np.arange(len(users)), user_counts)
            values = self.link_item.take(
                _expand(self.user_offsets[users], user_counts), mode="clip"
            )
            hit, at = tables.items.hits(values, items)
            return row[hit], at.astype(np.int64)
        order = np.argsort(users, kind="stable")
        ranked = users[order]
        first = np.flatnonzero(np.concatenate([[True], ranked[1:] != ranked[:-1]]))
        count = np.diff(first, append=len(users))
        values, column = self.users_of(items)
        hit, which = tables.users.hits(values, ranked[first])
        return order[_expand(first[which], count[which])], np.repeat(column[hit], count[which])


def sort_stably(values: Int32, keys: Callable[[slice], Int32]) -> None:
    """Sort int32[n] ``values`` in place by key, keeping the order of equal keys: as
    ``values[np.argsort(keys, kind="stable")]``, but faster and with 8 bytes a value.

    Args:
        keys: returns the keys, 0 or above, of a slice of ``values``.
    """
    n = len(values)
    packed = np.empty(n, np.uint64)
    for start in range(0, n, CHUNK):
        part = slice(start, min(start + CHUNK, n))
        packed[part] = keys(part)
        packed[part] <<= np.uint64(32)
        packed[part] |= np.arange(part.start, part.stop, dtype=np.uint64)
    packed.sort()
    # Results of 4 bytes overwrite only keys of 8 bytes that have been read already.
    result = packed.view(np.int32)[:n]
    for start in range(0, n, CHUNK):
        part = slice(start, min(start + CHUNK, n))
        result[part] = values[(packed[part] & np.uint64(2**32 - 1)).astype(np.int64)]
    values[:] = result


def _in_order(users: NDArray[np.integer], items: NDArray[np.integer]) -> bool:
    """Return whether links ascend by (user, item), none given twice."""
    ascends = items[1:] > items[:-1]
    ascends &= users[1:] == users[:-1]
    ascends |= users[1:] > users[:-1]
    return bool(ascends.all())


def _ordered(users: NDArray[np.integer], items: NDArray[np.integer]) -> tuple[Int32, Int32]:
    """Sort links by (user, item).

    Raises:
        DataError: a link is given twice.
    """
    packed = users.astype(np.uint64)
    packed <<= np.uint64(32)
    np.bitwise_or(packed, items, out=packed, dtype=np.uint64, casting="unsafe")
    packed.sort()
    ends = packed.view(np.int32).reshape(-1, 2)
    repeated = packed[1:] == packed[:-1]
    if repeated.any():
        item, user = ends[int(np.argmax(repeated))]
        raise DataError(f"Link (user {user}, item {item}) is given twice.")
    return ends[:, 1].copy(), ends[:, 0].copy()


def _offsets(ids: Int32, size: int) -> Int64:
    """Return int64[size + 1]: how many of ``ids`` are below 0, 1, ... size."""
    return np.concatenate([[0], np.cumsum(np.bincount(ids, minlength=size))])


def _expand(starts: Int64, counts: Int64) -> Int64:
    """Concatenate ``range(start, start + count)`` of each pair."""
    total = int(counts.sum())
    before = np.cumsum(counts) - counts
    return np.repeat(starts - before, counts) + np.arange(total)
