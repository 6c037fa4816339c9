"""Synthetic graphs of any size in bounded memory, and what a process holds in memory."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ncfbench.data.graph import BipartiteGraph

LINKS_OF_A_USER = 37
"""Mean, as in CiteULike; from 10^8 links on it is 10, so that 10^8 links have 10^7 users."""
LINKS_OF_AN_ITEM = 12
"""Mean, as in CiteULike, until there are ``MOST_ITEMS``."""
MOST_ITEMS = 10**6
CHUNK_LINKS = 2**21
"""Links made at a time."""


def size_of(links: int) -> tuple[int, int]:
    """Users and items of a graph of about that many links."""
    return max(links // (10 if links >= 10**8 else LINKS_OF_A_USER), 2), min(
        max(links // LINKS_OF_AN_ITEM, 2), MOST_ITEMS
    )


def make_graph(links: int, seed: int = 0) -> BipartiteGraph:
    """A graph of about ``links`` links (fewer where repeated draws leave a gap).

    Users' degrees are log-normal; an item is linked in proportion to (rank + 10)^-0.9 with ranks in
    random order. Memory beyond the graph and its building: O(``CHUNK_LINKS``).
    """
    n_users, n_items = size_of(links)
    rng = np.random.default_rng(seed)
    item_of_rank = rng.permutation(n_items).astype(np.int32)
    activity = rng.lognormal(0.0, 0.8, n_users)
    borders = np.round(np.cumsum(activity) * (links / activity.sum())).astype(np.int64)
    degrees = np.minimum(np.diff(borders, prepend=0), n_items // 2)
    del activity, borders
    users, items = np.empty(links, np.int32), np.empty(links, np.int32)
    filled = first = 0
    ends = np.cumsum(degrees)
    while first < n_users:
        # At least one user at a time, however many links that user has.
        last = max(
            int(np.searchsorted(ends, (ends[first - 1] if first else 0) + CHUNK_LINKS)), first + 1
        )
        wanted = degrees[first:last]
        row = np.repeat(np.arange(first, last), wanted + wanted // 8)
        keys = np.sort(row * n_items + item_of_rank[_ranks(rng, len(row), n_items)])
        keys = keys[np.diff(keys, prepend=-1) > 0]
        excess = len(keys) - int(wanted.sum())
        kept = np.ones(len(keys), bool)
        if excess > 0:
            kept[rng.choice(len(keys), excess, replace=False, shuffle=False)] = False
        row, item = np.divmod(keys[kept], n_items)
        users[filled : filled + len(row)], items[filled : filled + len(row)] = row, item
        filled, first = filled + len(row), last
    return BipartiteGraph.from_links(users[:filled], items[:filled], n_users, n_items)


def _ranks(rng: np.random.Generator, size: int, n_items: int) -> NDArray[np.int64]:
    """int64[size]: ranks in proportion to (rank + 10)^-0.9, by the inverse of the integral."""
    low, high = 10.0**0.1, (10.0 + n_items) ** 0.1
    position = (low + (high - low) * rng.random(size)) ** 10 - 10
    ranks: NDArray[np.int64] = np.minimum(position.astype(np.int64), n_items - 1)
    return ranks


def resident_bytes() -> int:
    """Bytes of this process that are in memory now, less what the C library keeps of memory that
    was given back to it.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def peak_bytes() -> int:
    """Most bytes of this process that were in memory since :func:`forget_peak`."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))


def forget_peak() -> None:
    """Let :func:`peak_bytes` begin anew."""
    Path("/proc/self/clear_refs").write_text("5")


def array_bytes(*owners: Any) -> int:
    """Bytes of all arrays that some objects hold, each memory counted once."""
    found: dict[int, int] = {}
    seen: set[int] = set()

    def visit(thing: Any) -> None:
        if id(thing) in seen:
            return
        seen.add(id(thing))
        if isinstance(thing, np.ndarray):
            owner: NDArray[Any] = thing
            while isinstance(owner.base, np.ndarray):
                owner = owner.base
            found[id(owner)] = owner.nbytes
        elif isinstance(thing, dict):
            for value in thing.values():
                visit(value)
        elif isinstance(thing, list | tuple):
            for value in thing:
                visit(value)
        elif type(thing).__module__.startswith("ncfbench"):
            visit(getattr(thing, "__dict__", {}))

    for owner in owners:
        visit(owner)
    return sum(found.values())
