"""Lists of each user's items without a training link, in an order that a model or the items'
popularity gives.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ncfbench.data.graph import BipartiteGraph, LookupTables
from ncfbench.errors import UsageError

Int32 = NDArray[np.int32]
CELLS = 2**22
"""Pairs of a user and an item that are looked at at a time."""


def require_unlinked(graph: BipartiteGraph, count: int, skip: int) -> None:
    """Refuse lists that some user has too few items for.

    Raises:
        UsageError: it says how long a list can be.
    """
    degrees = graph.user_degrees
    user, in_use = int(np.argmax(degrees)), len(graph.items_in_use)
    able = in_use - int(degrees[user])
    if count + skip <= able:
        return
    passed = f" after {skip} that are passed over" if skip else ""
    use = f"--mined {able - skip} or less"
    if able <= skip:
        use = f"--mine-skip 0 --mined {able} or less" if able else "--mine-skip 0 --mined off"
    raise UsageError(
        f"mined = {count}{passed}: {graph.name('user', user)} has no link with only {able:,} of the"
        f" {in_use:,} items in use. Use {use}."
    )


def popular_unlinked(graph: BipartiteGraph, count: int, skip: int) -> Int32:
    """Return int32[n_users, count]: each user's most popular items without a link, the first
    ``skip`` of them left out.
    """
    order = np.argsort(-graph.item_degrees, kind="stable").astype(np.int32)
    # So many of the most popular items hold enough without a link, whatever the user.
    items = order[: min(count + skip + int(graph.user_degrees.max()), len(graph.items_in_use))]
    column = np.argsort(items)
    found = np.empty((graph.n_users, count), np.int32)
    size, tables = max(CELLS // len(items), 1), LookupTables(graph)
    for start in range(0, graph.n_users, size):
        users = np.arange(start, min(start + size, graph.n_users), dtype=np.int32)
        linked = np.zeros((len(users), len(items)), bool)
        row, at = graph.linked_block(users, items[column], tables)
        linked[row, column[at]] = True
        first = np.argsort(linked, axis=1, kind="stable")[:, skip : skip + count]
        found[users] = items[first]
    return found
