"""Batches cut into equal shards, one for each device.

A cut batch is a batch again, whose arrays hold the shards one after the other. Shard p of N holds
the rows p b/N .. (p + 1) b/N - 1, the users that they name, and an equal share of the item slots.
With b = 2 positive links (user 7, item 30) and (user 9, item 31) that share their negatives, over
N = 2 devices::

    users    = [7 | 9]      pos_user = [0 | 0]       slot in the shard's own users
    items    = [30 | 31]    pos_item = [0 | 1]       slot in all items (vectors are gathered)
    negatives = Shared(weight=[[0 1/2] | [1/2 0]])         row: positive link, column: item slot
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ncfbench.errors import CheckFailedError
from ncfbench.sampling.base import BatchSource, Draw, Sampler
from ncfbench.sampling.batch import Batch, Shared, rounded_up

Int32 = NDArray[np.int32]


class ShardedSampler(BatchSource):
    """Adapts a sampler so that it yields one process's shards of its batches.

    Every process draws the whole batch, without communication, and makes the weights of shared
    negatives for its own rows only, where the sampler can.

    Args:
        own: the consecutive shards that this process holds; all by default.
    """

    def __init__(self, sampler: Sampler, n_shards: int, own: range | None = None) -> None:
        self.sampler, self.n_shards, self.own = sampler, n_shards, own or range(n_shards)

    def draws(self, start: int = 0, stop: int | None = None) -> Iterator[Draw]:
        """See :meth:`BatchSource.draws`."""
        return self.sampler.draws(start, stop)

    def assemble(self, draw: Draw, capacity: int = 0) -> Batch:
        """See :meth:`BatchSource.assemble`; ``capacity`` is that of all shards together."""
        capacity, rows = rounded_up(capacity, self.n_shards), len(draw.links) // self.n_shards
        own_rows = slice(self.own.start * rows, self.own.stop * rows)
        batch = self.sampler.assemble_rows(draw, capacity, own_rows)
        return cut(batch, self.n_shards, self.own)

    def batch_capacity(self, batch: Batch) -> int:
        """See :meth:`BatchSource.batch_capacity`; other processes' item slots count too."""
        return len(batch.items) // len(self.own) * self.n_shards


def cut(batch: Batch, n_shards: int, own: range | None = None) -> Batch:
    """Cut a batch into equal shards, its item slots padded to a multiple; return some of them.

    Args:
        batch: its links b are a multiple of ``n_shards``. Weights of shared negatives may be those
            of the returned shards' rows only.
        own: consecutive shards; all by default.

    Raises:
        CheckFailedError: a shard's rows name more users than an equal share of the user slots.
    """
    own = own or range(n_shards)

    def take(array: Any) -> Any:
        size = len(array) // n_shards
        return array[own.start * size : own.stop * size]

    b, missing, negatives = len(batch.pos_user), -len(batch.items) % n_shards, batch.negatives
    batch = batch._replace(items=np.pad(batch.items, (0, missing)))
    if isinstance(negatives, Shared):
        weight = take(negatives.weight) if len(negatives.weight) == b else negatives.weight
        negatives = Shared(np.pad(weight, ((0, 0), (0, missing))) if missing else weight)
        users, pos_user = _own_users(batch.users, n_shards, batch.pos_user)
    else:
        named = (batch.pos_user, negatives.user)
        users, pos_user, user = _own_users(batch.users, n_shards, *named)
        negatives = negatives._replace(user=user)
        negatives = type(negatives)(*map(take, negatives))
    users, items, pos_user, pos_item = map(take, (users, batch.items, pos_user, batch.pos_item))
    return Batch(users, items, pos_user, pos_item, negatives, batch.n_items)


def _own_users(users: Int32, n_shards: int, *named: Int32) -> tuple[Int32, ...]:
    """Give each shard its users in an equal share of the slots; return them, and the slots that the
    rows of some arrays name as slots among them.
    """
    share, slots = len(users) // n_shards, [array.reshape(n_shards, -1) for array in named]
    is_named = np.zeros((n_shards, len(users)), bool)
    for array in slots:
        np.put_along_axis(is_named, array, True, axis=1)
    most = is_named.sum(axis=1).max()
    if most > share:
        raise CheckFailedError(
            f"{len(named[0]) // n_shards} rows of a batch name {most} users, more than their share"
            f" of {share} slots: this sampler's batches cannot be cut into {n_shards} parts. Use"
            " --devices 1."
        )
    own_slot = np.cumsum(is_named, axis=1, dtype=np.int32) - 1
    own_users = np.zeros((n_shards, share), np.int32)
    shard, slot = np.nonzero(is_named)
    own_users[shard, own_slot[shard, slot]] = users[slot]
    moved = [np.take_along_axis(own_slot, array, axis=1) for array in slots]
    return own_users.reshape(-1), *map(np.reshape, moved, (array.shape for array in named))
