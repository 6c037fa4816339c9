"""Blocks of batches of one shape, over whose mean a gradient is taken."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import NamedTuple

import jax
import numpy as np
from numpy.typing import NDArray

from ncfbench.auditing.layout import with_equal_shapes
from ncfbench.data.graph import BipartiteGraph
from ncfbench.sampling import Sampler, plan_capacity
from ncfbench.sampling.batch import Batch, Remembered, negative_ids, negative_weights
from ncfbench.training.step import hardest_of

CHUNK_TERMS = 2**21
"""Link terms of the batches that are evaluated at once."""


class Pairs(NamedTuple):
    """The pairs of a group of C batches, by their indices in the table of all scores."""

    positive: NDArray[np.int64]
    """int64[C, b]."""
    negative: NDArray[np.int64]
    """int64[C, n, m]."""
    weight: NDArray[np.floating]
    """float32[C, n, m]: of the negative pairs."""


class Block:
    """Some batches of one shape, prepared for the gradients of several losses and parameters.

    Args:
        hardest: negatives of each positive link that count; 0 for all.
    """

    def __init__(self, graph: BipartiteGraph, batches: Sequence[Batch], hardest: int = 0) -> None:
        self.graph, self.hardest = graph, hardest
        self.batches = with_equal_shapes(batches)
        self.remembers = isinstance(batches[0].negatives, Remembered)
        """True if some items have no gradient: the table of all scores does not know which."""
        self._parts = list(_parts(self.batches))
        self.groups: list[Batch] = [
            jax.tree.map(lambda *arrays: np.stack(arrays), *part) for part in self._parts
        ]
        counts = np.zeros(graph.n_users)
        for group in self.groups:
            positive = np.take_along_axis(group.users, group.pos_user, axis=1)
            counts += np.bincount(positive.reshape(-1), minlength=graph.n_users) / positive.shape[1]
        self.user_shares = counts / len(batches)
        """float64[n_users]: the mean share of a batch's positive links that are the user's."""

    @cached_property
    def pairs(self) -> list[Pairs]:
        """The pairs of each group."""
        return [
            Pairs(*map(np.stack, zip(*map(self._pairs, part), strict=True))) for part in self._parts
        ]

    def _pairs(self, batch: Batch) -> Pairs:
        positive = self._index(batch.users[batch.pos_user], batch.items[batch.pos_item])
        return Pairs(positive, self._index(*negative_ids(batch)), negative_weights(batch))

    def _index(self, users: NDArray[np.int32], items: NDArray[np.int32]) -> NDArray[np.int64]:
        nodes = len(self.graph.items_in_use)
        return users.astype(np.int64) * nodes + self.graph.index_in_use[items]


def blocks_of(sampler: Sampler, count: int, size: int) -> Iterator[Block]:
    """Yield ``count`` blocks of ``size`` consecutive batches each."""
    stream = sampler.batches(0, plan_capacity(sampler.graph, sampler.config))
    for _ in range(count):
        batches = list(itertools.islice(stream, size))
        yield Block(sampler.graph, batches, hardest_of(sampler.config))


def _parts(batches: Sequence[Batch]) -> Iterator[Sequence[Batch]]:
    """Yield equal numbers of batches whose terms are few enough to be evaluated at once."""
    terms = negative_ids(batches[0])[0].size
    size = max(1, min(len(batches), CHUNK_TERMS // terms))
    while len(batches) % size:
        size -= 1
    for start in range(0, len(batches), size):
        yield batches[start : start + size]
