"""Tables for looking up ids and links: kept between batches, each for one thread."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Int32 = NDArray[np.int32]
Int64 = NDArray[np.int64]

MANY_IDS = 16
"""Ids of the graph per id of a list, above which sorting finds distinct ids sooner than a table."""


class IdIndex:
    """Finds the positions of ids in short lists of distinct ids, through tables of 5 bytes per id
    of the graph.

    Args:
        size: ids are below it.
    """

    def __init__(self, size: int) -> None:
        self._present = np.zeros(size, bool)
        self._position = np.zeros(size, np.int32)

    def distinct(self, values: Int32) -> tuple[Int32, Int32]:
        """Return the distinct ids, ascending, and the position of each of ``values`` among them."""
        if len(self._present) > MANY_IDS * len(values):
            ranked = np.sort(values)
            ids = ranked[np.concatenate([[True], ranked[1:] != ranked[:-1]])]
        else:
            self._present[values] = True
            ids = np.flatnonzero(self._present).astype(np.int32)
            self._present[ids] = False
        self._position[ids] = np.arange(len(ids), dtype=np.int32)
        return ids, self._position[values]

    def hits(self, values: Int32, ids: Int32) -> tuple[Int64, Int32]:
        """Return the indices of the ``values`` that are among distinct ``ids``, and the position of
        each of these in ``ids``.
        """
        self._present[ids] = True
        # "clip" skips a check of the range, which cannot fail, and saves a third of the time.
        hit = np.flatnonzero(self._present.take(values, mode="clip"))
        self._present[ids] = False
        self._position[ids] = np.arange(len(ids), dtype=np.int32)
        return hit, self._position[values[hit]]


class LinkBits:
    """A bit for each pair of an item and a user, set where the pair is a link.

    Args:
        users, items: ends of each link.
    """

    def __init__(self, users: Int32, items: Int32, n_users: int, n_items: int) -> None:
        bits = np.zeros((n_items, -(-n_users // 8)), np.uint8)
        np.bitwise_or.at(bits, (items, users >> 3), _bit(users))
        self._bits = bits

    def block(self, users: Int32, items: Int32) -> tuple[Int64, Int64]:
        """Return the linked pairs of a block: all (row, column) for which (users[row],
        items[column]) is a link, in the order of columns.
        """
        cells_VxB = self._bits[items].take(users >> 3, axis=1, mode="clip")
        cells_VxB &= _bit(users)
        found = np.flatnonzero(cells_VxB != 0)
        column, row = np.divmod(found, len(users))
        return row, column


def _bit(users: Int32) -> NDArray[np.uint8]:
    bits: NDArray[np.uint8] = np.left_shift(1, users & 7).astype(np.uint8)
    return bits
