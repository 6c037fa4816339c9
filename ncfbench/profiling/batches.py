"""Calibration: the counts at which the step is timed, and constructed batches that have them.

From a base (b users, the fewest item slots of the samplers, k listed negatives) users, item slots
and listed interactions grow alone. A matrix of interactions has b rows, so it grows with the item
slots, whose cost is known by then.

A sampler's counts go together; in a constructed batch one of them changes while the others stay.
With b = 2 positive links, U = 3 user slots, V = 3 item slots and k = 2 listed negatives each::

    users = [7 9 8]         pos_user = [0 1]
    items = [30 31 40]      pos_item = [2 0]
    negatives = Listed(user=[[2 2] [2 2]], item=[[1 2] [0 1]], weight=[[1/4 1/4] [1/4 1/4]])

Links name every slot at least once where there are as many links. A slot that no link names is
embedded all the same, forward and backward: slots are data, which the compiler does not know.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass, field, replace

import numpy as np

from ncfbench.config import RunConfig
from ncfbench.data.graph import BipartiteGraph
from ncfbench.profiling.costs import Counts, Points
from ncfbench.sampling.base import Int32
from ncfbench.sampling.batch import Batch, Listed, Shared

SPACING = 4.0
"""No size is more than this many times the one before it."""


def spaced_sizes(counts: Collection[int]) -> list[int]:
    """Return the counts in ascending order, with others between them where they lie far apart."""
    smallest, *larger = sorted(set(counts))
    sizes = [float(smallest)]
    for size in larger:
        before = sizes[-1]
        pieces = math.ceil(math.log(size / before) / math.log(SPACING))
        sizes += [before * (size / before) ** (piece / pieces) for piece in range(1, pieces + 1)]
    return sorted({round(size) for size in sizes})


def calibration_points(samplers: Collection[Counts], config: RunConfig) -> Points:
    """Return the steps to measure, so that each count reaches from the samplers' fewest to most.

    Args:
        samplers: the counts of the samplers' batches.
    """
    b, k = config.batch_size, config.negatives

    def halved(counts: Collection[int]) -> set[int]:
        return {*counts, max(min(counts) // 2, 1)}

    users = {b, *(counts.users for counts in samplers)}
    slots = {counts.items for counts in samplers}
    columns = {counts.items for counts in samplers if counts.kind == "matrix"} or {min(slots)}
    base = Counts(b, min(slots), b * (1 + k), "vectors")
    return {
        "users": [
            replace(base, users=size)
            for size in spaced_sizes(users if len(users) > 1 else halved(users))
        ],
        "items": [replace(base, items=size) for size in spaced_sizes(halved(slots))],
        "vectors": [
            replace(base, interactions=b * (1 + size))
            for size in sorted({max(k // 4, 1), k, 2 * k})
        ],
        "matrix": [
            Counts(b, size, b * (1 + size), "matrix") for size in spaced_sizes(halved(columns))
        ],
    }


@dataclass(frozen=True)
class BatchMaker:
    """Makes batches of any counts, of random users and items."""

    graph: BipartiteGraph
    config: RunConfig
    rng: np.random.Generator = field(default_factory=lambda: np.random.default_rng(0))

    def users(self, count: int) -> Int32:
        """Return int32[count]: users as often as they have training links."""
        links = self.rng.integers(self.graph.n_links, size=count)
        return self.graph.link_user[links].astype(np.int32)

    def items(self, count: int) -> Int32:
        """Return int32[count]: distinct items in use; all of them over again where they are few."""
        order = self.rng.permutation(self.graph.items_in_use)
        return np.resize(order, count).astype(np.int32)

    def batch(self, counts: Counts) -> Batch:
        """Return a batch with these counts; b (1 + k) interactions of vectors have k negatives."""
        pos_user, pos_item, *negatives = self._links(counts)
        return Batch(
            users=self.users(counts.users),
            items=self.items(counts.items),
            pos_user=pos_user,
            pos_item=pos_item,
            negatives=Listed(*negatives) if counts.kind == "vectors" else Shared(*negatives),
            n_items=np.int32(counts.items),
        )

    def _links(self, counts: Counts) -> tuple[np.ndarray, ...]:
        """Return the arrays of links: ``pos_user``, ``pos_item`` and the negatives'."""
        b, users, items = self.config.batch_size, counts.users, counts.items
        pos_user = (np.arange(b) % users).astype(np.int32)
        k = counts.interactions // b - 1 if counts.kind == "vectors" else 0
        slots = np.resize(self.rng.permutation(items), b * (1 + k)).astype(np.int32)
        if counts.kind == "matrix":
            return pos_user, slots, np.full((b, items), 1 / (b * items), np.float32)
        # The negatives' users are those of no positive link, if there are any.
        further = b + np.arange(b * k, dtype=np.int32) % max(users - b, 1)
        user = further if users > b else np.repeat(pos_user, k)
        weight = np.full((b, k), 1 / (b * k), np.float32)
        return pos_user, slots[:b], user.reshape(b, k), slots[b:].reshape(b, k), weight
