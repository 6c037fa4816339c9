"""User towers that read dense features of users: users without training links have a vector too."""

from __future__ import annotations

import jax
from flax import nnx

from ncfbench.config import RunConfig
from ncfbench.models.encoders.protocol import DataFacts
from ncfbench.models.feature_layers import FeatureLayers
from ncfbench.models.user_table import USER_SCALE, Users


class UserFeatures(nnx.Module):
    """f(u) = hidden layers and a dense one over the user's features."""

    def __init__(self, config: RunConfig, data: DataFacts, *, rngs: nnx.Rngs) -> None:
        self.layers = FeatureLayers(
            data.user_features,
            config.user_units,
            config.user_layers,
            config.dimension,
            scale=USER_SCALE,
            rngs=rngs,
        )

    def __call__(self, users: Users) -> jax.Array:
        """Return float32[U, D]."""
        assert users.features is not None
        return self.layers(users.features)


class UserTableAndFeatures(UserFeatures):
    """f(u) = row u of a table plus the layers over the user's features.

    The table begins at 0, so that a user without training links has the vector of her features.
    """

    def __init__(self, config: RunConfig, data: DataFacts, *, rngs: nnx.Rngs) -> None:
        super().__init__(config, data, rngs=rngs)
        self.vectors = nnx.Embed(
            data.users, config.dimension, embedding_init=nnx.initializers.zeros, rngs=rngs
        )

    def __call__(self, users: Users) -> jax.Array:
        """Return float32[U, D]."""
        return super().__call__(users) + self.vectors(users.rows)
