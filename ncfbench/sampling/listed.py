"""Samplers whose negative links are listed one by one: IID, Negative Sampling, Stratified
Sampling.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ncfbench.catalog import FAMILIES, SamplerInfo
from ncfbench.config import RunConfig
from ncfbench.data.graph import BipartiteGraph
from ncfbench.rng import Streams
from ncfbench.sampling.base import Claims, Draw, Int32, Nominal, Sampler
from ncfbench.sampling.batch import Batch, Listed, padded


class ListedSampler(Sampler):
    """Base of the samplers whose negative links are drawn one by one.

    A negative link joins a drawn user, or else the positive link's, with a drawn item, or else the
    positive link's.
    """

    def claims(self) -> Claims:
        """See :meth:`Sampler.claims`. A drawn user or item counts as often as it is drawn."""
        b, k = self.config.batch_size, self.config.negatives
        users, items = (
            b * (1 + k) if is_drawn else b // self.stratum_size
            for is_drawn in (self.draws_users, self.draws_items)
        )
        # An epoch holds each link once, and negative links are drawn all the same: no bias.
        return super().claims()._replace(nominal=Nominal(users, items, b * k), shuffled_bias=0.0)

    def assemble(self, draw: Draw, capacity: int = 0) -> Batch:
        """See :meth:`Sampler.assemble`."""
        users, pos_user, negative_user = self._user_slots(draw)
        b, k = negative_user.shape
        ids = self._slot_items(draw)
        items, slots = self.tables.items.distinct(ids)
        pos_item = slots[:b]
        if self.draws_items:
            negative_item, negative_id = slots[b:].reshape(b, k), ids[b:].reshape(b, k)
        else:
            negative_item, negative_id = np.repeat(pos_item, k).reshape(b, k), ids[:, None]
        weight = self._link_weights(negative_id, (b, k))
        if self.config.mask:
            weight[self.graph.linked(users[negative_user], negative_id)] = 0
        return Batch(
            users=users,
            items=padded(items, max(len(items), capacity)),
            pos_user=pos_user,
            pos_item=pos_item,
            negatives=Listed(user=negative_user, item=negative_item, weight=weight),
            n_items=np.int32(len(items)),
        )

    def _user_slots(self, draw: Draw) -> tuple[Int32, Int32, Int32]:
        """Return the user ids, and the slots of the positive and of the negative links' users."""
        b, k = len(draw.links), max(draw.users.shape[1], draw.items.shape[1])
        users, slots = self.graph.link_user[draw.links], np.arange(b, dtype=np.int32)
        if self.draws_users:
            drawn_slots = np.arange(b, b * (1 + k), dtype=np.int32).reshape(b, k)
            return np.concatenate([users, draw.users.reshape(-1)]), slots, drawn_slots
        if self.stratified:
            users, inverse = np.unique(users, return_inverse=True)
            users, slots = padded(users, b), inverse.astype(np.int32)
        return users, slots, np.repeat(slots, k).reshape(b, k)

    def _link_weights(self, items: Int32, shape: tuple[int, int]) -> NDArray[np.floating]:
        """Return the weights of negative links, whose items are ``items``, [b, k] or [b, 1]."""
        if not self.draws_items:
            weight = self.rho[items] / math.prod(shape)
            return np.repeat(weight, shape[1], axis=1).astype(self.weight_dtype)
        weight = np.full(shape, 1 / math.prod(shape), dtype=self.weight_dtype)
        if self.measure is not self.noise.probability:
            weight *= self.rho[items].astype(self.weight_dtype)
        return weight


class IidSampler(ListedSampler):
    """IID Sampling (KDD 2017, section 3.2): positive and negative links are independent of each
    other.

    Positive links: shuffled (or uniform with replacement). Negative links: user ~ P_d(u), item ~
    P_n, with replacement; one that is a training link gets weight 0 under ``mask``. Weight m / (b
    k). b (1+k) user slots, at most as many item slots, as equal items are merged. Cost per link:
    O(1 + k log degree).
    """

    info = SamplerInfo(
        in_paper=True,
        uses=("negatives", "mask"),
        families=("pointwise",),
        symbols=("bk", "b(1+k)", "b(1+k)", "b(1+k)", "vectors"),
    )
    draws_users = True
    draws_items = True


class NegativeSampler(ListedSampler):
    """Negative Sampling (KDD 2017, algorithm 2): k items ~ P_n for the user of each positive link.

    Positive links: shuffled (or uniform with replacement). Negative items: with replacement; one
    that the user is linked with gets weight 0 under ``mask``. Weight m / (b k), and for a listwise
    loss m / (b k P_n(item)). b user slots, at most b (1+k) item slots, as equal items are merged.
    Cost per link: O(1 + k log degree).
    """

    info = SamplerInfo(
        in_paper=True,
        uses=("negatives", "mask"),
        families=FAMILIES,
        symbols=("bk", "b", "b(1+k)", "b(1+k)", "vectors"),
    )
    draws_items = True


class StratifiedSampler(ListedSampler):
    """Stratified Sampling (KDD 2017, algorithm 3): s links of an item (or of a user), and k
    negative links for each.

    By items: strata are segments of s of the item-ordered links, shuffled (or an item ~ P_d and s
    of its users, with replacement). k negative users ~ P_d(u) for each positive link, with
    replacement; one that the item is linked with gets weight 0 under ``mask``. Weight m rho(item) /
    (b k), as the item of a positive link comes from P_d and not from P_n. b (1+k) user slots, about
    b/s item slots.

    By users (``strata = "user"``): segments of the user-ordered links (or a user ~ P_d and s of its
    items). k negative items ~ P_n for each positive link and its user, with weight m / (b k), as in
    Negative Sampling. About b/s distinct users in b slots, each named once (the slots behind them
    are padding); at most b (1+k) item slots, as equal items are merged. Cost per link, both ways:
    O(1 + k log degree).
    """

    info = SamplerInfo(
        in_paper=True,
        uses=("stratum_size", "strata", "negatives", "mask"),
        families=("pointwise",),
        symbols=("bk", "b(1+k)", "b/s", "b(1+k)", "vectors"),
        by_user={
            "families": FAMILIES,
            "symbols": ("bk", "b/s", "b(1+k)", "b(1+k)", "vectors"),
        },
    )
    stratified = True

    def __init__(
        self, graph: BipartiteGraph, config: RunConfig, streams: Streams, **options: Any
    ) -> None:
        self.draws_items = config.strata == "user"
        self.draws_users = not self.draws_items
        super().__init__(graph, config, streams, **options)
