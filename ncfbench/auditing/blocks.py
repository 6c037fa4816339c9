"""Blocks of batches of one shape, over whose mean a gradient is taken."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property

import jax
import numpy as np
from numpy.typing import NDArray

from ncfbench.data.graph import BipartiteGraph
from ncfbench.sampling import Sampler, plan_capacity
from ncfbench.sampling.batch import (
    Batch,
    MetUsers,
    Remembered,
    Shared,
    negative_ids,
    negative_weights,
    with_pair_slots,
)
from ncfbench.training.step import hardest_of

CHUNK_TERMS = 2**21
"""Link terms of the batches that are evaluated at once."""


class Block:
    """Some batches of one shape, prepared for the gradients of several losses and parameters.

    Args:
        hardest: negatives of each positive link that count; 0 for all.
    """

    def __init__(self, graph: BipartiteGraph, batches: Sequence[Batch], hardest: int = 0) -> None:
        self.hardest = hardest
        self.remembers = isinstance(batches[0].negatives, Remembered)
        """True if some items have no gradient: the table of all scores does not know which."""
        self.batches, self.graph, self.nodes = batches, graph, len(graph.items_in_use)
        self.groups = list(_stacked(_with_equal_pairs(batches)))
        counts = np.zeros(graph.n_users)
        for group in self.groups:
            positive = np.take_along_axis(group.users, group.pos_user, axis=1)
            counts += np.bincount(positive.reshape(-1), minlength=graph.n_users) / positive.shape[1]
        self.user_shares = counts / len(batches)
        """float64[n_users]: the mean share of a batch's positive links that are the user's."""

    @cached_property
    def keys(self) -> list[tuple[NDArray[np.int64], NDArray[np.int64]]]:
        """Indices of each group's positive and negative pairs in the table of scores.

        int64[C, b] and int64[C, b, n] for each group.
        """
        result = []
        for group in self.groups:
            user = np.take_along_axis(group.users, group.pos_user, axis=1)
            item = np.take_along_axis(group.items, group.pos_item, axis=1)
            pairs = [negative_ids(batch) for batch in _unstacked(group)]
            users, items = (np.stack(ids) for ids in zip(*pairs, strict=True))
            result.append((self._key(user, item), self._key(users, items)))
        return result

    @cached_property
    def weights(self) -> list[NDArray[np.floating]]:
        """Weights of each group's negative pairs."""
        return [
            np.stack([negative_weights(batch) for batch in _unstacked(group)])
            for group in self.groups
        ]

    def _key(self, users: NDArray[np.int32], items: NDArray[np.int32]) -> NDArray[np.int64]:
        return users.astype(np.int64) * self.nodes + self.graph.index_in_use[items]


def blocks_of(sampler: Sampler, count: int, size: int) -> Iterator[Block]:
    """Yield ``count`` blocks of ``size`` consecutive batches each."""
    stream = sampler.batches(0, plan_capacity(sampler.graph, sampler.config))
    for _ in range(count):
        batches: list[Batch] = []
        while len(batches) < size:
            batch = next(stream)
            if batches and len(batch.items) != len(batches[0].items):
                batches = [_wider(narrow, len(batch.items)) for narrow in batches]
            batches.append(batch)
        yield Block(sampler.graph, batches, hardest_of(sampler.config))


def _stacked(batches: Sequence[Batch]) -> Iterator[Batch]:
    """Yield batches as few trees of arrays with a leading axis; equal shapes, of bounded size."""
    terms = negative_ids(batches[0])[0].size
    size = max(1, min(len(batches), CHUNK_TERMS // terms))
    while len(batches) % size:
        size -= 1
    for start in range(0, len(batches), size):
        parts = batches[start : start + size]
        yield jax.tree.map(lambda *arrays: np.stack(arrays), *parts)


def _with_equal_pairs(batches: Sequence[Batch]) -> list[Batch]:
    """Return batches that leave out linked pairs with as many slots for them."""
    counts = [
        len(batch.negatives.linked_user)
        for batch in batches
        if isinstance(batch.negatives, MetUsers)
    ]
    return [with_pair_slots(batch, max(counts, default=0)) for batch in batches]


def _wider(batch: Batch, slots: int) -> Batch:
    """Return a batch with more padding slots."""
    more = slots - len(batch.items)
    items = np.pad(batch.items, (0, more))
    negatives = batch.negatives
    if isinstance(negatives, Shared):
        negatives = type(negatives)(np.pad(negatives.weight, ((0, 0), (0, more))))
    if isinstance(negatives, MetUsers):
        negatives = negatives._replace(item_weight=np.pad(negatives.item_weight, (0, more)))
    return batch._replace(items=items, negatives=negatives)


def _unstacked(group: Batch) -> Iterator[Batch]:
    """Yield the batches of a group."""
    for index in range(len(group.n_items)):
        yield jax.tree.map(lambda array: array[index], group)  # noqa: B023
