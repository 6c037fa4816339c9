"""Samplers whose negatives are the batch's other items: Negative Sharing, with strata, or with
uniform items mixed in.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np

from ncfbench.catalog import find_loss, find_sampler
from ncfbench.config import RunConfig
from ncfbench.data.graph import BipartiteGraph
from ncfbench.errors import UsageError
from ncfbench.rng import Streams
from ncfbench.sampling.base import Draw, Float64, Int32, Sampler
from ncfbench.sampling.batch import Batch, Shared, padded
from ncfbench.sampling.claims import Claims


class SharingSampler(Sampler):
    """Base of the samplers in which every positive link meets every item outside its own stratum.

    With c_j the batch's positive links and lone items on item j, and c_ij those positive links of
    them in row i's own stratum, ``weight_ij = importance_j m_ij (c_j - c_ij)``: an item that came
    with four links counts four times. Under ``hardest`` the model lets only the K items of the
    highest scores in each row count (:func:`ncfbench.models.objective.hardest_weights`).
    """

    def __init__(
        self, graph: BipartiteGraph, config: RunConfig, streams: Streams, **options: Any
    ) -> None:
        super().__init__(graph, config, streams, **options)
        draws_more = find_sampler(config.sampler).reads("uniform_items")
        most = config.batch_size - self.stratum_size + draws_more * config.uniform_items
        most += config.sampler_settings.get("memory", 0)
        if config.sampler_settings.get("hardest", 0) >= most:
            fewer = f"for example --hardest {most // 4 or 1}, or " if most > 1 else ""
            raise UsageError(
                f"hardest = {config.hardest}: a positive link of a batch of {config.batch_size}"
                f" meets {most} items, so there is nothing to choose. Use {fewer}--hardest all."
            )

    @cached_property
    def pair_importance(self) -> Float64:
        """float64[I]: the weight of one pair of a link and an item, the normaliser included.

        Here the items are those of the positive links of other strata, or of other links.
        """
        b = self.config.batch_size
        return self.importance(self.noise.data) / (b * b - b * self.stratum_size)

    def assemble(self, draw: Draw, capacity: int = 0) -> Batch:
        """See :meth:`Sampler.assemble`."""
        return self._share(draw, capacity, slice(0, len(draw.links)))

    def assemble_rows(self, draw: Draw, capacity: int, rows: slice) -> Batch | None:
        """See :meth:`Sampler.assemble_rows`; None where ``rows`` cut a stratum."""
        if rows.start % self.stratum_size or rows.stop % self.stratum_size:
            return None
        return self._share(draw, capacity, rows)

    def required_capacity(self, draw: Draw) -> int:
        """See :meth:`Sampler.required_capacity`."""
        return self._count_items(draw)

    def claims(self) -> Claims:
        """See :meth:`Sampler.claims`. Shuffled, two links of a batch are never the same, two strata
        seldom alike: a bias of 1/(N-1), or of order s/N.
        """
        n, s = self.graph.n_links, self.stratum_size
        found = super().claims()._replace(shuffled_bias=s / n if s > 1 else 1 / max(n - 1, 1))
        if not self.config.sampler_settings.get("hardest", 0):
            return found
        return found.with_bias(
            f"only the {self.config.hardest} negatives of the highest scores count, so what is"
            " estimated is a part of the negative term, and not the objective"
        )

    def _share(self, draw: Draw, capacity: int, rows: slice) -> Batch:
        """Return the batch of a draw with the weights of the positive links ``rows``, whole
        strata.
        """
        graph, s, importance = self.graph, self.stratum_size, self.pair_importance
        links, pos_user, ids = draw.links, graph.link_user[draw.links], self.slot_items(draw)
        distinct, slots = self._distinct(ids)
        merge = self.merges_items
        items, slot = (distinct, slots) if merge else (ids, np.arange(len(ids), dtype=np.int32))
        pos_slot, n_items = slot[: len(links)], len(items)
        size = max(capacity, n_items)

        count = np.bincount(slot, minlength=n_items)
        of_item = importance[items].astype(self.weight_dtype)
        b = rows.stop - rows.start
        weight = np.empty((b, size), dtype=self.weight_dtype)
        weight[:, n_items:] = 0
        real = weight[:, :n_items]
        real[:] = count.astype(self.weight_dtype) * of_item
        # Within its own stratum a link meets an item only as often as other strata brought it.
        # Counts are whole numbers until they meet the importance, so that an item of one stratum
        # only gets exactly zero.
        slot_TxS = pos_slot[rows].reshape(-1, s)
        own_TxS = (slot_TxS[:, :, None] == slot_TxS[:, None, :]).sum(axis=2)
        left_TxS = (count[slot_TxS] - own_TxS).astype(self.weight_dtype) * of_item[slot_TxS]
        real[np.arange(b).reshape(-1, s, 1), slot_TxS[:, None, :]] = left_TxS[:, None, :]
        if self.config.mask:
            row, column = graph.linked_block(pos_user[rows], distinct, self.tables)
            if merge:
                real[row, column] = 0
            else:
                linked = np.zeros((b, len(distinct)), dtype=bool)
                linked[row, column] = True
                real[linked[:, slots]] = 0
        if find_loss(self.config.loss).includes_positive:
            own = pos_slot[rows]
            real[np.arange(b), own] += of_item[own]
        return Batch(
            users=pos_user,
            items=padded(items, size),
            pos_user=np.arange(len(links), dtype=np.int32),
            pos_item=pos_slot,
            negatives=Shared(weight),
            n_items=np.int32(n_items),
        )


class StratifiedSharingSampler(SharingSampler):
    """Stratified Sampling with Negative Sharing (KDD 2017, algorithm 5): s links of an item, no
    negative drawn.

    Strata as in Stratified Sampling, by items or by users. Every positive link meets the items of
    all other strata. With n_t the size of stratum t and c as for :class:`SharingSampler`::

        weight_ij = rho_j m_ij (c_j - c_ij) / (b^2 - sum_t n_t^2)

    With replacement, two strata are independent, so each of the b^2 - sum n_t^2 pairs of a link and
    an item of another stratum is a draw from P_d(u, v) x P_d(v'): unbiased. Linked pairs get weight
    0 under ``mask``. b user slots; about b/s item slots, by users b. Cost per link: O(V + degree).
    """

    # The paper prints b(b-1)/s negative links; these are without those of a link's own stratum.
    stratified = True


class NegativeSharingSampler(SharingSampler):
    """Negative Sharing (KDD 2017, algorithm 4): b positive links, each one's negatives the items of
    the others.

    The case in which every stratum is one link: weight_ij = rho_j m_ij (c_j - c_ij) / (b^2 - b).
    Positive links shuffled (or uniform with replacement). b user slots; b item slots, where
    ``unique_items`` merges equal items.
    """


class MixedSharingSampler(SharingSampler):
    """Mixed Negative Sampling (Yang et al., WWW 2020 companion): Negative Sharing and k' items
    drawn uniformly.

    The k' items are drawn with replacement from all items in use and met by every positive link. A
    row's negatives are then b - 1 draws from P_d and k' uniform ones, weighted by the balance
    heuristic for a fixed number of each (Veach and Guibas, SIGGRAPH 1995)::

        weight_ij = P_n(j) m_ij (c_j - c_ij) / (b ((b - 1) P_d(j) + k' uniform(j)))

    Unbiased with replacement. Linked pairs get weight 0 under ``mask``. b user slots, b + k' item
    slots, where ``unique_items`` merges equal items. Cost per link: O(V + degree).
    """

    def draw(self, start: int, count: int) -> list[Draw]:
        """See :meth:`Sampler.draw`; each batch has a stream of its own for its uniform items."""
        return [
            draw._replace(items=self._uniform_items(number)[None, :])
            for number, draw in enumerate(super().draw(start, count), start)
        ]

    def claims(self) -> Claims:
        """See :meth:`Sampler.claims`."""
        return super().claims()._replace(drawn_items=self._uniform)

    @cached_property
    def _uniform(self) -> Float64:
        return (self.graph.item_degrees > 0) / len(self._in_use)

    @cached_property
    def pair_importance(self) -> Float64:
        """See :attr:`SharingSampler.pair_importance`."""
        b, extra = self.config.batch_size, self.config.uniform_items
        return self.importance((b - 1) * self.noise.data + extra * self._uniform) / b

    @cached_property
    def _in_use(self) -> Int32:
        return self.graph.items_in_use

    def _uniform_items(self, number: int) -> Int32:
        rng = self.streams.generator("uniform-items", number)
        return self._in_use[rng.integers(len(self._in_use), size=self.config.uniform_items)]
