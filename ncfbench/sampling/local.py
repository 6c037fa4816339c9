"""Local sharing: a batch in N parts that share negatives within themselves only, as N devices
without a word would.
"""

from __future__ import annotations

import dataclasses
from functools import cached_property
from typing import Any

import numpy as np

from ncfbench.config import RunConfig
from ncfbench.data.graph import BipartiteGraph
from ncfbench.registry import find_sampler
from ncfbench.rng import Streams
from ncfbench.sampling.base import Draw, Float64, Nominal, Sampler
from ncfbench.sampling.batch import Batch, Shared, padded


class LocalSampler(Sampler):
    """A sampler that shares negatives, in N parts of b/N positive links; the batch's loss is the
    mean of theirs.

    Draws what the sampler draws for the whole batch, in the same order, and cuts it: part p has
    links p b/N .. (p + 1) b/N
    - 1, whole strata, and for ``mixed-ns`` k'/N uniform items. Each part is a batch of its own,
    with a normaliser of its own; so with replacement each is unbiased, and their mean too.
    Shuffled, links of one part are never the same, as within a whole batch. What is lost is
    negatives: a positive link meets the items of b/N links and not of b, so the variance is larger.
    An item of several parts is embedded by each. Cost per link: that of the sampler at b/N.

    As one batch (:meth:`assemble`) the parts stand one behind the other, in their rows and in their
    item slots, and weights are zero between them; devices get them as :meth:`parts` gives them.
    """

    def __init__(
        self, graph: BipartiteGraph, config: RunConfig, streams: Streams, **options: Any
    ) -> None:
        super().__init__(graph, config, streams, **options)
        self.n_parts = config.devices
        build = find_sampler(config.sampler).load()
        self.whole: Sampler = build(
            graph, dataclasses.replace(config, share="global"), streams, **options
        )
        part = dataclasses.replace(
            config,
            share="global",
            devices=1,
            batch_size=config.batch_size // self.n_parts,
            uniform_items=max(config.uniform_items // self.n_parts, 1),
        )
        self.part: Sampler = build(graph, part, streams, **options)
        self.stratified, self.stratum_size = self.whole.stratified, self.whole.stratum_size
        self.draws_users, self.draws_items = self.whole.draws_users, self.whole.draws_items
        self.positives = self.whole.positives

    def draw(self, start: int, count: int) -> list[Draw]:
        """See :meth:`Sampler.draw`: those of the sampler without parts."""
        return self.whole.draw(start, count)

    def parts(
        self, draw: Draw, capacity: int = 0, own: range | None = None
    ) -> tuple[list[Batch], int]:
        """Some of the parts as batches of equal shapes, and the item slots in use of all.

        Args:
            capacity: item slots of all parts together, at least.
            own: which parts; all by default. Their shapes do not depend on it.
        """
        cuts = self._cuts(draw)
        counts = [self._n_items(cut) for cut in cuts]
        slots = max(-(-capacity // self.n_parts), *counts)
        return [
            self.part.assemble(cuts[place], slots) for place in own or range(self.n_parts)
        ], sum(counts)

    def assemble(self, draw: Draw, capacity: int = 0) -> Batch:
        """See :meth:`Sampler.assemble`; the normaliser of the mean over parts is in the weights."""
        parts, n_items = self.parts(draw)
        size, rows = max(capacity, n_items), len(parts[0].pos_user)
        weight = np.zeros((self.n_parts * rows, size), self.weight_dtype)
        pos_item, first = [], 0
        for place, part in enumerate(parts):
            count = int(part.n_items)
            weight[place * rows : (place + 1) * rows, first : first + count] = (
                part.negatives.weight[:, :count] / self.n_parts
            )
            pos_item.append(part.pos_item + np.int32(first))
            first += count
        return Batch(
            users=np.concatenate([part.users for part in parts]),
            items=padded(np.concatenate([part.items[: int(part.n_items)] for part in parts]), size),
            pos_user=np.arange(self.n_parts * rows, dtype=np.int32),
            pos_item=np.concatenate(pos_item),
            negatives=Shared(weight),
            n_items=np.int32(n_items),
        )

    def shuffled_bias(self) -> float | None:
        """See :meth:`Sampler.shuffled_bias`: that of a part."""
        return self.part.shuffled_bias()

    def nominal(self) -> Nominal | None:
        """See :meth:`Sampler.nominal`: that of a part, N times."""
        found = self.part.nominal()
        return None if found is None else Nominal(*(self.n_parts * count for count in found))

    @cached_property
    def drawn_items(self) -> Float64:
        """See :attr:`Sampler.drawn_items`."""
        return self.whole.drawn_items

    def required_capacity(self, draw: Draw) -> int:
        """See :meth:`Sampler.required_capacity`: N times those of the part that needs most."""
        return self.n_parts * max(map(self._n_items, self._cuts(draw)))

    def _cuts(self, draw: Draw) -> list[Draw]:
        n = self.n_parts
        # Items of no link of their own are one row for the whole batch.
        items = np.split(draw.items, n, axis=0 if len(draw.items) == len(draw.links) else 1)
        return [
            Draw(*arrays)
            for arrays in zip(np.split(draw.links, n), np.split(draw.users, n), items, strict=True)
        ]

    def _n_items(self, draw: Draw) -> int:
        """Item slots in use of a part, without assembling it."""
        items = np.concatenate([self.graph.link_item[draw.links], draw.items.reshape(-1)])
        merged = self.config.unique_items or (self.stratified and self.config.strata == "item")
        return len(np.unique(items)) if merged else len(items)
