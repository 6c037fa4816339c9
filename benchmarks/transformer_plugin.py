"""A small transformer as a plug-in: an encoder that the cost model was not made for.

    PYTHONPATH=benchmarks ncfbench profile --encoder transformer_plugin:Transformer

Pre-norm blocks (Xiong et al. 2020) of multi-head self-attention and a hidden layer, with learned
positions; the mean over a text's words, dense. Its parameters begin at random: it is here for its
arithmetic, whose cost grows with texts in other ways than a convolution's.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from flax import nnx

from ncfbench.config import RunConfig
from ncfbench.models.encoders.protocol import EMBEDDING_SCALE, DataSizes, Texts
from ncfbench.settings import Setting

POSITIONS = 512
"""Rows of the table of positions; words behind the last share its row."""


class Block(nnx.Module):
    """Self-attention and a hidden layer of four times the width, each behind a normalisation and
    added to its input.
    """

    def __init__(self, width: int, heads: int, *, rngs: nnx.Rngs) -> None:
        self.before_attention = nnx.LayerNorm(width, rngs=rngs)
        self.attention = nnx.MultiHeadAttention(
            heads, width, decode=False, deterministic=True, keep_rngs=False, rngs=rngs
        )
        self.before_hidden = nnx.LayerNorm(width, rngs=rngs)
        self.hidden = nnx.Linear(width, 4 * width, rngs=rngs)
        self.output = nnx.Linear(4 * width, width, rngs=rngs)

    def __call__(self, words_VxLxE: jax.Array, present: jax.Array) -> jax.Array:
        """Return float32[V, L, E]; positions see the words that are present."""
        # Each query may look at the text's own words; what stands elsewhere is masked.
        mask_Vx1x1xL = present[:, None, None, :]
        words_VxLxE += self.attention(self.before_attention(words_VxLxE), mask=mask_Vx1x1xL)
        hidden = nnx.gelu(self.hidden(self.before_hidden(words_VxLxE)))
        result: jax.Array = words_VxLxE + self.output(hidden)
        return result


class Transformer(nnx.Module):
    """Word and position embeddings -> transformer blocks -> mean over the words -> dense."""

    title = "Transformer"
    summary = "word and position embeddings, self-attention, mean over the words, dense"
    uses = ("word_dropout",)
    settings = (
        Setting("layers", 2, "Blocks of self-attention and a hidden layer", at_least=1),
        Setting("heads", 2, "Heads of the self-attention", at_least=1),
        Setting("width", 64, "Length of a word's vector, a multiple of the heads", at_least=1),
    )

    def __init__(self, config: RunConfig, sizes: DataSizes, *, rngs: nnx.Rngs) -> None:
        normal = nnx.initializers.normal(EMBEDDING_SCALE)
        width = config.width
        self.words = nnx.Embed(sizes.words + 1, width, embedding_init=normal, rngs=rngs)
        self.positions = nnx.Embed(POSITIONS, width, embedding_init=normal, rngs=rngs)
        self.blocks = nnx.List(
            [Block(width, config.heads, rngs=rngs) for _ in range(config.layers)]
        )
        self.normal = nnx.LayerNorm(width, rngs=rngs)
        self.dense = nnx.Linear(width, config.dimension, rngs=rngs)

    def __call__(self, texts: Texts) -> jax.Array:
        """Return float32[V, D]; the bias alone for a text without words."""
        positions = jnp.minimum(jnp.arange(texts.tokens.shape[1]), POSITIONS - 1)
        words_VxLxE = self.words(texts.tokens) + self.positions(positions)[None]
        for block in self.blocks:
            words_VxLxE = block(words_VxLxE, texts.present)
        present = texts.present[..., None]
        total_VxE = jnp.sum(jnp.where(present, self.normal(words_VxLxE), 0), axis=1)
        return self.dense(total_VxE / jnp.maximum(jnp.sum(present, axis=1), 1))
