"""Local sharing: a batch in N shards that share negatives only within themselves, as N devices that
do not communicate would.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from ncfbench.catalog import find_sampler
from ncfbench.config import RunConfig
from ncfbench.data.graph import BipartiteGraph
from ncfbench.rng import Streams
from ncfbench.sampling.base import Draw, Sampler
from ncfbench.sampling.batch import Batch, Shared, padded
from ncfbench.sampling.claims import Claims, Nominal


class LocalSampler(Sampler):
    """A sampler that shares negatives, in N shards of b/N positive links.

    It draws what the sampler draws for the whole batch and cuts it: shard p has links p b/N ..
    (p + 1) b/N - 1, whole strata, and an equal share of items that came alone. Each shard is a
    batch of its own with its own normaliser, and the batch's loss is the mean of theirs, unbiased
    with replacement. A positive link meets the items of b/N links, so the variance is larger. An
    item of several shards is embedded by each. Cost per link: that of the sampler at b/N.

    As one batch (:meth:`assemble`) the shards follow one another, in rows and in item slots, with
    weights of zero between them. Devices get them from :meth:`shards`.
    """

    def __init__(
        self, graph: BipartiteGraph, config: RunConfig, streams: Streams, **options: Any
    ) -> None:
        n = self.n_shards = config.devices
        build = find_sampler(config.sampler).load()
        self.whole: Sampler = build(graph, config, streams, **options)
        shard = dataclasses.replace(
            config,
            share="global",
            devices=1,
            batch_size=config.batch_size // n,
            uniform_items=max(config.uniform_items // n, 1),
        )
        self.shard: Sampler = build(graph, shard, streams, **options)
        self.stratified = self.whole.stratified
        super().__init__(graph, config, streams, **options)
        self.positives = self.whole.positives

    def draw(self, start: int, count: int) -> list[Draw]:
        """See :meth:`Sampler.draw`: the draws of the whole batch."""
        return self.whole.draw(start, count)

    def shards(
        self, draw: Draw, capacity: int = 0, own: range | None = None
    ) -> tuple[list[Batch], int]:
        """Return some shards as batches of equal shapes, and the item slots in use of all shards.

        Args:
            draw: of the whole batch.
            capacity: item slots of all shards together, at least.
            own: the shards to return; all by default. Their shapes do not depend on it.
        """
        cuts = self._cuts(draw)
        counts = [self.shard.required_capacity(cut) for cut in cuts]
        slots = max(-(-capacity // self.n_shards), *counts)
        chosen = own or range(self.n_shards)
        return [self.shard.assemble(cuts[index], slots) for index in chosen], sum(counts)

    def assemble(self, draw: Draw, capacity: int = 0) -> Batch:
        """See :meth:`Sampler.assemble`; the weights include the mean over shards."""
        from scipy.linalg import block_diag  # the import takes a second, and training needs none

        shards = [self.shard.assemble(cut) for cut in self._cuts(draw)]
        counts = [len(shard.items) for shard in shards]
        weight = block_diag(*(shard.negatives.weight for shard in shards)) / self.n_shards
        weight = np.pad(weight, ((0, 0), (0, max(capacity - sum(counts), 0))))
        first = np.cumsum([0, *counts[:-1]], dtype=np.int32)
        return Batch(
            users=np.concatenate([shard.users for shard in shards]),
            items=padded(np.concatenate([shard.items for shard in shards]), weight.shape[1]),
            pos_user=np.arange(len(draw.links), dtype=np.int32),
            pos_item=np.concatenate([shard.pos_item for shard in shards])
            + np.repeat(first, len(shards[0].pos_item)),
            negatives=Shared(weight),
            n_items=np.int32(sum(counts)),
        )

    def claims(self) -> Claims:
        """See :meth:`Sampler.claims`: the whole batch's, with contents and bias of its shards."""
        one = self.shard.claims()
        counts = one.nominal and Nominal(*(self.n_shards * count for count in one.nominal))
        return self.whole.claims()._replace(nominal=counts, shuffled_bias=one.shuffled_bias)

    def required_capacity(self, draw: Draw) -> int:
        """See :meth:`Sampler.required_capacity`: N times those of the shard that needs most."""
        return self.n_shards * max(map(self.shard.required_capacity, self._cuts(draw)))

    @property
    def most_item_slots(self) -> int:
        """See :attr:`Sampler.most_item_slots`: each shard may have all items."""
        return self.n_shards * self.shard.most_item_slots

    def _cuts(self, draw: Draw) -> list[Draw]:
        n = self.n_shards
        # Items of no link of their own are one row for the whole batch.
        items = np.split(draw.items, n, axis=0 if len(draw.items) == len(draw.links) else 1)
        parts = np.split(draw.links, n), np.split(draw.users, n), items
        return [Draw(*arrays) for arrays in zip(*parts, strict=True)]
