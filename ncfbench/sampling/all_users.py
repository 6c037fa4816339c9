"""Samplers whose items meet all users: Negative Sharing and its stratified form, with the
expectation over users exact in place of the batch's b.

The negative term is a mean over users ~ P_d and items ~ P_n, and f costs next to nothing beside g.
So each item here meets every user, or M users drawn for the batch. With c_j of the b positive links
on item j and a_u = P_d(u)::

    sum_u sum_j a_u (c_j / b) rho_j m_uj l-(u, j)         rho_j = P_n(j) / P_d(j)

The items come from P_d, so the mean over batches is the objective's negative term, shuffled or not.
It is the conditional expectation, given the items, of the sum with users drawn from P_d: its
variance is never larger (Rao-Blackwell).
"""

from __future__ import annotations

from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ncfbench.config import RunConfig
from ncfbench.data.graph import BipartiteGraph
from ncfbench.errors import UsageError
from ncfbench.rng import Streams
from ncfbench.sampling.base import PILOT_SEED, Draw, Float64, Int32, Sampler
from ncfbench.sampling.batch import Batch, EveryUser, MetUsers, padded, rounded_up, with_pair_slots
from ncfbench.sampling.claims import Claims

Int: TypeAlias = NDArray[np.integer]
PAIR_MULTIPLE = 256
"""Slots for linked pairs come in multiples of this, so that few batches have a shape of their
own.
"""
PILOT_BATCHES = 64
"""Batches from which the number of slots for linked pairs is planned."""


class AllUsersSampler(Sampler):
    """Base of the samplers in which every item of a batch meets all users, or M drawn ones.

    With M, users ~ P_d are drawn for each batch, with replacement and independent of its links, and
    a_u is 1/M for each. Linked pairs are left out under ``mask``. Nothing of size U x V is made.
    Weights: a_u for a user, c_j rho_j / b for an item.
    """

    merges_items = True

    def __init__(
        self, graph: BipartiteGraph, config: RunConfig, streams: Streams, **options: Any
    ) -> None:
        super().__init__(graph, config, streams, **options)
        if config.negative_users >= graph.n_users:
            raise UsageError(
                f"--negative-users {config.negative_users} is not below the"
                f" {graph.n_users:,} users of the data set. Use --negative-users all."
            )

    def draw(self, start: int, count: int) -> list[Draw]:
        """See :meth:`Sampler.draw`; each batch has a stream of its own for the users drawn."""
        draws = super().draw(start, count)
        if not self.config.negative_users:
            return draws
        return [draw._replace(users=self._met(number)) for number, draw in enumerate(draws, start)]

    def assemble(self, draw: Draw, capacity: int = 0) -> Batch:
        """See :meth:`Sampler.assemble`."""
        graph, drawn = self.graph, draw.users.reshape(-1)
        pos_user = graph.link_user[draw.links]
        items, slot = self._distinct(self.slot_items(draw))
        size = max(capacity, len(items))
        item_weight = np.zeros(size, self.weight_dtype)
        item_weight[: len(items)] = np.bincount(slot) * self.item_importance[items]
        made: type[MetUsers]
        if self.config.negative_users:
            made, users = MetUsers, np.concatenate([drawn, pos_user])
            own = np.arange(len(drawn), len(users), dtype=np.int32)
            user_weight = np.full(len(drawn), 1 / len(drawn), self.weight_dtype)
        else:
            made, users, own, user_weight = EveryUser, self._all_users, pos_user, self._user_shares
        user, item = self._linked_pairs(drawn, items)
        # More pairs than were planned get more slots.
        pairs = max(self.pair_slots, rounded_up(len(user), PAIR_MULTIPLE))
        batch = Batch(
            users=users,
            items=padded(items, size),
            pos_user=own,
            pos_item=slot,
            negatives=made(user_weight, item_weight, user, item),
            n_items=np.int32(len(items)),
        )
        return with_pair_slots(batch, pairs)

    def required_capacity(self, draw: Draw) -> int:
        """See :meth:`Sampler.required_capacity`."""
        return self._count_items(draw)

    def claims(self) -> Claims:
        """See :meth:`Sampler.claims`: an epoch holds each link once, and items do not depend on the
        users that they meet.
        """
        return super().claims()._replace(shuffled_bias=0.0)

    @cached_property
    def item_importance(self) -> Float64:
        """float64[I]: rho / b, the weight that a positive link gives its item."""
        return self.importance(self.noise.data) / self.config.batch_size

    @cached_property
    def pair_slots(self) -> int:
        """Slots for linked pairs: the most of a pilot's batches, and a quarter more.

        They depend on the graph and the settings only, as the item slots do, so that all seeds do
        the same work.
        """
        pilot = type(self)(self.graph, self.config, Streams(PILOT_SEED))
        most = max(pilot._count_pairs(draw) for draw in pilot.draws(0, PILOT_BATCHES))
        return rounded_up(most + most // 4, PAIR_MULTIPLE)

    def _count_pairs(self, draw: Draw) -> int:
        items, _ = self._distinct(self.slot_items(draw))
        if self.config.mask and not self.config.negative_users:
            return int(self.graph.item_degrees[items].sum())
        return len(self._linked_pairs(draw.users.reshape(-1), items)[0])

    def _linked_pairs(self, drawn: Int32, items: Int32) -> tuple[Int, Int]:
        """Return the linked pairs of met users and distinct items, by position; none unmasked."""
        if not self.config.mask:
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        if self.config.negative_users:
            return self.graph.linked_block(drawn, items, self.tables)
        return self.graph.users_of(items)

    @cached_property
    def _all_users(self) -> Int32:
        return np.arange(self.graph.n_users, dtype=np.int32)

    @cached_property
    def _user_shares(self) -> NDArray[np.floating]:
        return (self.graph.user_degrees / self.graph.n_links).astype(self.weight_dtype)

    def _met(self, number: int) -> Int32:
        rng = self.streams.generator("met-users", number)
        size = (1, self.config.negative_users)
        return self.graph.link_user[rng.integers(self.graph.n_links, size=size)]


class NegativeSharingAllUsersSampler(AllUsersSampler):
    """Negative Sharing with all users: b positive links, whose items meet every user.

    Positive links as in Negative Sharing, shuffled (or uniform with replacement); P_n, linked pairs
    and users as the base class says. One slot for each distinct item, U user slots (M + b with M
    drawn users). Cost per link: O(degree of the item), and on the device U (or M) scores an item.
    """


class StratifiedAllUsersSampler(AllUsersSampler):
    """Stratified Sampling with all users: s positive links an item (or a user), whose items meet
    every user.

    Strata as in Stratified Sampling, by items or by users; all else as in
    :class:`NegativeSharingAllUsersSampler`. About b/s item slots; by users b.
    """

    stratified = True
