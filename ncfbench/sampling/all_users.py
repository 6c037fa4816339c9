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

import numpy as np
from numpy.typing import NDArray

from ncfbench.errors import UsageError
from ncfbench.rng import Streams
from ncfbench.sampling.base import PILOT_SEED, Draw, Int32, Sampler
from ncfbench.sampling.batch import Batch, EveryUser, MetUsers, padded, rounded_up, with_pair_slots

PAIR_MULTIPLE = 256
"""Slots for linked pairs come in multiples of this, so that few batches have a shape of their
own.
"""
PILOT_BATCHES = 64
"""Batches from which the number of slots for linked pairs is planned."""


class NegativeSharingAllUsersSampler(Sampler):
    """Negative Sharing with all users: b positive links, whose items meet every user.

    With M = ``negative_users``, users ~ P_d are drawn for each batch, with replacement and
    independent of its links, and a_u is 1/M for each. Positive links as in Negative Sharing,
    shuffled (or uniform with replacement). Linked pairs are left out under ``mask``. Weights: a_u
    for a user, c_j rho_j / b for an item; nothing of size U x V is made. One slot for each distinct
    item, U user slots (M + b with M drawn users). Cost per link: O(degree of the item), and on the
    device U (or M) scores an item.
    """

    merges_items = True
    required_capacity = Sampler._count_items
    shuffled_bias = 0.0  # an epoch holds each link once, and items meet users independent of them

    def _check(self) -> None:
        drawn, users = self.config.negative_users, self.graph.n_users
        if drawn >= users:
            raise UsageError(
                f"--negative-users {drawn} is not below the {users:,} users of the data set. Use"
                " --negative-users all."
            )

    def draw(self, start: int, count: int) -> list[Draw]:
        """See :meth:`Sampler.draw`; each batch has a stream of its own for the users drawn."""
        draws, n, size = super().draw(start, count), self.graph.n_links, self.config.negative_users
        if not size:
            return draws
        streams = (self.streams.generator("met-users", start + index) for index in range(count))
        users = (self.graph.link_user[rng.integers(n, size=(1, size))] for rng in streams)
        return [draw._replace(users=drawn) for draw, drawn in zip(draws, users, strict=True)]

    def assemble(self, draw: Draw, capacity: int = 0) -> Batch:
        """See :meth:`Sampler.assemble`."""
        pos_user = self.graph.link_user[draw.links]
        items, slot = self._merged(self._slot_items(draw))
        size = max(capacity, len(items))
        item_weight = np.zeros(size, self.weight_dtype)
        item_weight[: len(items)] = np.bincount(slot) * (self.rho[items] / len(draw.links))
        made: type[MetUsers] = EveryUser
        users, user_weight = self._every_user
        if self.config.negative_users:
            made, m = MetUsers, draw.users.size
            users = np.concatenate([draw.users[0], pos_user])
            pos_user = np.arange(m, len(users), dtype=np.int32)
            user_weight = np.full(m, 1 / m, self.weight_dtype)
        pairs = self._linked_pairs(draw, items)
        batch = Batch(
            users=users,
            items=padded(items, size),
            pos_user=pos_user,
            pos_item=slot,
            negatives=made(user_weight, item_weight, *pairs),
            n_items=np.int32(len(items)),
        )
        # More pairs than were planned get more slots.
        slots = max(self.pair_slots, rounded_up(len(pairs[0]), PAIR_MULTIPLE))
        return with_pair_slots(batch, slots)

    @cached_property
    def pair_slots(self) -> int:
        """Slots for linked pairs: the most of a pilot's batches, and a quarter more.

        They depend on the graph and the settings only, as the item slots do, so that all seeds do
        the same work.
        """
        pilot = type(self)(self.graph, self.config, Streams(PILOT_SEED))
        most = max(
            len(self._linked_pairs(draw, self._merged(self._slot_items(draw))[0])[0])
            for draw in pilot.draws(0, PILOT_BATCHES)
        )
        return rounded_up(most + most // 4, PAIR_MULTIPLE)

    def _linked_pairs(self, draw: Draw, items: Int32) -> tuple[NDArray[np.integer], ...]:
        """Return the linked pairs of met users and distinct items, by position; none unmasked."""
        if not self.config.mask:
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        if self.config.negative_users:
            return self.graph.linked_block(draw.users[0], items, self.tables)
        return self.graph.users_of(items)

    @cached_property
    def _every_user(self) -> tuple[Int32, NDArray[np.floating]]:
        shares = self.graph.user_degrees / self.graph.n_links
        return np.arange(self.graph.n_users, dtype=np.int32), shares.astype(self.weight_dtype)


class StratifiedAllUsersSampler(NegativeSharingAllUsersSampler):
    """Stratified Sampling with all users: s positive links an item (or a user), whose items meet
    every user.

    Strata as in Stratified Sampling, by items or by users; all else as in
    :class:`NegativeSharingAllUsersSampler`. About b/s item slots; by users b.
    """

    stratified = True
