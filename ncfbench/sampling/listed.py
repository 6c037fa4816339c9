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
from ncfbench.errors import UsageError
from ncfbench.rng import Streams
from ncfbench.sampling.base import Draw, Float64, Int32, Sampler, WarmDraw
from ncfbench.sampling.batch import Batch, Listed, padded
from ncfbench.sampling.claims import Claims, below

PICK_BITS = 31
"""Bits of the random number that picks an explicit negative: among E of them, one is more probable
than another by at most E / 2^31.
"""
EXPLICIT_OBJECTIVE = (
    "the objective in which P_n of a user with explicit negatives is uniform over these; a listwise"
    " loss sums over these alone"
)
MINED_GROWTH = 8
"""A batch of mined negatives with more items than any before it gets a further slot for each eight,
so that few batches have a shape of their own.
"""


class ListedSampler(Sampler):
    """Base of the samplers whose negative links are drawn one by one.

    A negative link joins a drawn user, or else the positive link's, with a drawn item, or else the
    positive link's.

    Under ``explicit_negatives`` the item of a user with E explicit negatives is one of these, each
    with probability 1 / E, with replacement; that of another user comes from P_n. None of them is a
    link. The estimate is unbiased for the objective in which P_n of a user with explicit negatives
    is uniform over these (a listwise loss sums over these only), shuffled or not. Weight 1 / (b k),
    and for a listwise loss E / (b k).
    """

    required_capacity = Sampler._count_items
    shuffled_bias = 0.0  # an epoch holds each link once, and negative links are drawn all the same

    @cached_property
    def is_explicit(self) -> bool:
        """True if users who have explicit negatives get theirs from these."""
        return self.config.draws_explicit

    @cached_property
    def n_explicit(self) -> NDArray[np.int64]:
        """int64[n_users]: the explicit negatives of each user; zeros where they are not drawn."""
        offsets = self.graph.negative_offsets
        if not self.is_explicit or offsets is None:
            return np.zeros(self.graph.n_users, np.int64)
        return np.diff(offsets)

    def _check(self) -> None:
        if self.is_explicit and not self.draws_items:
            raise UsageError(
                f"--explicit-negatives are items that a user was shown, and {self.config.sampler}"
                " draws users for the item of a positive link. Use --set strata=user, or"
                " --no-explicit-negatives."
            )
        if self.is_explicit and not self.n_explicit[self.graph.link_user].any():
            raise UsageError(
                "--explicit-negatives: no user with training links has an explicit negative in"
                " these data. Prepare them with ncfbench prepare custom --negative-column NAME,"
                " or use --no-explicit-negatives."
            )

    def draw(self, start: int, count: int) -> list[Draw]:
        """See :meth:`Sampler.draw`."""
        draws = super().draw(start, count)
        if not self.is_explicit:
            return draws
        picks = self._draw_negatives("explicit-negatives", start, count)
        return list(map(self._with_explicit, draws, picks.reshape(count, *draws[0].items.shape)))

    def _with_explicit(self, draw: Draw, picks_bk: Int32) -> Draw:
        """Return the draw with explicit negatives for the users who have some.

        Args:
            picks_bk: int32[b, k], uniform in 0 .. 2^31 - 1.
        """
        items, offsets = self.graph.negative_items, self.graph.negative_offsets
        assert items is not None
        assert offsets is not None
        users_bk = self._negative_users(draw)
        count_bk = self.n_explicit[users_bk]
        rank_bk = (picks_bk.astype(np.int64) * count_bk) >> PICK_BITS
        place_bk = np.minimum(offsets[users_bk] + rank_bk, len(items) - 1)
        return draw._replace(items=np.where(count_bk > 0, items[place_bk], draw.items))

    def _negative_users(self, draw: Draw) -> Int32:
        """Return int32[b, k]: the user of each negative link."""
        if self.draws_users:
            return draw.users
        return np.broadcast_to(self.graph.link_user[draw.links][:, None], draw.items.shape)

    def _draw_nodes(self, role: str, rng: np.random.Generator, size: int) -> Int32:
        if role == "explicit-negatives":
            return rng.integers(2**PICK_BITS, size=size, dtype=np.int32)
        return super()._draw_nodes(role, rng, size)

    def claims(self) -> Claims:
        """See :meth:`Sampler.claims`; explicit negatives depend on the user."""
        claims = super().claims()
        if not self.is_explicit:
            return claims
        return claims._replace(drawn_items=None, objective=EXPLICIT_OBJECTIVE)

    def assemble(self, draw: Draw, capacity: int = 0) -> Batch:
        """See :meth:`Sampler.assemble`."""
        users, pos_user, negative_user = self._user_slots(draw)
        b, k = negative_user.shape
        ids = self._slot_items(draw)
        items, slots = self._merged(ids)
        pos_item = slots[:b]
        if self.draws_items:
            negative_item, negative_id = slots[b:].reshape(b, k), ids[b:].reshape(b, k)
        else:
            negative_item, negative_id = np.repeat(pos_item, k).reshape(b, k), ids[:, None]
        weight = self._link_weights(negative_id, (b, k))
        if self.is_explicit:
            self._explicit_weights(weight, users[negative_user])
        if self.config.mask:
            weight[self.graph.linked(users[negative_user], negative_id)] = 0
        return Batch(
            users=users,
            items=padded(items, self._item_slots(len(items), capacity)),
            pos_user=pos_user,
            pos_item=pos_item,
            negatives=Listed(user=negative_user, item=negative_item, weight=weight),
            n_items=np.int32(len(items)),
        )

    def _user_slots(self, draw: Draw) -> tuple[Int32, Int32, Int32]:
        """Return the user ids, and the slots of the positive and of the negative links' users."""
        b = len(draw.links)
        users, own = self.graph.link_user[draw.links], np.arange(b, dtype=np.int32)
        if not self.draws_users:
            return users, own, np.repeat(own, draw.items.shape[1]).reshape(b, -1)
        drawn = draw.users.reshape(-1)
        slots = np.arange(b, b + len(drawn), dtype=np.int32).reshape(b, -1)
        return np.concatenate([users, drawn]), own, slots

    def _link_weights(self, items: Int32, shape: tuple[int, int]) -> NDArray[np.floating]:
        weight = np.full(shape, 1 / math.prod(shape), dtype=self.weight_dtype)
        if self.measure is not self.noise.probability:
            weight *= self.rho[items].astype(self.weight_dtype)
        return weight

    def _explicit_weights(self, weight_bk: NDArray[np.floating], users_bk: Int32) -> None:
        """Put the importance of explicit negatives in place of that of items from P_n."""
        count_bk = self.n_explicit[users_bk]
        importance = count_bk if self.config.family == "listwise" else np.ones_like(count_bk)
        np.copyto(weight_bk, importance / weight_bk.size, where=count_bk > 0, casting="same_kind")

    def _item_slots(self, n_items: int, capacity: int) -> int:
        return max(n_items, capacity)


