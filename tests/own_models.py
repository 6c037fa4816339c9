"""Interactions and a user tower of a user's own."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from flax import nnx

from ncfbench.catalog import InteractionInfo, UserTowerInfo
from ncfbench.config import RunConfig
from ncfbench.models.encoders.protocol import DataFacts
from ncfbench.models.interaction import Interaction
from ncfbench.models.user_towers import Users
from ncfbench.settings import Setting

WEIGHTS = (2.0, -1.0, 0.5, 3.0)


class Distance(Interaction):
    """The negative squared distance of both vectors, times a trained number; pairs alone are
    written.
    """

    info = InteractionInfo(
        uses=(),
        settings=(Setting("steepness", 1.0, "Initial factor of a squared distance", above=0),),
    )

    def __init__(self, config: RunConfig, *, rngs: nnx.Rngs) -> None:
        self.factor = nnx.Param(jnp.float32(config.steepness))

    def pairs(self, users: jax.Array, items: jax.Array) -> jax.Array:
        return -self.factor[...] * jnp.sum(jnp.square(users - items), axis=-1)


class Weighted(Interaction):
    """A dot product with a weight for each of four dimensions."""

    def pairs(self, users: jax.Array, items: jax.Array) -> jax.Array:
        return jnp.einsum("...d,...d,d->...", users, items, jnp.array(WEIGHTS))

    def matrix(self, users_MxD: jax.Array, items_VxD: jax.Array) -> jax.Array:
        return (users_MxD * jnp.array([WEIGHTS])) @ items_VxD.T


class Gated(nnx.Module):
    """A vector for each user, times a gate that all users share."""

    info = UserTowerInfo(user_tables=("vectors",))

    def __init__(self, config: RunConfig, data: DataFacts, *, rngs: nnx.Rngs) -> None:
        self.gate = nnx.Param(jnp.linspace(0.5, 2, config.dimension))
        self.vectors = nnx.Embed(data.users, config.dimension, rngs=rngs)

    def __call__(self, users: Users) -> jax.Array:
        return self.vectors(users.rows) * self.gate[...][None, :]
