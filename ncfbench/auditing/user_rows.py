"""The rows of users' vectors that an audit computes with: all users; and, where the user tower
reads histories, also one for each training link, whose user's history lacks the link's item.
"""

from __future__ import annotations

from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from ncfbench.data.graph import BipartiteGraph
from ncfbench.models.towers import UserVectors
from ncfbench.training.inference import Embedder
from ncfbench.training.state import Parameters

Ids = NDArray[np.integer]


@dataclass(frozen=True)
class UserRows:
    """The rows of a graph's users: row u is user u, row U + n is training link n."""

    graph: BipartiteGraph
    has_links: bool
    """True if links have rows of their own: where the user tower of a run reads histories."""

    @property
    def count(self) -> int:
        """The number of rows."""
        return self.graph.n_users + self.has_links * self.graph.n_links

    def of_links(self, users: Ids, items: Ids) -> Ids:
        """Return the rows of the users of training links, by the ends of the links."""
        if not self.has_links:
            return users
        graph = self.graph
        keys = graph.link_user.astype(np.int64) * graph.n_items + graph.link_item
        wanted = np.asarray(users, np.int64) * graph.n_items + items
        return graph.n_users + np.searchsorted(keys, wanted)

    def vectors(self, embedder: Embedder, parameters: Parameters) -> UserVectors:
        """Return the vectors of all rows, float32[count, D]."""
        users, graph = embedder.users(parameters), self.graph
        links = embedder.link_users(parameters, graph.link_user, graph.link_item)
        if links is None:
            return users
        return UserVectors(*(jnp.concatenate(parts) for parts in zip(users, links, strict=True)))
