"""Cross-batch memory: the items of the links before the batch's own are further negatives, by the
vectors that they had then.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ncfbench.config import RunConfig
from ncfbench.data.graph import BipartiteGraph
from ncfbench.errors import UsageError
from ncfbench.rng import Streams
from ncfbench.sampling.base import Draw, Float64, Int32
from ncfbench.sampling.batch import Batch, Remembered, Shared
from ncfbench.sampling.claims import Claims
from ncfbench.sampling.shared import SharingSampler

Int64 = NDArray[np.int64]
MISSING = -1
"""Stands for an item of the memory before there are any."""


class MemorySharingSampler(SharingSampler):
    """Negative Sharing with a memory of the last M positive links' item vectors (Wang et al. 2020).

    With M_n items of earlier links known so far, and item j brought by c_j others of the batch, or
    by one slot of the memory::

        weight_ij = rho_j m_ij c_j / (b (b - 1 + M_n))

    With replacement and present vectors each of the b - 1 + M_n items is a draw from P_d: the value
    is unbiased. A remembered vector is a constant of earlier parameters: the gradient is biased.

    The layout is :class:`ncfbench.sampling.batch.Remembered`: M slots of remembered items, the
    oldest first, then the batch's own. Cost per link: O(V + M + degree).
    """

    def __init__(
        self, graph: BipartiteGraph, config: RunConfig, streams: Streams, **options: Any
    ) -> None:
        super().__init__(graph, config, streams, **options)
        self.size = int(config.memory)
        self.is_drawn = bool(options.get("replacement"))
        most = graph.n_links - config.batch_size
        if self.size > most:
            use = f"--memory {most // 4 or 1} or less"
            if most < 1:
                half = graph.n_links // 2
                use = f"--batch-size {half} --memory {half}" if half > 1 else "--sampler ns"
            raise UsageError(
                f"memory = {self.size}: beside a batch of {config.batch_size} an epoch has"
                f" {most:,} links to remember. Use {use}."
            )

    def draw(self, start: int, count: int) -> list[Draw]:
        """See :meth:`Sampler.draw`; ``items`` are those of the memory, the oldest first."""
        b, size = self.config.batch_size, self.size
        # Independent draws need no first batch: the memory is full from the beginning.
        first = start * b + (size if self.is_drawn else 0)
        low = max(first - size, 0)
        links = self.positives.take(low, first + count * b - low)
        missing = np.full(size - (first - low), MISSING, np.int32)
        items = np.concatenate([missing, self.graph.link_item[links]])
        own = links[first - low :].reshape(count, b)
        none = np.zeros((b, 0), np.int32)
        return [
            Draw(own[number], none, items[number * b : number * b + size][None, :])
            for number in range(count)
        ]

    @cached_property
    def pair_importance(self) -> Float64:
        """float64[I]: the weight of a pair, but for the number of items that a link meets."""
        return self.importance(self.noise.data) / self.config.batch_size

    def claims(self) -> Claims:
        """See :meth:`Sampler.claims`; an item stays in the memory for several batches."""
        return (
            super()
            .claims()
            ._replace(drawn_items=None)
            .with_bias(
                "remembered vectors are constants, of earlier parameters: items get a part of their"
                " gradient as negatives"
            )
        )

    def required_capacity(self, draw: Draw) -> int:
        """See :meth:`Sampler.required_capacity`."""
        return self.size + super().required_capacity(self._without_memory(draw))

    @property
    def most_item_slots(self) -> int:
        """See :attr:`Sampler.most_item_slots`: items of the memory come beside the batch's own."""
        return self.size + super().most_item_slots

    def assemble_rows(self, draw: Draw, capacity: int, rows: slice) -> Batch | None:
        """See :meth:`Sampler.assemble_rows`; a memory lies on one device."""
        return None

    def _share(self, draw: Draw, capacity: int, rows: slice) -> Batch:
        size = self.size
        own = super()._share(self._without_memory(draw), max(capacity - size, 0), rows)
        assert isinstance(own.negatives, Shared)
        ids = draw.items[0]
        is_known = ids != MISSING
        items = np.where(is_known, ids, 0)
        met = len(draw.links) - 1 + int(is_known.sum())
        users = own.users[rows]
        weight = np.empty((len(users), size + own.negatives.weight.shape[1]), self.weight_dtype)
        np.divide(own.negatives.weight, met, out=weight[:, size:])
        weight[:, :size] = self.pair_importance[items] * is_known / met
        if self.config.mask:
            weight[self._linked_slots(users, items)] = 0
        return own._replace(
            items=np.concatenate([items.astype(np.int32), own.items]),
            pos_item=own.pos_item + np.int32(size),
            negatives=Remembered(weight),
            n_items=np.int32(size + own.n_items),
        )

    def _without_memory(self, draw: Draw) -> Draw:
        return draw._replace(items=draw.users)

    def _linked_slots(self, users: Int32, items: Int32) -> tuple[Int64, Int64]:
        """Return the linked pairs of some users and slots, whose items may repeat."""
        distinct, slots = self._distinct(items)
        row, column = self.graph.linked_block(users, distinct, self.tables)
        by_item, counts = np.argsort(slots, kind="stable"), np.bincount(slots)
        repeats = counts[column]
        first = np.repeat((np.cumsum(counts) - counts)[column], repeats)
        within = np.arange(repeats.sum()) - np.repeat(np.cumsum(repeats) - repeats, repeats)
        return np.repeat(row, repeats), by_item[first + within]
