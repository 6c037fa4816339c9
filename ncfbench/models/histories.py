"""Histories: the items of each user's training links, from which a user tower makes her vector.

On the device they are one list of item ids, user after user, and the sum of each user's items'
dense features. A link that is being predicted must not stand in its own user's history, which would
tell the answer: :meth:`Histories.of` leaves one item of each history out.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from ncfbench.data.graph import BipartiteGraph
from ncfbench.rng import Streams


class History(NamedTuple):
    """The histories of some users, as a user tower sees them."""

    items: jax.Array
    """int32[U, H]: item ids, or the items' rows in the tower's tables of ``histories``; at most the
    setting ``history_items`` of each user.
    """
    present: jax.Array
    """bool[U, H]: where an item is."""
    features: jax.Array | None = None
    """float32[U, F]: mean dense features of all items of the history, 0 for an empty one; None
    where the items have none.
    """


class Histories(NamedTuple):
    """The histories of all users, resident on the device."""

    items: jax.Array
    """int32[N]: item ids, user after user."""
    offsets: jax.Array
    """int32[U + 1]: where those of each user begin."""
    sums: jax.Array | None = None
    """float32[U, F]: the sum of the dense features of each user's items."""

    @classmethod
    def of_graph(
        cls, graph: BipartiteGraph, features: NDArray[np.float32] | None = None
    ) -> Histories:
        """Return the histories of a graph's users.

        Each user's items are shuffled, the same way in every run: the first H are a sample of them.

        Args:
            features: float32[I, F], the items' dense features.
        """
        order = Streams(0).generator("histories").random(graph.n_links)
        items = graph.link_item[np.lexsort((order, graph.link_user))]
        sums = None
        if features is not None:
            links = sparse.csr_array(
                (np.ones(len(items), np.float32), items, graph.user_offsets),
                shape=(graph.n_users, len(features)),
            )
            sums = jnp.asarray(links @ features)
        return cls(jnp.asarray(items), jnp.asarray(graph.user_offsets, jnp.int32), sums)

    def of(
        self,
        users: jax.Array,
        most: int,
        features: jax.Array | None = None,
        left_out: jax.Array | None = None,
    ) -> History:
        """Return the histories of some users.

        Args:
            users: int32[U].
            most: H, items of a history at most.
            features: float32[I, F], the items' dense features.
            left_out: int32[U], an item of each user's history that is left out; None: none is.
        """
        first, count = self.offsets[users], self.offsets[users + 1] - self.offsets[users]
        place = jnp.arange(most, dtype=jnp.int32)[None, :]
        items = self.items.at[first[:, None] + place].get(mode="clip")
        present = place < count[:, None]
        if left_out is not None:
            present &= items != left_out[:, None]
            count = count - 1
        if self.sums is None or features is None:
            return History(items, present)
        sums = self.sums[users]
        if left_out is not None:
            sums = sums - features[left_out]
        # The rest of a difference of equal sums is rounding.
        means = jnp.where(count[:, None] > 0, sums / jnp.maximum(count, 1)[:, None], 0)
        return History(items, present, means)
