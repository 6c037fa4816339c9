"""Mining hard negatives: each user's items of the highest scores that have no training link."""

from __future__ import annotations

from functools import partial
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np

from ncfbench.config import RunConfig
from ncfbench.data.graph import BipartiteGraph
from ncfbench.models.interaction import Interaction
from ncfbench.models.precision import full
from ncfbench.training.inference import Embedder
from ncfbench.training.step import Parameters

SCORES = 2**22
"""Scores that are in memory at a time: 16 MB."""


class Miner:
    """Finds the items that hard negatives are drawn from (ANCE: Xiong et al. 2020, arXiv
    2007.00808), by the exact scores of all items in use, dropout off.

    Users are scored in blocks, so that no matrix of all users and items is made.

    Args:
        count: items of each user.
        skip: items of still higher scores that are passed over.
    """

    def __init__(self, graph: BipartiteGraph, embedder: Embedder, count: int, skip: int) -> None:
        self.embedder, self.nodes, self.n_users = embedder, graph.items_in_use, graph.n_users
        self._top = partial(_top, count=count, skip=skip)
        self._ids = jnp.asarray(self.nodes)
        size = int(np.clip(SCORES // len(self.nodes), 1, graph.n_users))
        starts = range(0, graph.n_users, size)
        stops = [min(start + size, graph.n_users) for start in starts]
        offsets = [
            (int(graph.user_offsets[start]), int(graph.user_offsets[stop]))
            for start, stop in zip(starts, stops, strict=True)
        ]
        most = max(end - begin for begin, end in offsets)
        self._blocks: list[tuple[Any, Any, Any]] = []
        for start, (begin, end) in zip(starts, offsets, strict=True):
            row, column = np.full(most, size, np.int32), np.zeros(most, np.int32)
            row[: end - begin] = graph.link_user[begin:end] - start
            column[: end - begin] = graph.index_in_use[graph.link_item[begin:end]]
            users = np.minimum(np.arange(start, start + size), graph.n_users - 1)
            self._blocks.append((jnp.asarray(users), jnp.asarray(row), jnp.asarray(column)))

    @classmethod
    def of(cls, config: RunConfig, graph: BipartiteGraph, embedder: Embedder) -> Self:
        """Return the miner of a run."""
        return cls(graph, embedder, config.mined, config.mine_skip)

    def __call__(self, parameters: Parameters, like: Any = None) -> jax.Array:
        """Return int32[n_users, count], the highest score first."""
        interaction = self.embedder.interaction(parameters)
        users = self.embedder.users(parameters).scored
        items = self.embedder.items(parameters, self.nodes)
        found = [self._top(interaction, users, items, self._ids, *block) for block in self._blocks]
        return jnp.concatenate(found)[: self.n_users]


@partial(jax.jit, static_argnames=("count", "skip"))
@full
def _top(
    interaction: Interaction,
    users: jax.Array,
    items: jax.Array,
    ids: jax.Array,
    rows: jax.Array,
    linked_row: jax.Array,
    linked_column: jax.Array,
    *,
    count: int,
    skip: int,
) -> jax.Array:
    """Return the ids of the unlinked items of the highest scores of some users.

    Args:
        users, items: vectors.
        ids: int32[V], the items' ids.
        rows: int32[n], the users.
        linked_row, linked_column: linked pairs; a row behind the last marks padding.
    """
    scores = interaction.matrix(users[rows], items)
    scores = scores.at[linked_row, linked_column].set(-jnp.inf, mode="drop")
    return ids[jax.lax.top_k(scores, skip + count)[1][:, skip:]]
