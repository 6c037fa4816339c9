"""Vectors of all users and of many items outside training, and the trained interaction.

Items are embedded in blocks of one size, so that memory is bounded and one compilation serves.
"""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from numpy.typing import NDArray

from ncfbench.models.interaction import Interaction
from ncfbench.models.precision import full
from ncfbench.models.towers import FREE_ITEMS, Content, Towers, UserVectors
from ncfbench.training.step import Parameters

BLOCK_WORDS = 2**16
"""Word slots of a block of items: some 50 MB of activity in the convolution."""


class Embedder:
    """Vectors of all users and of many items, dropout off, in full float32."""

    def __init__(self, towers: nnx.GraphDef[Towers], content: Content) -> None:
        self.towers, self.content = towers, content
        length = max(int(content.tokens.shape[1]), 1)
        self.block = int(np.clip(BLOCK_WORDS // length, 32, 4096))

        @jax.jit
        @full
        def users(parameters: Parameters, content: Content) -> UserVectors:
            return nnx.merge(towers, parameters).users(content)

        @jax.jit
        @full
        def items(parameters: Parameters, ids: jax.Array, content: Content) -> jax.Array:
            return nnx.merge(towers, parameters).items(ids, content)

        @jax.jit
        @full
        def cold_items(parameters: Parameters, ids: jax.Array, content: Content) -> jax.Array:
            return nnx.merge(towers, parameters).cold_items(ids, content)

        self._users, self._items, self._cold_items = users, items, cold_items

    def interaction(self, parameters: Parameters) -> Interaction:
        """Return the interaction with its trained parameters: a tree of arrays."""
        return nnx.merge(self.towers, parameters).interaction

    def users(self, parameters: Parameters) -> UserVectors:
        """Return the vectors of all users, float32[n_users, D]."""
        vectors: UserVectors = self._users(parameters, self.content)
        return vectors

    def items(self, parameters: Parameters, ids: NDArray[np.int32]) -> jax.Array:
        """Return the vectors of items with training links, float32[len(ids), D]."""
        return self._in_blocks(self._items, parameters, ids)

    def cold_items(self, parameters: Parameters, ids: NDArray[np.int32]) -> jax.Array:
        """Return the vectors of items without training links, float32[len(ids), D]."""
        # With direct coupling they are those of all items: one compiled function serves.
        embed = self._cold_items if FREE_ITEMS in parameters else self._items
        return self._in_blocks(embed, parameters, ids)

    def _in_blocks(
        self,
        embed: Callable[[Parameters, NDArray[np.int32], Content], jax.Array],
        parameters: Parameters,
        ids: NDArray[np.int32],
    ) -> jax.Array:
        """Embed a block of items at a time.

        Each block has a dispatch of its own, for a convolution inside a scan is slow on a CPU.
        """
        n_blocks = max(1, -(-len(ids) // self.block))
        padded = np.zeros(n_blocks * self.block, np.int32)
        padded[: len(ids)] = ids
        parts = [
            embed(parameters, block, self.content) for block in padded.reshape(n_blocks, self.block)
        ]
        return jnp.concatenate(parts)[: len(ids)]
