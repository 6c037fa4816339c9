"""Blocks of batches of one shape, over whose mean a gradient is taken."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import jax
import numpy as np
from numpy.typing import NDArray

from ncfbench.auditing.layout import with_equal_shapes
from ncfbench.auditing.user_rows import UserRows
from ncfbench.config import RunConfig
from ncfbench.data.graph import BipartiteGraph
from ncfbench.sampling import Sampler, plan_capacity
from ncfbench.sampling.batch import Batch, negative_ids

CHUNK_TERMS = 2**21
"""Link terms of the batches that are evaluated at once."""


class Block:
    """Some batches of one shape, prepared for the gradients of several losses and parameters.

    Args:
        config: of the batches' sampler.
    """

    def __init__(self, graph: BipartiteGraph, config: RunConfig, batches: Sequence[Batch]) -> None:
        self.graph = graph
        self.rows = UserRows(graph, config.reads_histories)
        self.batches = with_equal_shapes(batches)
        parts = list(_parts(self.batches))
        self.groups: list[Batch] = [
            jax.tree.map(lambda *arrays: np.stack(arrays), *part) for part in parts
        ]
        self.positives: list[NDArray[np.integer]] = [
            np.stack([self._positives(batch) for batch in part]) for part in parts
        ]
        """int[C, b] of each group: the users' rows of the positive links."""
        counts = np.zeros(self.rows.count)
        for rows in self.positives:
            counts += np.bincount(rows.reshape(-1), minlength=len(counts)) / rows.shape[1]
        self.user_shares = counts / len(batches)
        """float64[rows]: the mean share of a batch's positive links that are of the user's row."""

    def _positives(self, batch: Batch) -> NDArray[np.integer]:
        return self.rows.of_links(batch.users[batch.pos_user], batch.items[batch.pos_item])


def blocks_of(sampler: Sampler, count: int, size: int) -> Iterator[Block]:
    """Yield ``count`` blocks of ``size`` consecutive batches each."""
    graph, config = sampler.graph, sampler.config
    stream = sampler.batches(0, plan_capacity(graph, config))
    for _ in range(count):
        yield Block(graph, config, list(itertools.islice(stream, size)))


def _parts(batches: Sequence[Batch]) -> Iterator[Sequence[Batch]]:
    """Yield equal numbers of batches whose terms are few enough to be evaluated at once."""
    terms = negative_ids(batches[0])[0].size
    size = max(1, min(len(batches), CHUNK_TERMS // terms))
    while len(batches) % size:
        size -= 1
    for start in range(0, len(batches), size):
        yield batches[start : start + size]
