"""The content of batches that are drawn from a graph of pairs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ncfbench.data.graph import BipartiteGraph
from ncfbench.linting.derivatives import Evaluator

USERS, ITEMS, LINKS = 60, 80, 480
"""Sizes of the graph of links."""
LOOKED_AT = 8
"""Batches whose gradients are looked at."""
MOST_ROWS = {False: 512, True: 128}
"""Rows of a batch that are looked at, by whether each has negatives of its own."""


@dataclass(frozen=True)
class Contents:
    """The content of batches, a number for each batch whose gradients are looked at.

    Attributes:
        rows: of a batch, at most as many as were asked for.
        linked, linked_push: share of the pairs pushed apart that are training links, and of the
            push on them; the user's own item in another row is not among them.
        duplicates, duplicates_push: the same of that.
    """

    rows: int
    linked: list[float]
    linked_push: list[float]
    duplicates: list[float]
    duplicates_push: list[float]


def default_graph() -> BipartiteGraph:
    """Return a small random graph in which popularity follows Zipf's law."""
    rng = np.random.default_rng(0)
    popularity = -0.9 * np.log(1 + rng.permutation(ITEMS))
    keys = rng.normal(0, 0.4, USERS)[:, None] + popularity + rng.gumbel(size=(USERS, ITEMS))
    pairs = np.argpartition(-keys.reshape(-1), LINKS)[:LINKS]
    # Every user and every item has a link.
    every = np.arange(max(USERS, ITEMS))
    pairs = np.unique(np.append(pairs, every % USERS * ITEMS + every % ITEMS))
    users, items = np.divmod(pairs, ITEMS)
    return BipartiteGraph.from_links(users, items, USERS, ITEMS)


def look(evaluator: Evaluator, size: int) -> Contents:
    """Look at the gradients of some batches of links that are drawn at random."""
    rows = min(size, MOST_ROWS[evaluator.layout.k > 0])
    measured = []
    for number in range(LOOKED_AT):
        scene = evaluator.scenes().batch(np.random.default_rng((5, number)), rows)
        push = evaluator.pushes(scene)
        is_negative = evaluator.negatives(push)
        is_same = scene.item[:, None] == scene.column_item[None, :]
        total, amount = max(int(is_negative.sum()), 1), max(push[is_negative].sum(), 1e-30)
        pairs = scene.linked & ~is_same & is_negative, is_same & is_negative
        shares = [
            (float(chosen.sum()) / total, float(push[chosen].sum() / amount)) for chosen in pairs
        ]
        measured.append([*shares[0], *shares[1]])
    return Contents(rows, *np.transpose(measured).tolist())


def tilt(graph: BipartiteGraph, b: int) -> float:
    """Return the exponent of an item's probability in its chance to be in a batch of b links.

    It is 1 where batches are small and 0 where each has all items.
    """
    p = graph.item_degrees[graph.link_item] / graph.n_links
    return float(np.polyfit(np.log(p), np.log(-np.expm1(b * np.log1p(-p))), 1)[0])
