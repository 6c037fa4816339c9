"""Embeddings of many nodes outside training: in blocks of one size, so that memory is bounded and
one compilation serves.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from numpy.typing import NDArray

from ncfbench.models.precision import full
from ncfbench.models.towers import Content, Towers
from ncfbench.training.step import Parameters

BLOCK_WORDS = 2**16
"""Word slots of a block of items: some 50 MB of activity in the convolution."""


class Embedder:
    """f of all users and g of many items, dropout off, in full float32."""

    def __init__(self, towers: nnx.GraphDef[Towers], content: Content) -> None:
        self.content = content
        length = max(int(content.tokens.shape[1]), 1)
        self.block = int(np.clip(BLOCK_WORDS // length, 32, 4096))
        self._users = jax.jit(full(lambda parameters: _all_users(nnx.merge(towers, parameters))))
        self._items = jax.jit(
            full(
                lambda parameters, ids, content: nnx.merge(towers, parameters).embed_items(
                    ids, content
                )
            )
        )

    def users(self, parameters: Parameters) -> jax.Array:
        """float32[n_users, D]."""
        vectors: jax.Array = self._users(parameters)
        return vectors

    def items(self, parameters: Parameters, ids: NDArray[np.int32]) -> jax.Array:
        """float32[len(ids), D]; one dispatch for each block (a convolution inside a scan is slow on
        CPU).
        """
        n_blocks = max(1, -(-len(ids) // self.block))
        padded = np.zeros(n_blocks * self.block, np.int32)
        padded[: len(ids)] = ids
        parts = [
            self._items(parameters, block, self.content)
            for block in padded.reshape(n_blocks, self.block)
        ]
        return jnp.concatenate(parts)[: len(ids)]


def _all_users(towers: Towers) -> jax.Array:
    return towers.finish(towers.users.embedding[...])
