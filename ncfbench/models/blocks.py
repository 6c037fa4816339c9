"""Rows in blocks: a function of many rows, computed for a few of them at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp


def in_blocks(function: Callable[..., jax.Array], arrays: tuple[Any, ...], size: int) -> jax.Array:
    """Return ``function(*arrays)``, [n, ...], for at most ``size`` rows at a time.

    The backward pass computes each block again, so the activations of one block are in memory at a
    time (GradCache: Gao et al. 2021). Rows of zeros fill the last block.

    Args:
        function: row i of its result depends on row i of its arguments alone.
        arrays: [n, ...] each; None is handed on.
    """
    count = len(jax.tree.leaves(arrays)[0])
    blocks = -(-count // size)
    if blocks <= 1:
        return function(*arrays)

    def cut(array: jax.Array) -> jax.Array:
        padding = [(0, blocks * size - count)] + [(0, 0)] * (array.ndim - 1)
        return jnp.pad(array, padding).reshape(blocks, size, *array.shape[1:])

    again = jax.checkpoint(function)
    rows: jax.Array = jax.lax.map(lambda block: again(*block), jax.tree.map(cut, arrays))
    return rows.reshape(blocks * size, *rows.shape[2:])[:count]
