"""Vectors of unit length."""

from __future__ import annotations

import jax
import jax.numpy as jnp


def unit_vectors(vectors: jax.Array) -> jax.Array:
    """Divide each row by its length; a row of zeros stays as it is, with a gradient of zero."""
    squared = jnp.sum(jnp.square(vectors), axis=-1, keepdims=True)
    is_zero = squared < 1e-24
    return jnp.where(is_zero, 0.0, vectors * jax.lax.rsqrt(jnp.where(is_zero, 1.0, squared)))
