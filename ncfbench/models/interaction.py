"""The interaction r(u, v): the score of a user's vector and an item's vector."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable

import jax
import jax.numpy as jnp
from flax import nnx

from ncfbench.catalog import find_interaction
from ncfbench.catalog.models import LEAST_TEMPERATURE
from ncfbench.config import RunConfig
from ncfbench.models.blocks import in_blocks

BLOCK_NUMBERS = 2**18
"""Numbers in a block of a matrix of scores before they are summed: 1 MB."""


class Interaction(nnx.Module):
    """A score of a user and an item, as a function of their vectors.

    The methods are one function for several layouts of its arguments, and must agree; a subclass
    needs :meth:`pairs` alone.
    """

    def __init__(self, config: RunConfig, *, rngs: nnx.Rngs) -> None:
        """Make the initial parameters: none, unless a subclass has some."""

    @abstractmethod
    def pairs(self, users: jax.Array, items: jax.Array) -> jax.Array:
        """Return the scores [...] of users and items [..., D] that broadcast."""

    def indexed(
        self, users_UxD: jax.Array, items_VxD: jax.Array, user: jax.Array, item: jax.Array
    ) -> jax.Array:
        """Return the scores [...] of pairs that are named by rows, int32[...]."""
        return self.pairs(users_UxD[user], items_VxD[item])

    def lists(self, users_MxD: jax.Array, items_MxKxD: jax.Array) -> jax.Array:
        """Return the scores [M, K] of each user and the items in her own list."""
        return self.pairs(users_MxD[:, None, :], items_MxKxD)

    def matrix(self, users_MxD: jax.Array, items_VxD: jax.Array) -> jax.Array:
        """Return the scores [M, V] of each user and each item."""

        def scores(users: jax.Array) -> jax.Array:
            return self.pairs(users[:, None, :], items_VxD[None, :, :])

        return _in_user_blocks(scores, users_MxD, items_VxD.size)


class DotProduct(Interaction):
    """The dot product of both vectors (KDD 2017, section 3).

    A subclass may override :meth:`sides` alone.
    """

    def sides(self, users: jax.Array, items: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Return the vectors [..., D] whose dot product is the score: these."""
        return users, items

    def pairs(self, users: jax.Array, items: jax.Array) -> jax.Array:
        """Return sums of element-wise products: in float32 at every precision."""
        users, items = self.sides(users, items)
        return jnp.sum(users * items, axis=-1)

    def indexed(
        self, users_UxD: jax.Array, items_VxD: jax.Array, user: jax.Array, item: jax.Array
    ) -> jax.Array:
        """Return sums of element-wise products; each node's side is computed once."""
        users_UxD, items_VxD = self.sides(users_UxD, items_VxD)
        return jnp.sum(users_UxD[user] * items_VxD[item], axis=-1)

    def lists(self, users_MxD: jax.Array, items_MxKxD: jax.Array) -> jax.Array:
        """Return matrix-vector products: without gradients a third of the time of sums."""
        users_MxD, items_MxKxD = self.sides(users_MxD, items_MxKxD)
        return jnp.einsum("md,mkd->mk", users_MxD, items_MxKxD)

    def matrix(self, users_MxD: jax.Array, items_VxD: jax.Array) -> jax.Array:
        """Return the matrix product ``U V^T``."""
        users_MxD, items_VxD = self.sides(users_MxD, items_VxD)
        return users_MxD @ items_VxD.T


def unit_vectors(vectors: jax.Array) -> jax.Array:
    """Divide each row by its length; a row of zeros stays as it is, with a gradient of zero."""
    squared = jnp.sum(jnp.square(vectors), axis=-1, keepdims=True)
    is_zero = squared < 1e-24
    return jnp.where(is_zero, 0.0, vectors * jax.lax.rsqrt(jnp.where(is_zero, 1.0, squared)))


