"""The negative term of batches whose items meet all users: a weighted sum over users x items.

``sum_ij a_i c_j l-(s_ij)``, without linked pairs (:class:`ncfbench.sampling.batch.MetUsers`). Three
ways to the same number:

- :func:`plain_sum` scores blocks of users with any interaction, and leaves the gradient to JAX. It
  is the reference of the other two.
- :func:`fused_sum`, for dot products: one pass gives the value and both gradients, so that nothing
  of size M x V is kept for the backward pass. Nearly all of its time are three matrix products.
- :func:`gramian_sum`, for dot products and a squared negative loss: the sum over all users of
  (f g)^2 is g' (sum a f f') g, M D^2 + V D^2 products instead of M V D (Krichene et al., ICLR
  2019). Linked pairs are subtracted one by one.
"""

from __future__ import annotations

from functools import partial
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp

from ncfbench.models.interaction import DotProduct, Interaction
from ncfbench.models.losses import Pointwise
from ncfbench.sampling.batch import MetUsers

BLOCK_SCORES = 2**22
"""Scores that are in memory at a time: 16 MB, and as much for each of two other arrays."""
CELLS_PER_PAIR = 32
"""Pairs for each linked one from which on the Gramian is used: to look up the vectors of a linked
pair costs as much as some thirty scores of a matrix.
"""

Sums: TypeAlias = tuple[jax.Array, jax.Array, jax.Array]
"""The sum, and its gradient by users and by items."""


def negative_sum(
    users_MxD: jax.Array,
    items_VxD: jax.Array,
    negatives: MetUsers,
    interaction: Interaction,
    loss: Pointwise,
) -> jax.Array:
    """Return the weighted sum of negative losses over all pairs that are not linked, from the
    vectors of the users that are met and of the item slots.
    """
    matrix = type(interaction).matrix
    if not isinstance(interaction, DotProduct) or matrix is not DotProduct.matrix:
        return plain_sum(users_MxD, items_VxD, negatives, interaction, loss)
    users_MxD, items_VxD = interaction.sides(users_MxD, items_VxD)
    cells, pairs = len(users_MxD) * len(items_VxD), len(negatives.linked_user)
    if loss.squares_negatives and cells >= CELLS_PER_PAIR * pairs:
        return gramian_sum(users_MxD, items_VxD, negatives)
    summed: jax.Array = fused_sum(loss, users_MxD, items_VxD, negatives)
    return summed


def plain_sum(
    users_MxD: jax.Array,
    items_VxD: jax.Array,
    negatives: MetUsers,
    interaction: Interaction,
    loss: Pointwise,
) -> jax.Array:
    """Return the sum by its definition, in blocks that the backward pass computes again."""

    @jax.checkpoint
    def block(users: jax.Array, weights: jax.Array, linked_user: jax.Array) -> jax.Array:
        shape = len(users), len(items_VxD)
        is_kept = jnp.ones(shape, bool)
        is_kept = is_kept.at[linked_user, negatives.linked_item].set(False, mode="drop")
        weight = jnp.where(is_kept, weights[:, None] * negatives.item_weight[None, :], 0.0)
        # Where a pair has no weight its score may be anything.
        scores = jnp.where(weight == 0, 0.0, interaction.matrix(users, items_VxD))
        return jnp.sum(weight * loss.negative(scores))

    return jnp.sum(_by_blocks(block, users_MxD, negatives, len(items_VxD)))


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def fused_sum(
    loss: Pointwise, users_MxD: jax.Array, items_VxD: jax.Array, negatives: MetUsers
) -> jax.Array:
    """Return the sum for dot products; there is no gradient by the weights."""
    return _forward(loss, users_MxD, items_VxD, negatives)[0]


def _forward(
    loss: Pointwise, users_MxD: jax.Array, items_VxD: jax.Array, negatives: MetUsers
) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
    """Return the sum, and what the backward pass needs: the gradients."""

    def block(users: jax.Array, weights: jax.Array, linked_user: jax.Array) -> Sums:
        scores = users @ items_VxD.T
        pairs = linked_user, negatives.linked_item
        if loss.costless_score is not None:
            scores = scores.at[pairs].set(loss.costless_score, mode="drop")
        value, slope = loss.negative_and_slope(scores)
        if loss.costless_score is None:
            value, slope = (part.at[pairs].set(0.0, mode="drop") for part in (value, slope))
        by_score = slope * weights[:, None] * negatives.item_weight[None, :]
        # A product with a vector uses both cores, a sum over all elements one. The last product
        # reads its matrix along memory this way round: 1.4 instead of 1.9 ms.
        summed = weights @ (value @ negatives.item_weight)
        return summed, by_score @ items_VxD, (users.T @ by_score).T

    value, by_users, by_items = _by_blocks(block, users_MxD, negatives, len(items_VxD))
    by_users = by_users.reshape(-1, users_MxD.shape[1])[: len(users_MxD)]
    return jnp.sum(value), (by_users, jnp.sum(by_items, axis=0))


def _backward(
    loss: Pointwise, gradients: tuple[jax.Array, jax.Array], cotangent: jax.Array
) -> tuple[jax.Array, jax.Array, None]:
    by_users, by_items = gradients
    return cotangent * by_users, cotangent * by_items, None


fused_sum.defvjp(_forward, _backward)


def gramian_sum(users_MxD: jax.Array, items_VxD: jax.Array, negatives: MetUsers) -> jax.Array:
    """Return the sum of squared dot products, by way of the users' Gramian."""
    gramian = users_MxD.T @ (negatives.user_weight[:, None] * users_MxD)
    of_item = jnp.sum((items_VxD @ gramian) * items_VxD, axis=-1)
    user, item = negatives.linked_user, negatives.linked_item
    vectors = users_MxD.at[user].get(mode="fill", fill_value=0.0)
    weight = negatives.user_weight.at[user].get(mode="fill", fill_value=0.0)
    linked = jnp.square(jnp.sum(vectors * items_VxD[item], axis=-1))
    weights = weight * negatives.item_weight[item]
    summed: jax.Array = negatives.item_weight @ of_item - jnp.sum(weights * linked)
    return summed


def _by_blocks(function: Any, users_MxD: jax.Array, negatives: MetUsers, n_items: int) -> Any:
    """Return ``function(users, weights, linked users)`` of each block of users, stacked.

    Users after the last one have no weight; linked users outside a block get an index past its end.
    """
    count, weights = len(users_MxD), negatives.user_weight
    n_blocks = max(-(-count * n_items // BLOCK_SCORES), 1)
    size = -(-count // n_blocks)
    padding = n_blocks * size - count
    users = jnp.pad(users_MxD, ((0, padding), (0, 0))).reshape(n_blocks, size, -1)
    weights = jnp.pad(weights, (0, padding)).reshape(n_blocks, size)

    def one(arguments: tuple[jax.Array, jax.Array, jax.Array]) -> Any:
        first, users, weights = arguments
        linked = negatives.linked_user - first
        return function(users, weights, jnp.where(linked < 0, size, linked))

    firsts = jnp.arange(n_blocks, dtype=jnp.int32) * size
    if n_blocks == 1:
        found = one((firsts[0], users[0], weights[0]))
        return jax.tree.map(lambda leaf: leaf[None], found)
    return jax.lax.map(one, (firsts, users, weights))
