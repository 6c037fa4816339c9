"""Samplers whose negatives are the batch's other items: Negative Sharing, with strata or with
uniform items mixed in.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np

from ncfbench.catalog import FAMILIES, SamplerInfo, find_loss
from ncfbench.sampling.base import Claims, Draw, Float64, Int32, Nominal, Sampler
from ncfbench.sampling.batch import Batch, Shared, padded


class SharingSampler(Sampler):
    """Base of the samplers in which every positive link meets every item outside its own stratum.

    With c_j the batch's positive links and lone items on item j, and c_ij those positive links of
    them in row i's own stratum, ``weight_ij = importance_j m_ij (c_j - c_ij)``: an item that came
    with four links counts four times.
    """

    def _pair_importance(self, items: Int32) -> Float64:
        """Return the weight of one pair of a link and each of some items, the normaliser included.

        Here the items are those of the positive links of other strata, or of other links.
        """
        b = self.config.batch_size
        return self.rho[items] / (b * b - b * self.stratum_size)

    def assemble(self, draw: Draw, capacity: int = 0) -> Batch:
        """See :meth:`Sampler.assemble`."""
        s, b = self.stratum_size, len(draw.links)
        pos_user = self.graph.link_user[draw.links]
        items, slot = self.tables.items.distinct(self._slot_items(draw))
        pos_slot, n_items = slot[: len(draw.links)], len(items)
        size = max(capacity, n_items)

        count = np.bincount(slot, minlength=n_items)
        of_item = self._pair_importance(items).astype(self.weight_dtype)
        weight = np.empty((b, size), dtype=self.weight_dtype)
        weight[:, n_items:] = 0
        real = weight[:, :n_items]
        real[:] = count.astype(self.weight_dtype) * of_item
        # Within its own stratum a link meets an item only as often as other strata brought it.
        # Counts are whole numbers until they meet the importance, so that an item of one stratum
        # only gets exactly zero.
        slot_TxS = pos_slot.reshape(-1, s)
        own_TxS = (slot_TxS[:, :, None] == slot_TxS[:, None, :]).sum(axis=2)
        left_TxS = (count[slot_TxS] - own_TxS).astype(self.weight_dtype) * of_item[slot_TxS]
        real[np.arange(b).reshape(-1, s, 1), slot_TxS[:, None, :]] = left_TxS[:, None, :]
        if self.config.mask:
            real[self.graph.linked_block(pos_user, items, self.tables)] = 0
        if find_loss(self.config.loss).includes_positive:
            real[np.arange(b), pos_slot] += of_item[pos_slot]
        return Batch(
            users=pos_user,
            items=padded(items, size),
            pos_user=np.arange(len(draw.links), dtype=np.int32),
            pos_item=pos_slot,
            negatives=Shared(weight),
            n_items=np.int32(n_items),
        )

    def claims(self) -> Claims:
        """See :meth:`Sampler.claims`. Shuffled, two links of a batch are never the same, two strata
        seldom alike: a bias of 1/(N-1), or of order s/N.
        """
        n, b, s = self.graph.n_links, self.config.batch_size, self.stratum_size
        bias = s / n if s > 1 else 1 / max(n - 1, 1)
        nominal = Nominal(b, b // s, b * (b - s) // s)
        if self.config.strata == "user":
            nominal = Nominal(b // s, b, b * (b - s))
        return super().claims()._replace(nominal=nominal, shuffled_bias=bias)


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

    info = SamplerInfo(
        in_paper=True,
        uses=("stratum_size", "strata", "mask"),
        families=FAMILIES,
        shares_items=True,
        least_strata=2,
        # The paper prints b(b-1)/s negative links; these are without those of a link's own stratum.
        symbols=("b(b-s)/s", "b", "b/s", "b^2/s", "matrix"),
        by_user={"symbols": ("b(b-s)", "b/s", "b", "b^2", "matrix")},
    )
    stratified = True


class NegativeSharingSampler(SharingSampler):
    """Negative Sharing (KDD 2017, algorithm 4): b positive links, each one's negatives the items of
    the others.

    The case in which every stratum is one link: weight_ij = rho_j m_ij (c_j - c_ij) / (b^2 - b).
    Positive links shuffled (or uniform with replacement). b user slots; at most b item slots, as
    equal items are merged.
    """

    info = SamplerInfo(
        in_paper=True,
        uses=("mask",),
        families=FAMILIES,
        shares_items=True,
        least_strata=2,
        symbols=("b(b-1)", "b", "b", "b^2", "matrix"),
    )


class MixedSharingSampler(SharingSampler):
    """Mixed Negative Sampling (Yang et al., WWW 2020 companion): Negative Sharing and k' items
    drawn uniformly.

    The k' items are drawn with replacement from all items in use and met by every positive link. A
    row's negatives are then b - 1 draws from P_d and k' uniform ones, weighted by the balance
    heuristic for a fixed number of each (Veach and Guibas, SIGGRAPH 1995)::

        weight_ij = P_n(j) m_ij (c_j - c_ij) / (b ((b - 1) P_d(j) + k' uniform(j)))

    Unbiased with replacement. Linked pairs get weight 0 under ``mask``. b user slots, at most
    b + k' item slots, as equal items are merged. Cost per link: O(V + degree).
    """

    info = SamplerInfo(
        uses=("uniform_items", "mask"),
        families=FAMILIES,
        shares_items=True,
        symbols=("b(b-1+k')", "b", "b+k'", "b(b+k')", "matrix"),
    )

    def draw(self, start: int, count: int) -> list[Draw]:
        """See :meth:`Sampler.draw`; each batch has a stream of its own for its uniform items."""
        in_use, size = self.graph.items_in_use, (1, self.config.uniform_items)
        draws = []
        for number, draw in enumerate(super().draw(start, count), start):
            rng = self.streams.generator("uniform-items", number)
            draws.append(draw._replace(items=in_use[rng.integers(len(in_use), size=size)]))
        return draws

    def claims(self) -> Claims:
        """See :meth:`Sampler.claims`."""
        b, extra = self.config.batch_size, self.config.uniform_items
        nominal = Nominal(b, b + extra, b * (b - 1 + extra))
        return super().claims()._replace(nominal=nominal, drawn_items=self._uniform)

    @property
    def _uniform(self) -> Float64:
        return (self.graph.item_degrees > 0) / len(self.graph.items_in_use)

    @cached_property
    def rho(self) -> Float64:
        """See :attr:`Sampler.rho`; here over the sum of a row's distributions."""
        b, extra = self.config.batch_size, self.config.uniform_items
        return self.importance((b - 1) * self.noise.data + extra * self._uniform)

    def _pair_importance(self, items: Int32) -> Float64:
        return self.rho[items] / self.config.batch_size
