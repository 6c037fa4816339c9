"""Samplers whose negative links are listed one by one: IID, Negative Sampling, Stratified
Sampling.
"""

from __future__ import annotations

import math
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ncfbench.config import RunConfig
from ncfbench.data.graph import BipartiteGraph
from ncfbench.rng import Streams
from ncfbench.sampling.base import Draw, Float64, Int32, Sampler
from ncfbench.sampling.batch import Batch, Listed, padded
from ncfbench.sampling.claims import Claims
from ncfbench.sampling.mined import popular_unlinked, require_unlinked

MINED_GROWTH = 8
"""A batch of mined negatives with more items than any before it gets a further slot for each eight,
so that few batches have a shape of their own.
"""


class ListedSampler(Sampler):
    """Base of the samplers whose negative links are drawn one by one.

    A negative link joins a drawn user, or else the positive link's, with a drawn item, or else the
    positive link's.
    """

    def assemble(self, draw: Draw, capacity: int = 0) -> Batch:
        """See :meth:`Sampler.assemble`."""
        users, pos_user, negative_user = self.user_slots(draw)
        b, k = negative_user.shape
        ids = self.slot_items(draw)
        if self.merges_items:
            items, slots = self._distinct(ids)
        else:
            items, slots = ids, np.arange(len(ids), dtype=np.int32)
        pos_item = slots[:b]
        if self.draws_items:
            negative_item, negative_id = slots[b:].reshape(b, k), ids[b:].reshape(b, k)
        else:
            negative_item, negative_id = np.repeat(pos_item, k).reshape(b, k), ids[:, None]
        weight = self.link_weights(negative_id, (b, k))
        if self.config.mask:
            weight[self.graph.linked(users[negative_user], negative_id)] = 0
        return Batch(
            users=users,
            items=padded(items, self.item_slots(len(items), capacity)),
            pos_user=pos_user,
            pos_item=pos_item,
            negatives=Listed(user=negative_user, item=negative_item, weight=weight),
            n_items=np.int32(len(items)),
        )

    def required_capacity(self, draw: Draw) -> int:
        """See :meth:`Sampler.required_capacity`."""
        return self._count_items(draw)

    def user_slots(self, draw: Draw) -> tuple[Int32, Int32, Int32]:
        """Return the user ids, and the slots of the positive and of the negative links' users."""
        b = len(draw.links)
        users, own = self.graph.link_user[draw.links], np.arange(b, dtype=np.int32)
        if not self.draws_users:
            k = draw.items.shape[1]
            return users, own, np.repeat(own, k).reshape(b, k)
        drawn = draw.users.reshape(-1)
        slots = np.arange(b, b + len(drawn), dtype=np.int32).reshape(b, -1)
        return np.concatenate([users, drawn]), own, slots

    def link_weights(self, items: Int32, shape: tuple[int, int]) -> NDArray[np.floating]:
        """Return the weights of negative links with some items, before the mask."""
        weight = np.full(shape, 1 / math.prod(shape), dtype=self.weight_dtype)
        if self.measure is not self.noise.probability:
            weight *= self._importance_of_noise[items].astype(self.weight_dtype)
        return weight

    def item_slots(self, n_items: int, capacity: int) -> int:
        """Return the item slots of a batch."""
        return max(n_items, capacity)

    def claims(self) -> Claims:
        """See :meth:`Sampler.claims`: an epoch holds each link once, and negative links are drawn
        all the same.
        """
        return super().claims()._replace(shuffled_bias=0.0)

    @cached_property
    def _importance_of_noise(self) -> Float64:
        return self.importance(self.noise.probability)

    @cached_property
    def _importance_of_data(self) -> Float64:
        return self.importance(self.noise.data)


class IidSampler(ListedSampler):
    """IID Sampling (KDD 2017, section 3.2): positive and negative links are independent of each
    other.

    Positive links: shuffled (or uniform with replacement). Negative links: user ~ P_d(u), item ~
    P_n, with replacement; one that is a training link gets weight 0 under ``mask``. Weight m / (b
    k). b (1+k) user and item slots, where ``unique_items`` merges equal items. Cost per link: O(1 +
    k log degree).
    """

    draws_users = True
    draws_items = True


