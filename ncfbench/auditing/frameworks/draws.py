"""Batches as the frameworks draw them, from a graph whose items all have links."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from ncfbench.data.graph import BipartiteGraph, Int32
from ncfbench.errors import UsageError

MEMORY = 4
"""Batches in the queue of a cross-batch memory."""
FILLED = 16
"""Batches of an epoch are filled up to a multiple of this, so that few shapes are compiled."""

Float32 = NDArray[np.float32]
Shape: TypeAlias = tuple[int, int]
"""How many batches, and of how many links each."""


class Drawn(NamedTuple):
    """Some batches of ``b`` links each, with ``n`` other pairs: negatives, or a memory.

    The leading axis counts batches. One batch of two links, both of item 7, with no other pairs::

        Drawn(user=[[3, 5]], item=[[7, 7]], weight=[[1, 1]], probability=[[0.2, 0.2]],
              other_user=[[]], other_item=[[]], other_probability=[[]])
    """

    user: Int32
    """int32[C, b]."""
    item: Int32
    """int32[C, b]."""
    weight: Float32
    """float32[C, b]: 1, or 0 for the filling of a short batch."""
    probability: Float32
    """float32[C, b]: the share of the training links that are of the item."""
    other_user: Int32
    """int32[C, n]."""
    other_item: Int32
    """int32[C, n]."""
    other_probability: Float32
    """float32[C, n]."""


def drawn(
    graph: BipartiteGraph,
    links: NDArray[np.integer],
    others: tuple[Int32, Int32] | None = None,
    weight: Float32 | None = None,
) -> Drawn:
    """Return batches of some links, int[C, b], and other pairs of a user and an item, [C, n]."""
    user, item = graph.link_user[links], graph.link_item[links]
    other_user, other_item = others or np.zeros((2, len(links), 0), np.int32)
    share = (graph.item_degrees / graph.n_links).astype(np.float32)
    weight = np.ones(links.shape, np.float32) if weight is None else weight
    return Drawn(user, item, weight, share[item], other_user, other_item, share[other_item])


def draw_links(graph: BipartiteGraph, rng: Generator, shape: Shape) -> Drawn:
    """Draw links with replacement."""
    return drawn(graph, rng.integers(graph.n_links, size=shape))


def draw_with_memory(graph: BipartiteGraph, rng: Generator, shape: Shape) -> Drawn:
    """Draw links, and the links of earlier batches."""
    count, size = shape
    links, queue = (rng.integers(graph.n_links, size=(count, n)) for n in (size, MEMORY * size))
    return drawn(graph, links, (graph.link_user[queue], graph.link_item[queue]))


def draw_without_duplicates(graph: BipartiteGraph, rng: Generator, shape: Shape) -> Drawn:
    """Draw whole epochs that have about as many batches or more, no node twice in a batch.

    A link that does not fit waits for a later batch, so the last batches of an epoch are short and
    hold the links of the most popular items and the busiest users.
    """
    count, size = shape
    batches: list[NDArray[np.integer]] = []
    while len(batches) < count:
        batches += without_duplicates(rng.permutation(graph.n_links), graph, size)
    links = np.zeros((-(-len(batches) // FILLED) * FILLED, size), np.int64)
    weight = np.zeros(links.shape, np.float32)
    for number, batch in enumerate(batches):
        links[number, : len(batch)], weight[number, : len(batch)] = batch, 1
    return drawn(graph, links, weight=weight)


def without_duplicates(
    order: NDArray[np.integer], graph: BipartiteGraph, size: int
) -> list[NDArray[np.integer]]:
    """Return an epoch's batches: each takes, in order, the links that bring no node twice."""
    remaining, batches = order, []
    while len(remaining):
        users: set[int] = set()
        items: set[int] = set()
        taken: list[int] = []
        for position, link in enumerate(remaining):
            user, item = int(graph.link_user[link]), int(graph.link_item[link])
            if user not in users and item not in items:
                users.add(user)
                items.add(item)
                taken.append(position)
                if len(taken) == size:
                    break
        batches.append(remaining[taken])
        remaining = np.delete(remaining, taken)
    return batches


def draw_with_items(graph: BipartiteGraph, rng: Generator, shape: Shape) -> Drawn:
    """Draw links, and for each any item."""
    links = rng.integers(graph.n_links, size=shape)
    items = rng.integers(graph.n_items, size=shape, dtype=np.int32)
    return drawn(graph, links, (graph.link_user[links], items))


def draw_with_unlinked_items(
    graph: BipartiteGraph, rng: Generator, shape: Shape, *, by_popularity: bool = False
) -> Drawn:
    """Draw links, and for each an item that is no training link of its user."""
    links = rng.integers(graph.n_links, size=shape)
    user = graph.link_user[links]
    item = unlinked_items(graph, rng, user, by_popularity=by_popularity)
    return drawn(graph, links, (user, item))


def draw_with_unlinked_pairs(graph: BipartiteGraph, rng: Generator, shape: Shape) -> Drawn:
    """Draw links, and as many different pairs that are not linked."""
    links = rng.integers(graph.n_links, size=shape)
    pairs = np.array([unlinked_pairs(graph, rng, shape[1]) for _ in range(shape[0])])
    return drawn(graph, links, (pairs[:, 0], pairs[:, 1]))


def require_unlinked_items(graph: BipartiteGraph) -> None:
    """Refuse a graph in which a user has links with all items.

    Raises:
        UsageError: there is one, so that no negative can be drawn for her.
    """
    count = int((graph.user_degrees == graph.n_items).sum())
    if count:
        raise UsageError(
            f"{count:,} of {graph.n_users:,} users have links with all {graph.n_items:,} items, so"
            " that an item without a link cannot be drawn for them. Use another --dataset, or leave"
            " out the frameworks that draw such items."
        )


def unlinked_items(
    graph: BipartiteGraph, rng: Generator, user: Int32, *, by_popularity: bool = False
) -> Int32:
    """Draw for each user an item that is no link of hers, of the shape of ``user``.

    Args:
        by_popularity: in proportion to the items' links instead of uniformly.

    Raises:
        UsageError: some user has all items.
    """
    require_unlinked_items(graph)
    item = np.empty(user.shape, np.int32)
    is_open = np.ones(user.shape, bool)
    while is_open.any():
        count = int(is_open.sum())
        item[is_open] = (
            graph.link_item[rng.integers(graph.n_links, size=count)]
            if by_popularity
            else rng.integers(graph.n_items, size=count)
        )
        is_open = graph.linked(user, item)
    return item


def unlinked_pairs(graph: BipartiteGraph, rng: Generator, count: int) -> tuple[Int32, Int32]:
    """Draw ``count`` different pairs that are not linked, uniformly.

    Raises:
        UsageError: there are fewer.
    """
    free = graph.n_users * graph.n_items - graph.n_links
    if count > free:
        raise UsageError(
            f"A batch needs {count:,} different pairs without a link, and there are {free:,}."
            " Use a smaller --batch-size, or another --dataset."
        )
    pairs = np.zeros(0, np.int64)
    while len(pairs) < count:
        more = rng.integers(graph.n_users * graph.n_items, size=count + 16)
        more = more[~graph.linked(*np.divmod(more, graph.n_items))]
        every, first = np.unique(np.concatenate([pairs, more]), return_index=True)
        pairs = every[np.argsort(first)]
    user, item = np.divmod(pairs[:count], graph.n_items)
    return user.astype(np.int32), item.astype(np.int32)
