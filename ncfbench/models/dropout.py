"""Dropout that depends on (seed, iteration, item, place) only, so that padding, packing and devices
change nothing.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.extend.random import threefry_2x32

OUTPUT_PLACE = 1 << 31
"""Where the places of the item embedding begin; places of words count from 0."""


class Dropout(NamedTuple):
    """The randomness of one iteration."""

    seed: jax.Array
    """uint32: the run's seed."""
    iteration: jax.Array
    """uint32: the optimiser step."""

    def keep(self, items: jax.Array, places: int, rate: float, first_place: int = 0) -> jax.Array:
        """bool[V, places]: what stays, each with probability ``1 - rate``.

        The bits are Threefry's (Salmon et al. 2011) of the counter (item, place) under the key
        (seed, iteration).
        """
        shape = (items.shape[0], places)
        item = jnp.broadcast_to(items.astype(jnp.uint32)[:, None], shape)
        place = jnp.broadcast_to(
            (jnp.arange(places, dtype=jnp.uint32) + jnp.uint32(first_place))[None, :], shape
        )
        key = jnp.stack([self.seed.astype(jnp.uint32), self.iteration.astype(jnp.uint32)])
        bits = threefry_2x32(key, jnp.concatenate([item.reshape(-1), place.reshape(-1)]))
        threshold = min(round(rate * 2**32), 2**32 - 1)
        keep: jax.Array = bits[: item.size].reshape(shape) >= jnp.uint32(threshold)
        return keep