class Cosine(DotProduct):
    """The cosine of both vectors over a temperature T, fixed or trained (Radford et al. 2021).

    A trained one is :data:`LEAST_TEMPERATURE` + exp(p) for a parameter p, so it stays above that.
    """

    def __init__(self, config: RunConfig, *, rngs: nnx.Rngs) -> None:
        self.first_temperature = float(config.temperature)
        above = jnp.log(jnp.float32(config.temperature - LEAST_TEMPERATURE))
        self.above_least = nnx.Param(above) if config.learn_temperature else None

    def sides(self, users: jax.Array, items: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Return the users' unit vectors over the temperature, and the items' unit vectors."""
        temperature = self.temperature
        return unit_vectors(users) / temperature, unit_vectors(items)

    @property
    def temperature(self) -> jax.Array | float:
        """T, as far as it is trained."""
        if self.above_least is None:
            return self.first_temperature
        trained: jax.Array = LEAST_TEMPERATURE + jnp.exp(self.above_least[...])
        return trained


class WeightedProduct(Interaction):
    """Generalised matrix factorisation: ``sum_d w_d u_d v_d + bias`` (He et al. 2017).

    It begins as the dot product.
    """

    def __init__(self, config: RunConfig, *, rngs: nnx.Rngs) -> None:
        self.weights = nnx.Param(jnp.ones(config.dimension))
        self.bias = nnx.Param(jnp.zeros(()))

    def pairs(self, users: jax.Array, items: jax.Array) -> jax.Array:
        """Return sums of weighted products, and the bias."""
        return jnp.sum(self._weighted(users) * items, axis=-1) + self.bias[...]

    def lists(self, users_MxD: jax.Array, items_MxKxD: jax.Array) -> jax.Array:
        """Return matrix-vector products, and the bias."""
        return jnp.einsum("md,mkd->mk", self._weighted(users_MxD), items_MxKxD) + self.bias[...]

    def matrix(self, users_MxD: jax.Array, items_VxD: jax.Array) -> jax.Array:
        """Return one matrix product of weighted users and items."""
        return self._weighted(users_MxD) @ items_VxD.T + self.bias[...]

    def _weighted(self, users: jax.Array) -> jax.Array:
        return users * self.weights[...].reshape((1,) * (users.ndim - 1) + (-1,))


class Network(Interaction):
    """A network on both vectors, concatenated: hidden layers with ReLU, then one number.

    The first layer of concatenated vectors is the sum of a users' half and an items' half.
    """

    def __init__(self, config: RunConfig, *, rngs: nnx.Rngs) -> None:
        units = config.interaction_units
        self.users = nnx.Linear(config.dimension, units, rngs=rngs)
        self.items = nnx.Linear(config.dimension, units, use_bias=False, rngs=rngs)
        self.hidden = nnx.List(
            nnx.Linear(units, units, rngs=rngs) for _ in range(config.interaction_layers - 1)
        )
        self.output = nnx.Linear(units, 1, rngs=rngs)

    def pairs(self, users: jax.Array, items: jax.Array) -> jax.Array:
        """Return the network's outputs."""
        return self._by_columns(self.users(users) + self.items(items))

    def indexed(
        self, users_UxD: jax.Array, items_VxD: jax.Array, user: jax.Array, item: jax.Array
    ) -> jax.Array:
        """Return the network's outputs; each node's half is computed once."""
        return self._by_columns(self.users(users_UxD)[user] + self.items(items_VxD)[item])

    def matrix(self, users_MxD: jax.Array, items_VxD: jax.Array) -> jax.Array:
        """Return the network's outputs; each node's half is computed once."""
        items_HxV = self.items(items_VxD).T

        def scores(users_MxH: jax.Array) -> jax.Array:
            sums_HxMxV = users_MxH.T[:, :, None] + items_HxV[:, None, :]
            _, rows, columns = sums_HxMxV.shape
            return self._above(sums_HxMxV.reshape(-1, rows * columns)).reshape(rows, columns)

        return _in_user_blocks(scores, self.users(users_MxD), items_HxV.size)

    def _by_columns(self, sums: jax.Array) -> jax.Array:
        return self._above(sums.reshape(-1, sums.shape[-1]).T).reshape(sums.shape[:-1])

    def _above(self, sums_HxN: jax.Array) -> jax.Array:
        """Return the scores [N] from the first layer's sums. Units come first, so that sums over
        pairs run along memory, in half the time.
        """
        hidden = jax.nn.relu(sums_HxN)
        for layer in self.hidden:
            hidden = jax.nn.relu(_product(layer, hidden))
        return _product(self.output, hidden)[0]


def make_interaction(config: RunConfig) -> Interaction:
    """Return a new interaction with the initial parameters of the run's seed."""
    interaction: Interaction = find_interaction(config.interaction).load()(
        config, rngs=nnx.Rngs(config.seed)
    )
    return interaction


def _in_user_blocks(
    scores: Callable[[jax.Array], jax.Array], users_MxN: jax.Array, numbers: int
) -> jax.Array:
    """Return ``scores(users)``, [M, V], for a block of users at a time.

    Args:
        numbers: numbers that one user's scores are made of.
    """
    count = len(users_MxN)
    blocks = -(-count // max(1, BLOCK_NUMBERS // max(numbers, 1)))
    return in_blocks(scores, (users_MxN,), -(-count // blocks))


def _product(layer: nnx.Linear, columns_HxN: jax.Array) -> jax.Array:
    """Return a layer of some columns, float32[units, N]."""
    assert layer.bias is not None
    return layer.kernel[...].T @ columns_HxN + layer.bias[...][:, None]
