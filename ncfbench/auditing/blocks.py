"""Blocks of batches of one shape, over whose mean a gradient is taken."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import jax
import numpy as np
from numpy.typing import NDArray

from ncfbench.auditing.layout import with_equal_shapes
from ncfbench.auditing.user_rows import UserRows
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
        rows: of the users' vectors; by default those of the users alone.
    """

    def __init__(
        self,
        graph: BipartiteGraph,
        batches: Sequence[Batch],
        hardest: int = 0,
        rows: UserRows | None = None,
    ) -> None:
        self.graph, self.hardest = graph, hardest
        self.rows = rows or UserRows(graph)
        self.batches = with_equal_shapes(batches)
        self.remembers = isinstance(batches[0].negatives, Remembered)
        """True if some items have no gradient: the table of all scores does not know which."""
        self._parts = list(_parts(self.batches))
        self.groups: list[Batch] = [
            jax.tree.map(lambda *arrays: np.stack(arrays), *part) for part in self._parts
        ]
        self.positives: list[NDArray[np.integer]] = [
            np.stack([self._positives(batch) for batch in part]) for part in self._parts
        ]
        """int[C, b] of each group: the users' rows of the positive links."""
        counts = np.zeros(self.rows.count)
        for found in self.positives:
            counts += np.bincount(found.reshape(-1), minlength=len(counts)) / found.shape[1]
        self.user_shares = counts / len(batches)
        """float64[rows]: the mean share of a batch's positive links that are of the user's row."""
        self._pairs: dict[bool, list[Pairs]] = {}

    def pairs(self, *, is_pointwise: bool) -> list[Pairs]:
        """Return the pairs of each group; their rows are users' rows. Negative links of a pointwise
        loss have the rows of their users, the others those of their positive links.
        """
        key = is_pointwise or not self.rows.has_links
        if key not in self._pairs:
            self._pairs[key] = []
            for part in self._parts:
                found = [self._pairs_of(batch, by_user=key) for batch in part]
                self._pairs[key].append(Pairs(*map(np.stack, zip(*found, strict=True))))
        return self._pairs[key]

    def _positives(self, batch: Batch) -> NDArray[np.integer]:
        return self.rows.of_links(batch.users[batch.pos_user], batch.items[batch.pos_item])

    def _pairs_of(self, batch: Batch, *, by_user: bool) -> Pairs:
        rows = self._positives(batch)
        users, items = negative_ids(batch)
        negative = users if by_user else np.broadcast_to(rows[:, None], users.shape)
        positive = self._index(rows, batch.items[batch.pos_item])
        return Pairs(positive, self._index(negative, items), negative_weights(batch))

    def _index(self, users: NDArray[np.integer], items: NDArray[np.int32]) -> NDArray[np.int64]:
        nodes = len(self.graph.items_in_use)
        return users.astype(np.int64) * nodes + self.graph.index_in_use[items]


def blocks_of(
    sampler: Sampler, count: int, size: int, rows: UserRows | None = None
) -> Iterator[Block]:
    """Yield ``count`` blocks of ``size`` consecutive batches each."""
    stream = sampler.batches(0, plan_capacity(sampler.graph, sampler.config))
    for _ in range(count):
        batches = list(itertools.islice(stream, size))
        yield Block(sampler.graph, batches, hardest_of(sampler.config), rows)


def _parts(batches: Sequence[Batch]) -> Iterator[Sequence[Batch]]:
    """Yield equal numbers of batches whose terms are few enough to be evaluated at once."""
    terms = negative_ids(batches[0])[0].size
    size = max(1, min(len(batches), CHUNK_TERMS // terms))
    while len(batches) % size:
        size -= 1
    for start in range(0, len(batches), size):
        yield batches[start : start + size]
