"""Batches cut into equal shards, one for each device.

A cut batch is a batch again, whose arrays hold the shards one behind the other. Shard p of N holds
the rows p b/N .. (p + 1) b/N - 1, the users that they name, and an equal share of the item slots.
With b = 2 positive links (user 7, item 30) and (user 9, item 31) that share their negatives, over
N = 2 devices::

    users    = [7 | 9]      pos_user = [0 | 0]       slot in the shard's own users
    items    = [30 | 31]    pos_item = [0 | 1]       slot in all items (vectors are gathered)
    negatives = Shared(weight=[[0 1/2] | [1/2 0]])         row: positive link, column: item slot

With all users as negatives, users 7, 8 and 9 (and 0, which pads an equal share) are met::

    users       = [7 8 7 | 9 0 9]    pos_user    = [2 | 2]     a shard's met users, then its rows'
    user_weight = [1/3 1/3 | 1/3 0]  item_weight = [1/2 1/2 | 1/2 1/2]
    linked_user = [0 2 | 2 0]        linked_item = [0 1 | 0 1]     2, the met users of a shard: none

With local sharing (:mod:`ncfbench.sampling.local`) ``pos_item`` and the columns are slots in the
shard's own items, and each shard is a batch by itself.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ncfbench.errors import CheckFailedError
from ncfbench.sampling.base import BatchSource, Draw, Sampler
from ncfbench.sampling.batch import Batch, MetUsers, Shared, negative_weights, rounded_up
from ncfbench.sampling.local import LocalSampler

Int32 = NDArray[np.int32]


class ShardedSampler(BatchSource):
    """Adapts a sampler so that it yields one process's shards of its batches.

    Every process draws the whole batch, which is cheap and needs no communication: random streams
    are named by (seed, role, epoch). So each link comes once an epoch over all processes, and the
    whole batch is the same for any number of them. The weights of shared negatives are costly; a
    process makes those of its own rows only, where the sampler can
    (:meth:`ncfbench.sampling.base.Sampler.assemble_rows`).

    Args:
        sampler: its batches are cut; a :class:`LocalSampler` has its batches in shards already.
        n_shards: shards of a batch.
        own: the consecutive shards that this process holds; all by default.
    """

    def __init__(self, sampler: Sampler, n_shards: int, own: range | None = None) -> None:
        self.sampler, self.n_shards, self.own = sampler, n_shards, own or range(n_shards)

    @property
    def batches_per_draw(self) -> int:
        """See :attr:`BatchSource.batches_per_draw`."""
        return self.sampler.batches_per_draw

    def draw(self, start: int, count: int) -> list[Draw]:
        """See :meth:`BatchSource.draw`: the random parts of whole batches."""
        return self.sampler.draw(start, count)

    def assemble(self, draw: Draw, capacity: int = 0) -> Batch:
        """Return this process's shards of the batch of a draw.

        Args:
            draw: the random part of a whole batch.
            capacity: fewest item slots of all shards together.
        """
        if isinstance(self.sampler, LocalSampler):
            parts, n_items = self.sampler.shards(draw, capacity, self.own)
            return stack(parts, n_items)
        capacity, rows = rounded_up(capacity, self.n_shards), len(draw.links) // self.n_shards
        own = slice(self.own.start * rows, self.own.stop * rows)
        batch = self.sampler.assemble_rows(draw, capacity, own)
        if batch is None:
            batch = self.sampler.assemble(draw, capacity)
        return select_shards(cut(batch, self.n_shards), self.n_shards, self.own)

    def batch_capacity(self, batch: Batch) -> int:
        """See :meth:`BatchSource.batch_capacity`; other processes' item slots count too."""
        return len(batch.items) // len(self.own) * self.n_shards


def cut(batch: Batch, n_shards: int) -> Batch:
    """Cut a batch into equal shards; no link changes.

    Item slots are padded to a multiple of the number of shards.

    Args:
        batch: its links b are a multiple of ``n_shards``.

    Raises:
        CheckFailedError: a shard's rows name more users than an equal share of the user slots.
    """
    slots = -len(batch.items) % n_shards
    batch = batch._replace(items=np.pad(batch.items, (0, slots)))
    negatives = batch.negatives
    if isinstance(negatives, MetUsers):
        return _cut_users(batch, negatives, n_shards)
    if isinstance(negatives, Shared):
        users, pos_user = _own_users(batch.users, n_shards, batch.pos_user)
        if slots:
            negatives = Shared(np.pad(negatives.weight, ((0, 0), (0, slots))))
    else:
        users, pos_user, named = _own_users(batch.users, n_shards, batch.pos_user, negatives.user)
        negatives = negatives._replace(user=named)
    return batch._replace(users=users, pos_user=pos_user, negatives=negatives)


