"""Samplers whose negatives are the batch's other items: Negative Sharing, Stratified Sampling with Negative Sharing."""

from __future__ import annotations

import numpy as np

from ncfbench.batch import Batch, Shared, padded
from ncfbench.samplers.protocol import Draw, Sampler


class StratifiedSharingSampler(Sampler):
    """Stratified Sampling with Negative Sharing (KDD 2017, algorithm 5): s users of an item, no negative drawn.

    Strata as in Stratified Sampling. Every positive link meets the items of all other strata. With c_j the batch's
    positive links on item j, c_ij those of them in row i's own stratum, and n_t the size of stratum t::

        weight_ij = rho_j m_ij (c_j - c_ij) / (b^2 - sum_t n_t^2)

    With replacement, two strata are independent, so each of the b^2 - sum n_t^2 pairs of a link and an item of another
    stratum is a draw from P_d(u, v) x P_d(v'): unbiased. An item that came with four links counts four times. Linked
    pairs get weight 0 under ``mask``. b user slots, about b/s item slots. Cost per link: O(V + degree).
    """

    stratified = True

    def assemble(self, draw: Draw, capacity: int = 0) -> Batch:
        """See :meth:`Sampler.assemble`."""
        graph, s = self.graph, self.stratum_size
        b = len(draw.links)
        pos_user, pos_item = graph.link_user[draw.links], graph.link_item[draw.links]
        distinct, slots = self._distinct(pos_item)
        merge = self.stratified or self.config.unique_items
        if merge:
            items, pos_slot = distinct, slots
        else:
            items, pos_slot = pos_item, np.arange(b, dtype=np.int32)
        n_items = len(items)
        size = max(capacity, n_items)

        weight = np.zeros((b, size), dtype=self.weight_dtype)
        real = weight[:, :n_items]
        real[:] = np.bincount(pos_slot, minlength=n_items)
        rows = np.arange(b)
        # Counts stay small whole numbers until the end, so that an item of one stratum only cancels exactly.
        for place in range(s):
            real[rows, np.repeat(pos_slot.reshape(-1, s)[:, place], s)] -= 1
        if self.config.mask:
            row, column = graph.linked_block(pos_user, distinct)
            if merge:
                real[row, column] = 0
            else:
                linked = np.zeros((b, len(distinct)), dtype=bool)
                linked[row, column] = True
                real[linked[:, slots]] = 0
        real *= (self.noise.ratio[items] / (b * b - b * s)).astype(self.weight_dtype)
        return Batch(
            users=pos_user,
            items=padded(items, size),
            pos_user=rows.astype(np.int32),
            pos_item=pos_slot,
            negatives=Shared(weight),
            n_items=np.int32(n_items),
        )


class NegativeSharingSampler(StratifiedSharingSampler):
    """Negative Sharing (KDD 2017, algorithm 4): b positive links, each one's negatives the items of the others.

    The case in which every stratum is one link: weight_ij = rho_j m_ij (c_j - c_ij) / (b^2 - b). Positive links shuffled
    (or uniform with replacement). b user slots; b item slots, where ``unique_items`` merges equal items.
    """

    stratified = False
