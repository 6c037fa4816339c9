"""Dropout by a counter: a function of (seed, iteration, item, position) only.

Padding, the order of a batch's items and the number of devices change nothing.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.extend.random import threefry_2x32

FIRST_OUTPUT = 1 << 31
"""Position of an item vector's first number; words count from 0."""
FIRST_FEATURE = 1 << 30
"""Position of an item's first dense feature."""


class Dropout(NamedTuple):
    """The randomness of one iteration."""

    seed: jax.Array
    """uint32: the run's seed."""
    iteration: jax.Array
    """uint32: the optimiser step."""

    def keep(self, items: jax.Array, count: int, rate: float, first: int = 0) -> jax.Array:
        """Return bool[V, count]: which of the positions ``first``, ... stay in each item.

        Each stays with probability ``1 - rate``. The bits are Threefry's (Salmon et al. 2011) of
        the counter (item, position) under the key (seed, iteration).
        """
        shape = (items.shape[0], count)
        item = jnp.broadcast_to(items.astype(jnp.uint32)[:, None], shape)
        position = jnp.broadcast_to(
            (jnp.arange(count, dtype=jnp.uint32) + jnp.uint32(first))[None, :], shape
        )
        key = jnp.stack([self.seed.astype(jnp.uint32), self.iteration.astype(jnp.uint32)])
        bits = threefry_2x32(key, jnp.concatenate([item.reshape(-1), position.reshape(-1)]))
        threshold = min(round(rate * 2**32), 2**32 - 1)
        keep: jax.Array = bits[: item.size].reshape(shape) >= jnp.uint32(threshold)
        return keep