class NegativeSampler(ListedSampler):
    """Negative Sampling (KDD 2017, algorithm 2): k items ~ P_n for the user of each positive link.

    Positive links: shuffled (or uniform with replacement). Negative items: with replacement; one
    that the user is linked with gets weight 0 under ``mask``. Weight m / (b k), and for a listwise
    loss m / (b k P_n(item)). b user slots, b (1+k) item slots, where ``unique_items`` merges equal
    items. Cost per link: O(1 + k log degree).

    Under ``mined`` = M the k items are drawn uniformly from :attr:`hard_items`, the M items without
    a link that had the user's highest scores when they were mined. The weight is 1 / (b k), and for
    a listwise loss M / (b k). P_n is not read.
    """

    draws_items = True

    def __init__(
        self, graph: BipartiteGraph, config: RunConfig, streams: Streams, **options: Any
    ) -> None:
        self.is_mined = config.mines
        super().__init__(graph, config, streams, **options)
        self.hard_items: Int32 | None = None
        """int32[n_users, M]: what :class:`ncfbench.training.carry.MinedItems` found last. Before
        that the most popular items stand in, so that batches can be looked at without a model.
        """
        if self.is_mined:
            require_unlinked(graph, config.mined, config.mine_skip)

    def slot_items(self, draw: Draw) -> Int32:
        """See :meth:`Sampler.slot_items`; under ``mined`` the drawn items are ranks."""
        if self.is_mined:
            table = self._stand_in if self.hard_items is None else self.hard_items
            users = self.graph.link_user[draw.links]
            draw = draw._replace(items=table[users[:, None], draw.items])
        return super().slot_items(draw)

    def item_slots(self, n_items: int, capacity: int) -> int:
        """See :meth:`ListedSampler.item_slots`; more where a batch of mined items needs more than
        any before it.
        """
        if self.hard_items is None or not 0 < capacity < n_items:
            return super().item_slots(n_items, capacity)
        most = self.config.batch_size * (1 + self.config.negatives)
        return min(n_items + n_items // MINED_GROWTH, most)

    def claims(self) -> Claims:
        """See :meth:`Sampler.claims`; under ``mined`` ranks are drawn."""
        if not self.is_mined:
            return super().claims()
        found = super().claims()._replace(drawn_items=None, weighs_biased=True)
        return found.with_bias(
            f"negatives come from the {self.config.mined} items of a user's highest scores, so what"
            " is estimated has another negative term than the objective"
        )

    def _draw_nodes(self, role: str, rng: np.random.Generator, size: int) -> Int32:
        if self.is_mined:
            return rng.integers(self.config.mined, size=size, dtype=np.int32)
        return super()._draw_nodes(role, rng, size)

    @cached_property
    def _stand_in(self) -> Int32:
        return popular_unlinked(self.graph, self.config.mined, self.config.mine_skip)

    @cached_property
    def _importance_of_noise(self) -> Float64:
        if self.is_mined:
            return np.full(self.graph.n_items, float(self.config.mined))
        return super()._importance_of_noise


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
    are padding); b (1+k) item slots, where ``unique_items`` merges equal items. Cost per link, both
    ways: O(1 + k log degree).
    """

    stratified = True

    def __init__(
        self, graph: BipartiteGraph, config: RunConfig, streams: Streams, **options: Any
    ) -> None:
        super().__init__(graph, config, streams, **options)
        self.by_user = config.strata == "user"
        self.draws_items, self.draws_users = self.by_user, not self.by_user

    def user_slots(self, draw: Draw) -> tuple[Int32, Int32, Int32]:
        """See :meth:`ListedSampler.user_slots`; with strata by user each user is named once."""
        if not self.by_user:
            return super().user_slots(draw)
        users = self.graph.link_user[draw.links]
        distinct, inverse = np.unique(users, return_inverse=True)
        slots = inverse.astype(np.int32)
        negative_user = np.repeat(slots[:, None], draw.items.shape[1], axis=1)
        return padded(distinct, len(users)), slots, negative_user

    def link_weights(self, items: Int32, shape: tuple[int, int]) -> NDArray[np.floating]:
        """See :meth:`ListedSampler.link_weights`; with strata by item, items come from P_d."""
        if self.by_user:
            return super().link_weights(items, shape)
        weight = self._importance_of_data[items] / math.prod(shape)
        return np.repeat(weight, shape[1], axis=1).astype(self.weight_dtype)
