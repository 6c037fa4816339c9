"""Constructed batches: users, item slots and interactions, each as many as asked for.

A sampler's counts go together; here one of them changes while the others stay. With b = 2 positive
links, U = 3 user slots, V = 3 item slots and k = 2 listed negatives each::

    users = [7 9 8]         pos_user = [0 1]
    items = [30 31 40]      pos_item = [2 0]
    negatives = Listed(user=[[2 2] [2 2]], item=[[1 2] [0 1]], weight=[[1/4 1/4] [1/4 1/4]])

Links name every slot at least once where there are as many links. A slot that no link names is
embedded all the same, forward and backward: slots are data, which the compiler does not know.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ncfbench.config import RunConfig
from ncfbench.data import Dataset
from ncfbench.data.graph import BipartiteGraph
from ncfbench.distributed.shards import cut
from ncfbench.profiling.cost_model import Counts
from ncfbench.sampling.base import Int32
from ncfbench.sampling.batch import Batch, EveryUser, Listed, MetUsers, Shared


@dataclass(frozen=True)
class BatchMaker:
    """Makes batches of any counts, of random users and items.

    Args:
        rows: b, the positive links of a batch.
        n_shards: devices that a batch is cut for.
        is_local: shards share negatives within themselves only.
    """

    graph: BipartiteGraph
    rng: np.random.Generator
    rows: int
    n_shards: int = 1
    is_local: bool = False

    @classmethod
    def of(cls, dataset: Dataset, config: RunConfig) -> BatchMaker:
        """Return a maker of the batches that the settings ask for."""
        rng, n = np.random.default_rng(0), config.devices
        return cls(dataset.graph, rng, config.batch_size, n, config.shares_locally)

    def users(self, count: int) -> Int32:
        """Return int32[count]: users as often as they have training links."""
        links = self.rng.integers(self.graph.n_links, size=count)
        return self.graph.link_user[links].astype(np.int32)

    def items(self, count: int) -> Int32:
        """Return int32[count]: distinct items in use; all of them over again where they are few."""
        order = self.rng.permutation(self.graph.items_in_use)
        return np.resize(order, count).astype(np.int32)

    def batch(self, counts: Counts) -> Batch:
        """Return a batch with these counts; b (1 + k) interactions of vectors have k negatives.

        The arrays hold the shards one behind the other, as :mod:`ncfbench.distributed.shards` cuts
        them. All counts are multiples of the number of shards.
        """
        if counts.kind == "all_users":
            return self._all_users(counts)
        n = self.n_shards
        shards = [self._links(counts) for _ in range(n)]
        pos_user, pos_item, *negatives = (
            np.concatenate(arrays) for arrays in zip(*shards, strict=True)
        )
        return Batch(
            users=self.users(counts.users),
            items=self.items(counts.items),
            pos_user=pos_user,
            pos_item=pos_item,
            negatives=Listed(*negatives) if counts.kind == "vectors" else Shared(*negatives),
            n_items=np.int32(counts.items),
        )

    def with_random_items(self, batch: Batch) -> Batch:
        """Return a batch with other items in the same slots."""
        return batch._replace(items=self.items(len(batch.items)))

    def _all_users(self, counts: Counts) -> Batch:
        """Return a batch whose items meet all users, or as many drawn ones as there are slots."""
        graph, b = self.graph, self.rows
        met, items = (counts.interactions - b) // counts.items, self.items(counts.items)
        is_every, own = met == graph.n_users, self.users(b)
        users = np.arange(met, dtype=np.int32) if is_every else self.users(met)
        named, position = np.unique(items, return_index=True)
        user, item = graph.linked_block(users, named)
        batch = Batch(
            users=users if is_every else np.concatenate([users, own]),
            items=items,
            pos_user=own if is_every else np.arange(met, met + b, dtype=np.int32),
            pos_item=np.resize(self.rng.permutation(len(items)), b).astype(np.int32),
            negatives=(EveryUser if is_every else MetUsers)(
                np.full(met, 1 / met, np.float32),
                np.full(len(items), 1 / len(items), np.float32),
                user.astype(np.int32),
                position[item].astype(np.int32),
            ),
            n_items=np.int32(len(items)),
        )
        return batch if self.n_shards == 1 else cut(batch, self.n_shards)

    def _links(self, counts: Counts) -> tuple[np.ndarray, ...]:
        """Return one shard's arrays of links: ``pos_user``, ``pos_item`` and the negatives'."""
        rows, users = self.rows // self.n_shards, counts.users // self.n_shards
        items = counts.items // self.n_shards if self.is_local else counts.items
        pos_user = (np.arange(rows) % users).astype(np.int32)
        k = counts.interactions // self.rows - 1 if counts.kind == "vectors" else 0
        slots = np.resize(self.rng.permutation(items), rows * (1 + k)).astype(np.int32)
        if counts.kind == "matrix":
            return pos_user, slots, np.full((rows, items), 1 / (self.rows * items), np.float32)
        # The negatives' users are those of no positive link, if there are any.
        others = rows + np.arange(rows * k, dtype=np.int32) % max(users - rows, 1)
        user = others if users > rows else np.repeat(pos_user, k)
        weight = np.full((rows, k), 1 / (self.rows * k), np.float32)
        return pos_user, slots[:rows], user.reshape(rows, k), slots[rows:].reshape(rows, k), weight
