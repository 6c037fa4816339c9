"""The transformer encoder, trained from scratch: words and positions, self-attention, mean, dense.

Vaswani et al. 2017; blocks that normalise first, as in Xiong et al. 2020.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from flax import nnx

from ncfbench.config import RunConfig
from ncfbench.models.encoders import packing
from ncfbench.models.encoders.attention import Block
from ncfbench.models.encoders.protocol import DataFacts, EncoderInput, embedding

POSITIONS = 512
"""Rows of the table of positions; later words share the last row."""
SHAPE = packing.Shape(row_words=128, block_words=1024, block_rows=1)
"""Rows of 64 and of 256 take 4 to 40 % longer, and blocks of twice the size 20 %."""


class Stack(nnx.Module):
    """Positions, blocks, and a last normalisation."""

    def __init__(self, config: RunConfig, *, rngs: nnx.Rngs) -> None:
        width, sizes = config.width, (config.width, config.heads, config.feed_forward)
        self.positions = embedding(POSITIONS, width, rngs)
        self.blocks = nnx.List([Block(*sizes, rngs=rngs) for _ in range(config.layers)])
        self.last_norm = nnx.LayerNorm(width, rngs=rngs)

    def __call__(
        self, words_RxLxE: jax.Array, positions: jax.Array, texts_RxL: jax.Array
    ) -> jax.Array:
        """Return float32[R, L, E]; see :data:`ncfbench.models.encoders.packing.Encode`."""
        words_RxLxE += self.positions(jnp.minimum(positions, POSITIONS - 1))
        for block in self.blocks:
            words_RxLxE = block(words_RxLxE, texts_RxL)
        normed: jax.Array = self.last_norm(words_RxLxE)
        return normed


class Transformer(nnx.Module):
    """Word and position embeddings -> blocks of self-attention -> mean over the words -> dense.

    A word that dropout removed is neither seen nor part of the mean; the others keep their
    positions.
    """

    def __init__(self, config: RunConfig, data: DataFacts, *, rngs: nnx.Rngs) -> None:
        self.words = embedding(data.words + 1, config.width, rngs)
        self.stack = Stack(config, rngs=rngs)
        self.dense = nnx.Linear(config.width, config.dimension, rngs=rngs)

    def __call__(self, texts: EncoderInput) -> jax.Array:
        """Return float32[V, D]; the bias alone for a text without words."""
        table = self.words.embedding[...]
        return self.dense(packing.run(Stack.__call__, self.stack, table, texts, SHAPE))
