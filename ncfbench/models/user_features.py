"""User towers that read dense features of users: users without training links have a vector too."""

from __future__ import annotations

import jax
from flax import nnx

from ncfbench.config import RunConfig
from ncfbench.models.encoders.protocol import DataFacts
from ncfbench.models.feature_layers import FeatureLayers
from ncfbench.models.user_table import USER_SCALE, Users
from ncfbench.settings import Setting


class UserFeatures(nnx.Module):
    """f(u) = hidden layers and a dense one over the user's features."""

    title = "Features"
    summary = "dense features of the user, hidden layers, dense; scores cold users"
    uses = ()
    content = ("features",)
    settings = (
        Setting("user_units", 128, "Units of a hidden layer of the user tower", at_least=1),
        Setting(
            "user_layers",
            1,
            "Hidden layers of the user tower; with 0 it is linear",
            at_least=0,
            at_most=16,
        ),
    )

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

    title = "Table + features"
    summary = "a free vector for each user plus her features' vector; scores cold users"
    uses = ()
    user_tables = ("vectors",)

    def __init__(self, config: RunConfig, data: DataFacts, *, rngs: nnx.Rngs) -> None:
        super().__init__(config, data, rngs=rngs)
        self.vectors = nnx.Embed(
            data.users, config.dimension, embedding_init=nnx.initializers.zeros, rngs=rngs
        )

    def __call__(self, users: Users) -> jax.Array:
        """Return float32[U, D]."""
        return super().__call__(users) + self.vectors(users.rows)
