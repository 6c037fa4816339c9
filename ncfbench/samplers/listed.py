"""Samplers whose negative links are listed one by one: IID, Negative Sampling, Stratified Sampling (by items)."""

from __future__ import annotations

import numpy as np

from ncfbench.batch import Batch, Listed, padded
from ncfbench.samplers.protocol import Draw, Int32, Sampler


class IidSampler(Sampler):
    """IID Sampling (KDD 2017, section 3.2): positive and negative links are independent of each other.

    Positive links: shuffled (or uniform with replacement). Negative links: user ~ P_d(u), item ~ P_n, with replacement;
    one that is a training link gets weight 0 under ``mask``. Weight m / (b k). b (1+k) user and item slots, where
    ``unique_items`` merges equal items. Cost per link: O(1 + k log degree).
    """

    draws_users = True
    draws_items = True

    def assemble(self, draw: Draw, capacity: int = 0) -> Batch:
        """See :meth:`Sampler.assemble`."""
        b, k = draw.items.shape
        users = np.concatenate([self.graph.link_user[draw.links], draw.users.reshape(-1)])
        return self._with_items(draw, users, np.arange(b, b + b * k, dtype=np.int32).reshape(b, k), capacity)

    def _with_items(self, draw: Draw, users: Int32, negative_user: Int32, capacity: int) -> Batch:
        """The batch whose negative links join ``users[negative_user]``, int32[b, k], with the drawn items."""
        b, k = draw.items.shape
        ids = np.concatenate([self.graph.link_item[draw.links], draw.items.reshape(-1)])
        if self.config.unique_items:
            items, slots = self._distinct(ids)
        else:
            items, slots = ids, np.arange(len(ids), dtype=np.int32)
        weight = np.full((b, k), 1 / (b * k), dtype=self.weight_dtype)
        if self.config.mask:
            weight[self.graph.linked(users[negative_user], draw.items)] = 0
        return Batch(
            users=users,
            items=padded(items, max(capacity, len(items))),
            pos_user=np.arange(b, dtype=np.int32),
            pos_item=slots[:b],
            negatives=Listed(user=negative_user, item=slots[b:].reshape(b, k), weight=weight),
            n_items=np.int32(len(items)),
        )


class NegativeSampler(IidSampler):
    """Negative Sampling (KDD 2017, algorithm 2): k items ~ P_n for the user of each positive link.

    Positive links: shuffled (or uniform with replacement). Negative items: with replacement; one that the user is linked
    with gets weight 0 under ``mask``. Weight m / (b k). b user slots, b (1+k) item slots, where ``unique_items`` merges
    equal items. Cost per link: O(1 + k log degree).
    """

    draws_users = False

    def assemble(self, draw: Draw, capacity: int = 0) -> Batch:
        """See :meth:`Sampler.assemble`."""
        b, k = draw.items.shape
        own = np.repeat(np.arange(b, dtype=np.int32), k).reshape(b, k)
        return self._with_items(draw, self.graph.link_user[draw.links], own, capacity)


class StratifiedSampler(Sampler):
    """Stratified Sampling by items (KDD 2017, algorithm 3): s users of an item, and k users ~ P_d(u) for each of them.

    Strata: segments of s of the item-ordered links, shuffled (or an item ~ P_d and s of its users, with replacement).
    Negative users: with replacement; one that the item is linked with gets weight 0 under ``mask``. Weight m rho(item) /
    (b k), as the item of a positive link comes from P_d and not from P_n. b (1+k) user slots, about b/s item slots.
    Cost per link: O(1 + k log degree).
    """

    stratified = True
    draws_users = True

    def assemble(self, draw: Draw, capacity: int = 0) -> Batch:
        """See :meth:`Sampler.assemble`."""
        graph = self.graph
        b, k = draw.users.shape
        pos_user, pos_item = graph.link_user[draw.links], graph.link_item[draw.links]
        distinct, slots = self._distinct(pos_item)
        weight = np.repeat(self.noise.ratio[pos_item] / (b * k), k).reshape(b, k).astype(self.weight_dtype)
        if self.config.mask:
            weight[graph.linked(draw.users, pos_item[:, None])] = 0
        return Batch(
            users=np.concatenate([pos_user, draw.users.reshape(-1)]),
            items=padded(distinct, max(capacity, len(distinct))),
            pos_user=np.arange(b, dtype=np.int32),
            pos_item=slots,
            negatives=Listed(
                user=np.arange(b, b + b * k, dtype=np.int32).reshape(b, k),
                item=np.repeat(slots, k).reshape(b, k),
                weight=weight,
            ),
            n_items=np.int32(len(distinct)),
        )
