"""The bipartite graph of training links: compressed rows both ways, and fast look-ups of pairs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ncfbench.errors import DataError

Int32 = NDArray[np.int32]
Int64 = NDArray[np.int64]
Bool = NDArray[np.bool_]
UInt8 = NDArray[np.uint8]

MAX_LINKS = np.iinfo(np.int32).max  # and most users and items: what int32 can number
BITS_BYTES = 2**26  # of the largest table of a bit per pair
FILTER_BITS = 8  # at least, per link: of unlinked pairs one in 8 to 16 passes the filter
CHUNK = 2**20  # links that are hashed at a time
CELLS_PER_LINK = 8  # of a block, up to which looking at bits is faster than scanning links
LINKS_PER_CELL = 8  # of a block, from which on the filter of a large graph is faster


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
    item_ids: Sequence[Any] | None = None
    """The source's ids of items, for messages; None where these are the numbers."""

    @classmethod
    def from_links(
        cls,
        users: ArrayLike,
        items: ArrayLike,
        n_users: int,
        n_items: int,
        item_ids: Sequence[Any] | None = None,
    ) -> BipartiteGraph:
        """Build a graph from the two ends of each link, in any order. Arrays of int32 in order by
        (user, item) are kept, not copied.

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
                "There are no training links: every link is held out, or the data is empty."
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
        pairs = users.astype(np.int64) * n_items + items.astype(np.int64)
        if not (pairs[1:] > pairs[:-1]).all():
            pairs.sort()
            is_repeated = pairs[1:] == pairs[:-1]
            if is_repeated.any():
                user, item = divmod(int(pairs[np.argmax(is_repeated)]), n_items)
                raise DataError(f"Link (user {user}, item {item}) is given twice.")
            users, items = np.divmod(pairs, n_items)
        link_user, link_item = (ends.astype(np.int32, copy=False) for ends in (users, items))
        user_offsets = np.searchsorted(link_user, np.arange(n_users + 1, dtype=np.int32))
        by_item = grouped(link_user, link_item, n_items)
        return cls(n_users, n_items, link_user, link_item, user_offsets, *by_item, item_ids)

    def name(self, item: int) -> str:
        """Return an item as messages name it, by the source's id."""
        ids = self.item_ids
        return f"item {item}" if ids is None else f"item {str(ids[item])[:80]!r}"

    @property
    def n_links(self) -> int:
        """N, the number of training links."""
        return len(self.link_user)

    @cached_property
    def links_by_item(self) -> Int32:
        """int32[N]: link ids ordered by (item, user), as ``item_users`` is."""
        return grouped(np.arange(self.n_links, dtype=np.int32), self.link_item, self.n_items)[0]

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

    @cached_property
    def _bits(self) -> UInt8 | None:
        """uint8[n_items, n_users / 8]: a bit per pair, set for links; None where that is large."""
        shape = self.n_items, -(-self.n_users // 8)
        if shape[0] * shape[1] > BITS_BYTES:
            return None
        bits = np.zeros(shape, np.uint8)
        np.bitwise_or.at(bits, (self.link_item, self.link_user >> 3), _bit(self.link_user))
        return bits

    def linked(self, users: Int32, items: Int32) -> Bool:
        """Return whether each pair is a training link; the two arrays broadcast."""
        if self._bits is not None:
            byte = items.astype(np.int64) * self._bits.shape[1] + (users >> 3)
            found: Bool = (self._bits.take(byte, mode="clip") & _bit(users)) != 0
            return found
        pairs = np.broadcast_arrays(users, items)
        users, items = (ends.reshape(-1) for ends in pairs)
        byte, bit = self._hashed(users, items)
        is_linked: Bool = (self._filter.take(byte, mode="clip") & bit) != 0
        maybe = np.flatnonzero(is_linked)
        is_linked[maybe] = self._searched(users[maybe], items[maybe])
        return is_linked.reshape(pairs[0].shape)

    @cached_property
    def _filter(self) -> UInt8:
        """A bit per hash of pairs, set where some link has that hash: one or two bytes a link."""
        bits = np.zeros(1 << (self._hash_bits - 3), np.uint8)
        for start in range(0, self.n_links, CHUNK):
            part = slice(start, start + CHUNK)
            np.bitwise_or.at(bits, *self._hashed(self.link_user[part], self.link_item[part]))
        return bits

    @property
    def _hash_bits(self) -> int:
        return (FILTER_BITS * self.n_links - 1).bit_length()

    def _hashed(self, users: Int32, items: Int32) -> tuple[Int64, UInt8]:
        """Return the byte and the bit of each pair in the filter: the upper bits of the pair's
        number times 2^64 over the golden ratio.
        """
        key = users.astype(np.uint64)
        key *= np.uint64(self.n_items)
        key += items.astype(np.uint64)
        key *= np.uint64(0x9E3779B97F4A7C15)
        key >>= np.uint64(64 - self._hash_bits)
        return (key >> np.uint64(3)).astype(np.int64), _bit(key.astype(np.int64))

    def _searched(self, users: Int32, items: Int32) -> Bool:
        """Return whether each pair is a link, by binary search in the users' rows: log2(largest
        degree) passes over all pairs.
        """
        base, end = self.user_offsets[users], self.user_offsets[users + 1]
        size = end - base
        is_linked: Bool = size > 0
        for _ in range((int(size.max(initial=1)) - 1).bit_length()):
            # An item that is in the row stays within base .. base + size - 1.
            half = size >> 1
            base += half * (self.link_item[base + half - 1] < items)
            size -= half
        is_linked &= self.link_item[np.minimum(base, self.n_links - 1)] == items
        return is_linked

    def linked_block(
        self, users: Int32, items: Int32, tables: LookupTables | None = None
    ) -> tuple[Int64, Int64]:
        """Return the linked pairs of a whole block: all (row, column) for which (users[row],
        items[column]) is a training link. It looks at the block's cells, by bits or in
        a large graph by its filter, where these are few, and else scans the links of whichever side
        has fewer.

        Args:
            users: int32[b], repeats allowed.
            items: int32[V], ascending, distinct.
            tables: kept between calls; by default this call makes its own.
        """
        tables = tables or LookupTables(self)
        of_users, of_items = self.user_degrees[users].sum(), self.item_degrees[items].sum()
        if self._bits is not None:
            cost = len(items) * (len(users) + self._bits.shape[1] / 8)  # whole rows are copied
            if cost < CELLS_PER_LINK * min(of_users, of_items):
                cells_VxB = self._bits[items].take(users >> 3, axis=1, mode="clip")
                cells_VxB &= _bit(users)
                column, row = np.divmod(np.flatnonzero(cells_VxB != 0), len(users))
                return row, column
        elif LINKS_PER_CELL * len(users) * len(items) < min(of_users, of_items):
            row, column = np.nonzero(self.linked(users[:, None], items))
            return row, column
        if of_users <= of_items:
            linked, row = _neighbours(users, self.user_offsets, self.link_item)
            hit, position = tables.items.hits(linked, items)
            return row[hit], position.astype(np.int64)
        order = np.argsort(users, kind="stable")
        first = np.flatnonzero(np.diff(users[order], prepend=-1))
        count = np.diff(first, append=len(users))
        linked, column = _neighbours(items, self.item_offsets, self.item_users)
        hit, position = tables.users.hits(linked, users[order[first]])
        rows = order[_expand(first[position], count[position])]
        return rows, np.repeat(column[hit], count[position])


class IdIndex:
    """Finds the positions of ids, all below ``size``, in short lists of distinct ids, through
    tables of 5 bytes per id.
    """

    def __init__(self, size: int) -> None:
        self._is_present = np.zeros(size, bool)
        self._position = np.zeros(size, np.int32)

    def distinct(self, values: Int32) -> tuple[Int32, Int32]:
        """Return the distinct ids, ascending, and the position of each of ``values`` among them."""
        ranked = np.sort(values)  # np.unique takes six times as long
        ids = ranked[np.concatenate([[True], ranked[1:] != ranked[:-1]])]
        self._position[ids] = np.arange(len(ids), dtype=np.int32)
        return ids, self._position[values]

    def hits(self, values: Int32, ids: Int32) -> tuple[Int64, Int32]:
        """Return the indices of the ``values`` that are among distinct ``ids``, and the position of
        each of these in ``ids``.
        """
        self._is_present[ids] = True
        # "clip" skips a check of the range, which cannot fail, and saves a third of the time.
        hit = np.flatnonzero(self._is_present.take(values, mode="clip"))
        self._is_present[ids] = False
        self._position[ids] = np.arange(len(ids), dtype=np.int32)
        return hit, self._position[values[hit]]


class LookupTables:
    """An index of a graph's users and one of its items, for one thread, kept between batches."""

    def __init__(self, graph: BipartiteGraph) -> None:
        self.users, self.items = IdIndex(graph.n_users), IdIndex(graph.n_items)


def grouped(values: Int32, keys: Int32, n_keys: int) -> tuple[Int32, Int64]:
    """Sort values by key, those of a key in their order: by counting, in linear time.

    Args:
        keys: int32[n], below ``n_keys``.

    Returns:
        int32[n], the values of key 0, then of 1, ...; and int64[n_keys + 1], where each key begins.
    """
    from scipy import sparse  # 0.1 s or more, which commands that read no graph can save

    # One row whose columns are the keys, turned into columns.
    row = sparse.csr_array((values, keys, np.array([0, len(keys)])), shape=(1, n_keys)).tocsc()
    return row.data, row.indptr.astype(np.int64)


def _neighbours(nodes: Int32, offsets: Int64, ends: Int32) -> tuple[Int32, Int64]:
    """Return the neighbours of nodes, node after node, and the position of each one's node."""
    counts = offsets[nodes + 1] - offsets[nodes]
    neighbours = ends.take(_expand(offsets[nodes], counts), mode="clip")
    return neighbours, np.repeat(np.arange(len(nodes)), counts)


def _expand(starts: Int64, counts: Int64) -> Int64:
    """Concatenate ``range(start, start + count)`` of each pair."""
    before = np.cumsum(counts) - counts
    return np.repeat(starts - before, counts) + np.arange(int(counts.sum()))


def _bit(numbers: NDArray[np.integer]) -> UInt8:
    """Return the bit of a number within its byte, least significant first."""
    bits: UInt8 = np.left_shift(1, numbers & 7).astype(np.uint8)
    return bits
