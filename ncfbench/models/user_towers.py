"""User towers f: a free vector for each user, layers over her dense features, or both."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import jax
from flax import nnx

from ncfbench.config import RunConfig
from ncfbench.models.encoders.mlp import FeatureLayers
from ncfbench.models.encoders.protocol import DataFacts

USER_SCALE = 0.01
"""Standard deviation of the users' initial vectors. After 10 epochs of MSE at its learning rate of
0.001 recall@50 was 0.420 from 0.01, 0.385 from 0.1, 0.280 from 0.3; the other losses do not care.
"""


class Users(NamedTuple):
    """Some users, as a user tower sees them."""

    rows: jax.Array
    """int32[U]: user ids, or rows in the tables that the tower names as its ``user_tables``."""
    features: jax.Array | None = None
    """float32[U, F]: dense features, standardised; None where the data set has none."""


class UserTower(Protocol):
    """A user function f, an :class:`flax.nnx.Module`, built as ``UserTower(config, data,
    rngs=rngs)``. Its record is a :class:`ncfbench.catalog.UserTowerInfo`.
    """

    def __call__(self, users: Users) -> jax.Array:
        """Return float32[U, D]: the vector of each user, before any normalisation."""


class UserTable(nnx.Module):
    """f(u) is row u of a table."""

    def __init__(self, config: RunConfig, data: DataFacts, *, rngs: nnx.Rngs) -> None:
        initial = nnx.initializers.normal(USER_SCALE)
        self.vectors = nnx.Embed(data.users, config.dimension, embedding_init=initial, rngs=rngs)

    def __call__(self, users: Users) -> jax.Array:
        """Return float32[U, D]."""
        return self.vectors(users.rows)


class UserFeatures(nnx.Module):
    """f(u) = hidden layers and a dense one over the user's features."""

    def __init__(self, config: RunConfig, data: DataFacts, *, rngs: nnx.Rngs) -> None:
        widths = [data.user_features, *[config.user_units] * config.user_layers]
        self.layers = FeatureLayers(widths, config.dimension, scale=USER_SCALE, rngs=rngs)

    def __call__(self, users: Users) -> jax.Array:
        """Return float32[U, D]."""
        return self.layers(users.features)


class UserTableAndFeatures(UserFeatures):
    """f(u) = row u of a table, which begins at 0, plus the layers over the user's features.

    So a user without training links has the vector of her features.
    """

    def __init__(self, config: RunConfig, data: DataFacts, *, rngs: nnx.Rngs) -> None:
        super().__init__(config, data, rngs=rngs)
        initial = nnx.initializers.zeros
        self.vectors = nnx.Embed(data.users, config.dimension, embedding_init=initial, rngs=rngs)

    def __call__(self, users: Users) -> jax.Array:
        """Return float32[U, D]."""
        return super().__call__(users) + self.vectors(users.rows)
