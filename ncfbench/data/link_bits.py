"""Links as bits: a table of all pairs of an item and a user, where that is small."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Int32 = NDArray[np.int32]
Int64 = NDArray[np.int64]

MOST_BYTES, MOST_BYTES_A_LINK = 2**26, 16
"""Largest table, and how much it may take beside the graph's 12 bytes a link.

Data with a larger one are so sparse that scanning the links is as fast: CiteULike's would take 72
bytes a link and save nothing; that of MovieLens with plots takes 3.
"""


class LinkBits:
    """A bit for each pair of an item and a user, set where the pair is a link.

    Args:
        users, items: ends of each link.
    """

    def __init__(self, users: Int32, items: Int32, n_users: int, n_items: int) -> None:
        bits = np.zeros((n_items, _row_bytes(n_users)), np.uint8)
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


def is_small(n_links: int, n_users: int, n_items: int) -> bool:
    """Return whether the table of a graph is small enough to be made."""
    return n_items * _row_bytes(n_users) <= min(MOST_BYTES, MOST_BYTES_A_LINK * n_links)


def _row_bytes(n_users: int) -> int:
    return -(-n_users // 8)


def _bit(users: Int32) -> NDArray[np.uint8]:
    bits: NDArray[np.uint8] = np.left_shift(1, users & 7).astype(np.uint8)
    return bits
