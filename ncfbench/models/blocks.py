"""Rows in blocks: a function of many rows, computed for a few of them at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

SORTED_WORDS = 2**11
"""Word slots of a block of costly texts, half a second of MiniLM on two cores."""
LENGTHS = 4
"""Lengths to which blocks of costly texts are padded: quarters of the longest."""


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


def by_length(
    lengths: NDArray[np.integer], longest: int
) -> tuple[NDArray[np.intp], list[tuple[int, NDArray[np.intp]]]]:
    """Return the order of texts by length, the longest first, and blocks of positions in it, each
    with the length that its texts are padded or cut to; the last text fills the last block.

    Args:
        lengths: int[n], words of each text.
        longest: at least the largest of these.
    """
    order = np.argsort(-lengths, kind="stable")
    blocks, start = [], 0
    while start < len(order):
        quarters = max(-(-LENGTHS * int(lengths[order[start]]) // longest), 1)
        length = -(-quarters * longest // LENGTHS)
        count = max(SORTED_WORDS // length, 1)
        blocks.append((length, np.minimum(np.arange(start, start + count), len(order) - 1)))
        start += count
    return order, blocks