class IidSampler(ListedSampler):
    """IID Sampling (KDD 2017, section 3.2): positive and negative links are independent of each
    other.

    Positive links: shuffled (or uniform with replacement). Negative links: user ~ P_d(u), item ~
    P_n, with replacement; one that is a training link gets weight 0 under ``mask``. Weight m / (b
    k). b (1+k) user slots, at most as many item slots, as equal items are merged. Cost per link:
    O(1 + k log degree).
    """

    draws_users = True
    draws_items = True


class NegativeSampler(ListedSampler):
    """Negative Sampling (KDD 2017, algorithm 2): k items ~ P_n for the user of each positive link.

    Positive links: shuffled (or uniform with replacement). Negative items: with replacement; one
    that the user is linked with gets weight 0 under ``mask``. Weight m / (b k), and for a listwise
    loss m / (b k P_n(item)). b user slots, at most b (1+k) item slots, as equal items are merged.
    Cost per link: O(1 + k log degree).

    Under ``mined`` = M the k items are drawn uniformly from :attr:`hard_items`, the M items without
    a link that had the user's highest scores when they were mined. The weight is 1 / (b k), and for
    a listwise loss M / (b k). P_n is not read. Before the end of a warm start batches are those
    without ``mined``.
    """

    draws_items = True
    required_capacity = Sampler._count_items
    mined_slots = 0
    """Item slots of mined batches after a warm start, whose own batches have more items."""
    hard_items: Int32 | None = None
    """int32[n_users, M]: what :class:`ncfbench.training.carry.MinedItems` found last. Before that
    the most popular items stand in, so that batches can be looked at without a model.
    """

    @cached_property
    def is_mined(self) -> bool:
        """True if the drawn items are ranks in :attr:`hard_items`."""
        return self.config.mines

    def _check(self) -> None:
        super()._check()
        if not self.is_mined:
            return
        count, skip = self.config.mined, self.config.mine_skip
        graph, in_use = self.graph, len(self.graph.items_in_use)
        user = int(np.argmax(graph.user_degrees))
        able = in_use - int(graph.user_degrees[user])
        if count + skip <= able:
            return
        passed = f" after {skip} that are passed over" if skip else ""
        use = f"--mined {able - skip} or less"
        if able <= skip:
            use = f"--mine-skip 0 --mined {able} or less" if able else "--mine-skip 0 --mined off"
        raise UsageError(
            f"mined = {count}{passed}: {graph.name('user', user)} has no link with only {able:,} of"
            f" the {in_use:,} items in use. Use {use}."
        )

    @cached_property
    def warm(self) -> NegativeSampler:
        """The sampler of the warm start, which mines nothing."""
        return self._before(NegativeSampler)

    def draw(self, start: int, count: int) -> list[Draw]:
        """See :meth:`Sampler.draw`; a warm start's are a :class:`WarmDraw`."""
        warm = min(max(self.config.first_hard - start, 0), count)
        if not warm:
            return super().draw(start, count)
        draws: list[Draw] = [WarmDraw(*draw) for draw in self.warm.draw(start, warm)]
        return draws + super().draw(start + warm, count - warm) if warm < count else draws

    def assemble(self, draw: Draw, capacity: int = 0) -> Batch:
        """See :meth:`Sampler.assemble`."""
        if isinstance(draw, WarmDraw):
            return self.warm.assemble(Draw(*draw), capacity)
        if not self.config.first_hard:
            return super().assemble(draw, capacity)
        batch = super().assemble(draw, self.mined_slots)
        self.mined_slots = len(batch.items)
        return batch

    def _slot_items(self, draw: Draw) -> Int32:
        if self.is_mined and not isinstance(draw, WarmDraw):
            table = self.popular_items if self.hard_items is None else self.hard_items
            users = self.graph.link_user[draw.links]
            draw = draw._replace(items=table[users[:, None], draw.items])
        return super()._slot_items(draw)

    def _item_slots(self, n_items: int, capacity: int) -> int:
        if self.hard_items is None or not 0 < capacity < n_items:
            return super()._item_slots(n_items, capacity)
        most = self.config.batch_size * (1 + self.config.negatives)
        return min(n_items + n_items // MINED_GROWTH, most)

    def claims(self) -> Claims:
        """See :meth:`Sampler.claims`; under ``mined`` ranks are drawn."""
        if not self.is_mined:
            return super().claims()
        claims = super().claims()._replace(drawn_items=None, weighs_biased=True)
        return claims.with_bias(
            f"negatives come from the {self.config.mined} items of a user's highest"
            f" scores{below(self.config)}, so what is estimated has another negative term than the"
            " objective"
        )

    def _draw_nodes(self, role: str, rng: np.random.Generator, size: int) -> Int32:
        if self.is_mined and role == "negative-items":
            return rng.integers(self.config.mined, size=size, dtype=np.int32)
        return super()._draw_nodes(role, rng, size)

    @cached_property
    def popular_items(self) -> Int32:
        """int32[n_users, M]: each user's most popular items without a link, of which the first
        ``mine_skip`` are left out.
        """
        graph, skip = self.graph, self.config.mine_skip
        stop = skip + self.config.mined
        ranked = np.argsort(-graph.item_degrees, kind="stable")[: len(graph.items_in_use)]
        # So many of them hold enough without a link, whatever the user.
        ranked = ranked[: stop + int(graph.user_degrees.max())].astype(np.int32)
        found = np.empty((graph.n_users, self.config.mined), np.int32)
        for user in range(graph.n_users):
            own = graph.link_item[graph.user_offsets[user] : graph.user_offsets[user + 1]]
            found[user] = ranked[~np.isin(ranked, own)][skip:stop]
        return found

    @cached_property
    def rho(self) -> Float64:
        """See :attr:`Sampler.rho`; a mined item is one of M."""
        if self.is_mined:
            return np.full(self.graph.n_items, float(self.config.mined))
        return super().rho


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

    stratified = True

    def __init__(
        self, graph: BipartiteGraph, config: RunConfig, streams: Streams, **options: Any
    ) -> None:
        self.draws_items = config.strata == "user"
        self.draws_users = not self.draws_items
        super().__init__(graph, config, streams, **options)

    def _user_slots(self, draw: Draw) -> tuple[Int32, Int32, Int32]:
        if self.draws_users:
            return super()._user_slots(draw)
        k = draw.items.shape[1]
        users, inverse = np.unique(self.graph.link_user[draw.links], return_inverse=True)
        slots = inverse.astype(np.int32)
        return padded(users, len(slots)), slots, np.repeat(slots, k).reshape(-1, k)

    def _link_weights(self, items: Int32, shape: tuple[int, int]) -> NDArray[np.floating]:
        if self.draws_items:
            return super()._link_weights(items, shape)
        weight = self.rho[items] / math.prod(shape)
        return np.repeat(weight, shape[1], axis=1).astype(self.weight_dtype)
