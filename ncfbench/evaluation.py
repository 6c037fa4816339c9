"""Cold-start recall@M: how many of a user's held-out items are among the M best of all held-out items.

Exact, over every user who has a held-out item and every held-out item of the split. Ties are broken by item id, the smaller
first, so that a result can be repeated. recall@M of a user is hits / her held-out items; the mean is over users (KDD 2017,
section 5.2).
"""

from __future__ import annotations

from collections.abc import Mapping

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from ncfbench.datasets.store import Dataset, Split
from ncfbench.embedding import Embedder
from ncfbench.precision import full
from ncfbench.schemas import CUTOFFS
from ncfbench.step import Parameters

BLOCK_SCORES = 2**23
"""Scores held at a time: 32 MB."""


class RecallEvaluator:
    """recall@M on one split of a data set. ``empty`` says that no user has an item there."""

    def __init__(self, dataset: Dataset, split: Split, embedder: Embedder) -> None:
        self.embedder = embedder
        self.items = dataset.items_of(split)
        users, items = dataset.links(split)
        order = np.lexsort((items, users))
        self.users, self.places = users[order], np.searchsorted(self.items, items[order]).astype(np.int32)
        self.empty = len(self.users) == 0
        self.block = int(np.clip(BLOCK_SCORES // max(len(self.items), 1), 1, 4096))
        self._ranks = jax.jit(full(link_ranks))

    def __call__(self, parameters: Parameters) -> Mapping[int, float]:
        """Mean recall@M for each M of :data:`CUTOFFS`."""
        return recall(self.users, self.ranks(parameters), CUTOFFS)

    def ranks(self, parameters: Parameters) -> NDArray[np.int64]:
        """int64[links]: the place of each held-out link's item in its user's ranking, 0 for the best."""
        vectors_UxD = self.embedder.users(parameters)
        items_VxD = self.embedder.items(parameters, self.items)
        parts = []
        for start in range(0, len(self.users), self.block):
            take = np.minimum(np.arange(start, start + self.block), len(self.users) - 1)
            parts.append(self._ranks(vectors_UxD, items_VxD, self.users[take], self.places[take]))
        return np.concatenate([np.asarray(part) for part in parts])[: len(self.users)].astype(np.int64)


def link_ranks(vectors_UxD: jax.Array, items_VxD: jax.Array, users: jax.Array, places: jax.Array) -> jax.Array:
    """int32[links]: how many items stand before each link's own: higher scores, and equal ones of smaller place.

    A score that is not a number stands before every other, so that broken parameters can never look good.
    """
    scores = vectors_UxD[users] @ items_VxD.T
    own = jnp.take_along_axis(scores, places[:, None], axis=1)
    earlier = jnp.arange(items_VxD.shape[0], dtype=jnp.int32)[None, :] < places[:, None]
    return jnp.sum(~(scores <= own) | ((scores == own) & earlier), axis=1, dtype=jnp.int32)


def recall(users: NDArray[np.integer], ranks: NDArray[np.integer], cutoffs: tuple[int, ...]) -> dict[int, float]:
    """Mean over users of the share of their links with a rank below M.

    Args:
        users: the user of each held-out link, ascending.
        ranks: the rank of each, from 0.
    """
    _, first, count = np.unique(users, return_index=True, return_counts=True)
    return {m: float(np.mean(np.add.reduceat(ranks < m, first, dtype=np.int64) / count)) for m in cutoffs}
