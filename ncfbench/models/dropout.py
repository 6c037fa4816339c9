"""Dropout by a counter: a function of (seed, iteration, item, position) only.

Padding, the order of a batch's items and the number of devices change nothing.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

FIRST_OUTPUT = 1 << 31
"""Position of an item vector's first number; words count from 0."""


PARITY = 0x1BD11BDA
ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
"""Threefry's constants (Salmon et al. 2011)."""


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
        key = self.seed.astype(jnp.uint32), self.iteration.astype(jnp.uint32)
        bits, _ = threefry(key, (item, position))
        threshold = min(round(rate * 2**32), 2**32 - 1)
        keep: jax.Array = bits >= jnp.uint32(threshold)
        return keep


def threefry(
    key: tuple[jax.Array, jax.Array], counter: tuple[jax.Array, jax.Array]
) -> tuple[jax.Array, jax.Array]:
    """Return the two words of Threefry-2x32 with 20 rounds (Salmon et al. 2011).

    :func:`jax.extend.random.threefry_2x32` gives the same bits. On a CPU it is compiled into loops,
    which cannot be fused with what uses the bits.

    Args:
        key: uint32, scalars.
        counter: uint32, of one shape.
    """
    keys = (*key, key[0] ^ key[1] ^ jnp.uint32(PARITY))
    x, y = counter[0] + keys[0], counter[1] + keys[1]
    for block in range(5):
        for turn in ROTATIONS[block % 2]:
            x = x + y
            y = (y << turn) | (y >> (32 - turn))
            y = x ^ y
        x = x + keys[(block + 1) % 3]
        y = y + keys[(block + 2) % 3] + jnp.uint32(block + 1)
    return x, y
