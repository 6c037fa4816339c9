"""Checks of what the benchmark of scale times: links, batches and ranks."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ncfbench.data import store
from ncfbench.data.graph import BipartiteGraph
from ncfbench.errors import CheckFailedError
from ncfbench.sampling.batch import Batch, negative_ids, negative_weights

CHUNK = 2**22


def check(holds: bool, what: str) -> None:
    if not holds:
        raise CheckFailedError(f"It does not hold that {what}.")


def check_links(dataset: store.Dataset) -> None:
    """Every link is in range and there once: they ascend by (user, item)."""
    check(len(dataset.users) == len(dataset.items), "each link has two ends")
    last = -1
    for start in range(0, len(dataset.users), CHUNK):
        user, item = (
            ids[start : start + CHUNK].astype(np.int64) for ids in (dataset.users, dataset.items)
        )
        for ids, size in ((user, dataset.n_users), (item, dataset.n_items)):
            check(bool(ids.min() >= 0 and ids.max() < size), "ids are in range")
        check(
            bool((np.diff(user * dataset.n_items + item, prepend=last) > 0).all()),
            "each link is there once",
        )
        last = int(user[-1]) * dataset.n_items + int(item[-1])


def check_batch(batch: Batch, graph: BipartiteGraph, config: Any) -> None:
    """Positives are links, negatives are none, slots are in range."""
    user, item = batch.users[batch.pos_user], batch.items[batch.pos_item]
    check(len(user) == config.batch_size, "a batch has b positive links")
    check(bool(graph.linked(user, item).all()), "positives are training links")
    check(
        len(np.unique(user.astype(np.int64) * graph.n_items + item)) > config.batch_size // 2,
        "positives differ",
    )
    users, items = negative_ids(batch)
    weight = negative_weights(batch)
    check(
        bool(np.isfinite(weight).all() and (weight >= 0).all() and weight.sum() > 0),
        "weights are finite and not all zero",
    )
    row, column = np.nonzero(weight)
    check(
        not graph.linked(users[row, column], items[row, column]).any(),
        "no negative is a training link",
    )
    n_items = int(batch.n_items)
    check(
        bool((batch.pos_item < n_items).all() and not batch.items[n_items:].any()),
        "padding stands behind the items",
    )
    check(len(np.unique(batch.items[:n_items])) == n_items, "items are distinct")


def check_ranks(
    users: NDArray[Any], items: NDArray[Any], item_ids: NDArray[Any], ranks: NDArray[Any]
) -> None:
    """Some ranks in float64: between the items that are surely before and those that may be."""
    for user, item, rank in zip(users.astype(np.float64), item_ids, ranks, strict=False):
        scores = items.astype(np.float64) @ user
        room = 1e-5 * float(np.abs(scores).max())
        before = (scores > scores[item] + room).sum(), (scores >= scores[item] - room).sum()
        check(
            bool(before[0] <= rank <= before[1]),
            f"rank {rank} is between {before[0]} and {before[1]}",
        )
