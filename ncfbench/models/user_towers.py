"""User towers f: a free vector for each user, or her history, the items of her training links."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from flax import nnx

from ncfbench.config import RunConfig
from ncfbench.models.encoders.mlp import FeatureLayers
from ncfbench.models.encoders.protocol import DataFacts, embedding
from ncfbench.models.histories import History

USER_SCALE = 0.01
"""Standard deviation of the users' initial vectors. After 10 epochs of MSE at its learning rate of
0.001 recall@50 was 0.420 from 0.01, 0.385 from 0.1, 0.280 from 0.3; the other losses do not care.
"""


class UserTable(nnx.Module):
    """f(u) is row u of a table."""

    def __init__(self, config: RunConfig, data: DataFacts, *, rngs: nnx.Rngs) -> None:
        initial = nnx.initializers.normal(USER_SCALE)
        self.vectors = nnx.Embed(data.users, config.dimension, embedding_init=initial, rngs=rngs)

    def __call__(self, rows: jax.Array) -> jax.Array:
        """Return float32[U, D] of user ids, or of rows in the table, int32[U]."""
        return self.vectors(rows)


class UserHistory(nnx.Module):
    """f(u) = the mean of the vectors of the user's items (Kabbur et al. 2013, SIGKDD).

    With ``history_of`` ``ids`` an item's vector is a row of a table; with ``content`` it is the
    layers over the mean of the items' dense features; ``both`` adds the two. With ``own_vector`` a
    row of a table by user, which begins at 0, is added. An empty history has a mean of 0.
    """

    def __init__(self, config: RunConfig, data: DataFacts, *, rngs: nnx.Rngs) -> None:
        size, reads, zeros = config.dimension, config.history_of, nnx.initializers.zeros
        widths = [data.item_features, *[config.user_units] * config.user_layers]
        self.items = embedding(data.items, size, rngs) if reads != "content" else None
        self.layers = (
            FeatureLayers(widths, size, scale=USER_SCALE, rngs=rngs) if reads != "ids" else None
        )
        self.vectors = (
            nnx.Embed(data.users, size, embedding_init=zeros, rngs=rngs)
            if config.own_vector
            else None
        )

    def __call__(self, rows: jax.Array, history: History) -> jax.Array:
        """Return float32[U, D] of user ids, or of rows in the tables, int32[U]."""
        parts = []
        if self.items is not None:
            present = history.present[..., None]
            total_UxD = jnp.sum(jnp.where(present, self.items(history.items), 0), axis=1)
            parts.append(total_UxD / jnp.maximum(jnp.sum(present, axis=1), 1))
        if self.layers is not None:
            parts.append(self.layers(history.features))
        if self.vectors is not None:
            parts.append(self.vectors(rows))
        return sum(parts[1:], start=parts[0])