def _cut_users(batch: Batch, negatives: MetUsers, n_shards: int) -> Batch:
    """Cut the users that are met into equal shares; every shard meets all items."""
    weights = negatives.user_weight
    share = rounded_up(len(weights), n_shards) // n_shards
    behind = n_shards * share - len(weights)
    met = np.pad(batch.users[: len(weights)], (0, behind)).reshape(n_shards, share)
    own = batch.users[batch.pos_user].reshape(n_shards, -1)
    first = share * np.arange(n_shards, dtype=np.int32)[:, None]
    linked = negatives.linked_user[None, :] - first
    is_own = (linked >= 0) & (linked < share) & (negatives.linked_user < len(weights))
    slots = len(batch.items) - len(negatives.item_weight)
    return batch._replace(
        users=np.concatenate([met, own], axis=1).reshape(-1),
        pos_user=np.tile(share + np.arange(own.shape[1], dtype=np.int32), n_shards),
        negatives=MetUsers(
            user_weight=np.pad(weights, (0, behind)),
            item_weight=np.tile(np.pad(negatives.item_weight, (0, slots)), n_shards),
            linked_user=np.where(is_own, linked, np.int32(share)).reshape(-1),
            linked_item=np.tile(negatives.linked_item, n_shards),
        ),
    )


def stack(batches: Sequence[Batch], n_items: int) -> Batch:
    """Put batches of equal shapes one behind the other; each keeps its own slots.

    Args:
        batches: with shared negatives.
        n_items: item slots in use of the whole batch, which may have shards elsewhere.
    """
    arrays = {
        name: np.concatenate([getattr(batch, name) for batch in batches])
        for name in ("users", "items", "pos_user", "pos_item")
    }
    weight = np.concatenate([negative_weights(batch) for batch in batches])
    return Batch(**arrays, negatives=Shared(weight), n_items=np.int32(n_items))


def select_shards(batch: Batch, n_shards: int, own: range) -> Batch:
    """Return views of some consecutive shards of a cut batch.

    Arrays of weights that hold the rows of these shards only stay as they are.
    """

    def take(array: NDArray[np.generic]) -> NDArray[np.generic]:
        size = len(array) // n_shards
        return array[own.start * size : own.stop * size]

    negatives, rows = batch.negatives, len(batch.pos_user)
    is_cut = isinstance(negatives, MetUsers)
    return Batch(
        users=take(batch.users),
        items=take(batch.items),
        pos_user=take(batch.pos_user),
        pos_item=take(batch.pos_item),
        negatives=type(negatives)(
            *(take(array) if is_cut or len(array) == rows else array for array in negatives)
        ),
        n_items=batch.n_items,
    )


def _own_users(users: Int32, n_shards: int, *named: Int32) -> tuple[Int32, ...]:
    """Give each shard its users in an equal share of the slots; return them, and the slots that the
    rows of some arrays name as slots among them.
    """
    share, rows = len(users) // n_shards, len(named[0]) // n_shards
    slots = [array.reshape(n_shards, -1) for array in named]
    is_named = np.zeros((n_shards, len(users)), bool)
    for own in slots:
        np.put_along_axis(is_named, own, True, axis=1)
    most = is_named.sum(axis=1).max()
    if most > share:
        raise CheckFailedError(
            f"{rows} rows of a batch name {most} users, more than their share of {share} slots:"
            f" this sampler's batches cannot be cut into {n_shards} parts. Use --devices 1."
        )
    own_slot = np.cumsum(is_named, axis=1, dtype=np.int32) - 1
    shared_out = np.zeros((n_shards, share), np.int32)
    shard, slot = np.nonzero(is_named)
    shared_out[shard, own_slot[shard, slot]] = users[slot]
    found = [np.take_along_axis(own_slot, own, axis=1) for own in slots]
    return shared_out.reshape(-1), *map(np.reshape, found, (array.shape for array in named))
