"""The score of a user and an item: the dot product of their vectors (KDD 2017, section 3)."""

from __future__ import annotations

import jax
import jax.numpy as jnp


def pair_scores(users: jax.Array, items: jax.Array) -> jax.Array:
    """Return the scores [...] of users and items [..., D] that broadcast: sums of products."""
    return jnp.sum(users * items, axis=-1)


def score_matrix(users_MxD: jax.Array, items_VxD: jax.Array) -> jax.Array:
    """Return the scores [M, V] of each user and each item, one matrix product."""
    return users_MxD @ items_VxD.T


def unit_vectors(vectors: jax.Array) -> jax.Array:
    """Divide each row by its length; a row of zeros stays as it is, with a gradient of zero."""
    squared = jnp.sum(jnp.square(vectors), axis=-1, keepdims=True)
    is_zero = squared < 1e-24
    return jnp.where(is_zero, 0.0, vectors * jax.lax.rsqrt(jnp.where(is_zero, 1.0, squared)))
