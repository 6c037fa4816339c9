"""Rows of large tables: found, taken out and put back, without going through a table."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp

from ncfbench.sampling.batch import rounded_up

BLOCK_ROWS = 512
"""Distinct rows that are worked on at a time."""
Carry = TypeVar("Carry")


class Named(NamedTuple):
    """The distinct rows that a batch names of the tables of a kind."""

    ids: jax.Array
    """int32[n]: the rows, then the number of rows of a table, which is none of them."""
    touched: jax.Array
    """int32[n]: iterations that were done after the last update of each."""
    n_rows: jax.Array
    """int32: how many they are."""

    def for_blocks(self, work: Callable[[jax.Array, Carry], Carry], start: Carry) -> Carry:
        """Return ``work(first, carry)`` of all blocks of rows, by the first of each."""
        if len(self.ids) <= BLOCK_ROWS:
            return work(jnp.int32(0), start)
        blocks = (self.n_rows + BLOCK_ROWS - 1) // BLOCK_ROWS
        done: Carry = jax.lax.fori_loop(
            0, blocks, lambda block, carry: work(block * BLOCK_ROWS, carry), start
        )
        return done

    def block(self, first: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Return ``ids`` and ``touched`` of a block."""
        size = min(len(self.ids), BLOCK_ROWS)
        return part(self.ids, first, size), part(self.touched, first, size)


def find_distinct(ids: jax.Array, touched: jax.Array) -> tuple[Named, jax.Array, jax.Array]:
    """Find the distinct ids, without sorting: of the positions that are written to one place, the
    one that stays there represents its id.

    Args:
        ids: int32[n]; -1 is none.
        touched: int32[rows]: iterations that were done after the last update of each row. It is
            overwritten at the ids.

    Returns:
        The distinct ids; what is left of ``touched``; and which of the distinct ones each id is,
        int32[n], from 1 on, 0 for none.
    """
    n, none = len(ids), len(touched)
    last = touched.at[ids].get(mode="clip")
    # No count is negative. The compiler does not know it, so it reads before it writes, in place.
    at = jnp.where((ids >= 0) & (last >= 0), ids, none)
    position = jnp.arange(n, dtype=jnp.int32)
    touched = put(touched, at, position)
    stays = touched.at[at].get(mode="clip")
    is_first = (stays == position) & (at < none)
    number = jnp.cumsum(is_first, dtype=jnp.int32)
    size = n if n <= BLOCK_ROWS else rounded_up(n, BLOCK_ROWS)
    slot = jnp.where(is_first, number - 1, size)
    distinct = put(jnp.full(size, none, jnp.int32), slot, at)
    lasts = put(jnp.zeros(size, jnp.int32), slot, last)
    which = jnp.where(at < none, number.at[stays].get(mode="clip"), 0)
    return Named(distinct, lasts, number[-1]), touched, which


def take(tree: Any, ids: jax.Array) -> Any:
    """Return rows of all arrays of a tree, and its numbers."""
    return jax.tree.map(lambda array: array.at[ids].get(mode="clip") if array.ndim else array, tree)


def put(tree: Any, at: jax.Array, rows: Any) -> Any:
    """Write rows into all arrays of a tree, but for those whose index is beyond the end."""
    return jax.tree.map(
        lambda array, new: array.at[at].set(new, mode="drop") if array.ndim else array, tree, rows
    )


def part(array: jax.Array, first: jax.Array, size: int) -> jax.Array:
    """Return some rows that follow each other."""
    return jax.lax.dynamic_slice_in_dim(array, first, size)
