"""The user tower of the paper: a free vector for each user."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import jax
from flax import nnx

from ncfbench.config import RunConfig
from ncfbench.models.encoders.protocol import DataFacts

USER_SCALE = 0.01
"""Standard deviation of the users' initial vectors. After 10 epochs of MSE at its learning rate of
0.001 (strat-ns, title and tags, 40 words) recall@50 was 0.420 from 0.01, 0.418 from 0.03, 0.385
from 0.1 and 0.280 from 0.3; the other losses do not care.
"""


class Users(NamedTuple):
    """Some users, as a user tower sees them."""

    rows: jax.Array
    """int32[U]: user ids, or the users' rows in the tables that the tower names as its
    ``user_tables``.
    """
    features: jax.Array | None = None
    """float32[U, F]: dense features, standardised; None where the data set has none."""


class UserTower(Protocol):
    """A user function f, an :class:`flax.nnx.Module`.

    Built as ``UserTower(config, data, rngs=rngs)``. Its record,
    :class:`ncfbench.catalog.UserTowerInfo`, says whether it reads dense features, and names the
    tables in which it looks users up by their ids.
    """

    def __call__(self, users: Users) -> jax.Array:
        """Return float32[U, D]: the vector of each user, before any normalisation."""


class UserTable(nnx.Module):
    """f(u) is row u of a table."""

    def __init__(self, config: RunConfig, data: DataFacts, *, rngs: nnx.Rngs) -> None:
        self.vectors = nnx.Embed(
            data.users,
            config.dimension,
            embedding_init=nnx.initializers.normal(USER_SCALE),
            rngs=rngs,
        )

    def __call__(self, users: Users) -> jax.Array:
        """Return float32[U, D]."""
        return self.vectors(users.rows)
