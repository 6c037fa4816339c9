"""The content of batches that are drawn from a graph of pairs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ncfbench.data.graph import BipartiteGraph
from ncfbench.data.ids import encode
from ncfbench.data.table import read_table
from ncfbench.errors import DataError
from ncfbench.linting.derivatives import Evaluator
from ncfbench.linting.scenes import Ids

USERS, ITEMS, LINKS = 60, 80, 480
"""Sizes of the graph without pairs."""
LOOKED_AT = 8
"""Batches whose gradients are looked at."""
MOST_ROWS = {False: 512, True: 128}
"""Rows of a batch that are looked at, by whether each has negatives of its own."""
USER_NAMES = ("user", "user_id", "userid", "query", "anchor", "sentence1", "sentence_0")
ITEM_NAMES = ("item", "item_id", "itemid", "positive", "document", "sentence2", "sentence_1")


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


def read_pairs(path: Path) -> BipartiteGraph:
    """Return the graph of a file of pairs: CSV, TSV, JSON Lines or Parquet.

    The columns are those named user and item, else the first two. Whole numbers from 0 keep their
    values, so that a loss can look ids up; other ids are numbered.

    Raises:
        DataError: it cannot be read, or has no pair.
    """
    table = read_table(path)
    if len(table.names) < 2:
        raise DataError(f"{path} has one column: pairs of a user and an item have two.")
    by_name = {name.lower(): name for name in reversed(table.names)}
    named = [
        next((by_name[word] for word in words if word in by_name), table.names[at])
        for at, words in enumerate((USER_NAMES, ITEM_NAMES))
    ]
    columns = [encode(table[name]) for name in named]
    is_pair = np.logical_and(*(column.codes >= 0 for column in columns))
    if not is_pair.any():
        raise DataError(f"{path} has no pair of {named[0]} and {named[1]}.")
    sides = [(column.names.to_pylist(), column.codes[is_pair]) for column in columns]
    (users, of_users), (items, of_items) = (_kept_numbers(*side) for side in sides)
    pairs = np.unique(users.astype(np.int64) * len(of_items) + items)
    ends = np.divmod(pairs, len(of_items))
    return BipartiteGraph.from_links(*ends, len(of_users), len(of_items), of_users, of_items)


def _kept_numbers(texts: Any, at: Ids) -> tuple[Ids, Sequence[Any]]:
    """Return ids by their indices in some texts, and the texts; small whole numbers are indices,
    and the texts a range.
    """
    if all(str(text).isdecimal() and len(str(text)) < 9 for text in texts):
        numbers = np.array(texts, np.int64)
        if (largest := int(numbers.max())) < max(100 * len(numbers), 10_000):
            return numbers[at], range(largest + 1)
    return at, list(texts)


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
    if np.ptp(p) == 0:
        return 0.0
    return float(np.polyfit(np.log(p), np.log(-np.expm1(b * np.log1p(-p))), 1)[0])
