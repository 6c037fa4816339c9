"""A sampler's batches in parts for several devices, and of these only what one process holds."""

from __future__ import annotations

from ncfbench.distributed.shards import cut, part_of, stacked
from ncfbench.sampling.base import Draw, Sampler
from ncfbench.sampling.batch import Batch, rounded_up
from ncfbench.sampling.local import LocalSampler


class SpreadSampler(Sampler):
    """Another sampler's batches in equal parts (:mod:`ncfbench.distributed.shards`).

    Every process draws the whole batch, which is cheap and needs no word of the others, for its
    streams are named by (seed, role, epoch); so each link comes once an epoch over all of them, and
    the whole batch is the same for any number. What is costly, the weights of shared negatives, it
    makes for its own rows only.

    Args:
        sampler: whose batches are cut; the parts of a :class:`LocalSampler` are those that it has.
        parts: how many.
        own: the consecutive ones that this process holds; all by default.
    """

    def __init__(self, sampler: Sampler, parts: int, own: range | None = None) -> None:
        self.whole, self.n_parts, self.own = sampler, parts, own or range(parts)
        self.graph, self.config, self.streams = sampler.graph, sampler.config, sampler.streams
        self.positives, self.stratum_size = sampler.positives, sampler.stratum_size

    def draw(self, start: int, count: int) -> list[Draw]:
        """See :meth:`Sampler.draw`: those of the whole batches."""
        return self.whole.draw(start, count)

    def assemble(self, draw: Draw, capacity: int = 0) -> Batch:
        """The parts of this process.

        Args:
            draw: of the whole batch.
            capacity: item slots of all parts together, at least.
        """
        if isinstance(self.whole, LocalSampler):
            parts, n_items = self.whole.parts(draw, capacity, self.own)
            return stacked(parts, n_items)
        capacity, rows = rounded_up(capacity, self.n_parts), len(draw.links) // self.n_parts
        own = slice(self.own.start * rows, self.own.stop * rows)
        # The matrix of weights, by far the largest part of a batch, of the own rows only.
        whole = self.whole.assemble_rows(draw, capacity, own)
        if whole is None:
            whole = self.whole.assemble(draw, capacity)
        return part_of(cut(whole, self.n_parts), self.n_parts, self.own)

    def batch_capacity(self, batch: Batch) -> int:
        """See :meth:`Sampler.batch_capacity`; item slots of other processes' parts count too."""
        return len(batch.items) // len(self.own) * self.n_parts
