"""The parts of a transformer's block: self-attention and the hidden layer (Vaswani et al. 2017).

How a block joins them, where it normalises and what its weights are called is the encoder's own.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from flax import nnx

HIDDEN_SCORE = -1e9
"""Score of a word that is not present: its share is exactly zero beside any word that is. It is
finite, so that a text without words has finite gradients.
"""


class SelfAttention(nnx.Module):
    """Scaled dot-product self-attention with several heads."""

    def __init__(self, width: int, heads: int, *, rngs: nnx.Rngs) -> None:
        self.heads = heads
        # Queries, keys and values of all heads in one product.
        self.inputs = nnx.Linear(width, 3 * width, rngs=rngs)
        self.output = nnx.Linear(width, width, rngs=rngs)

    def __call__(self, words_VxLxE: jax.Array, present_VxL: jax.Array) -> jax.Array:
        """Return float32[V, L, E]; every position sees the words that are present."""
        texts, length, width = words_VxLxE.shape
        shape = texts, length, 3, self.heads, width // self.heads
        query, key, value = jnp.moveaxis(self.inputs(words_VxLxE).reshape(shape), 2, 0)
        scores_VxHxLxL = jnp.einsum("vqhd,vkhd->vhqk", query, key) * shape[-1] ** -0.5
        scores_VxHxLxL = jnp.where(present_VxL[:, None, None, :], scores_VxHxLxL, HIDDEN_SCORE)
        shares_VxHxLxL = jax.nn.softmax(scores_VxHxLxL, axis=-1)
        seen = jnp.einsum("vhqk,vkhd->vqhd", shares_VxHxLxL, value)
        return self.output(seen.reshape(texts, length, width))


class FeedForward(nnx.Module):
    """One hidden layer, applied to each position by itself."""

    def __init__(self, width: int, units: int, *, rngs: nnx.Rngs) -> None:
        self.hidden = nnx.Linear(width, units, rngs=rngs)
        self.output = nnx.Linear(units, width, rngs=rngs)

    def __call__(self, words_VxLxE: jax.Array) -> jax.Array:
        """Return float32[V, L, E]."""
        return self.output(nnx.gelu(self.hidden(words_VxLxE)))


def mean_over_words(words_VxLxE: jax.Array, present_VxL: jax.Array) -> jax.Array:
    """Return float32[V, E]: the mean over the words that are present; zero where there are none."""
    present = present_VxL[..., None]
    total_VxE = jnp.sum(jnp.where(present, words_VxLxE, 0), axis=1)
    return total_VxE / jnp.maximum(jnp.sum(present, axis=1), 1)
