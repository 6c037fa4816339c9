"""The parts of a transformer's block: self-attention and the hidden layer (Vaswani et al. 2017)."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from flax import nnx

HIDDEN_SCORE = -1e9
"""Score of a word that must not be seen: its share is exactly zero beside any other's."""


class SelfAttention(nnx.Module):
    """Scaled dot-product self-attention with several heads."""

    def __init__(self, width: int, heads: int, *, rngs: nnx.Rngs) -> None:
        self.heads = heads
        # Queries, keys and values of all heads, concatenated.
        self.inputs = nnx.Linear(width, 3 * width, rngs=rngs)
        self.output = nnx.Linear(width, width, rngs=rngs)

    def __call__(self, words_RxLxE: jax.Array, texts_RxL: jax.Array) -> jax.Array:
        """Return float32[R, L, E]; a word sees the words of its own text in its row.

        Args:
            texts_RxL: numbers of the texts, as in :data:`ncfbench.models.encoders.packing.Encode`.
        """
        rows, length, width = words_RxLxE.shape
        shape = rows, length, self.heads, width // self.heads
        query, key, value = (part.reshape(shape) for part in self._inputs(words_RxLxE))
        scores_RxHxLxL = jnp.einsum("rqhd,rkhd->rhqk", query, key) * shape[-1] ** -0.5
        is_own_RxLxL = texts_RxL[:, :, None] == texts_RxL[:, None, :]
        scores_RxHxLxL = jnp.where(is_own_RxLxL[:, None], scores_RxHxLxL, HIDDEN_SCORE)
        shares_RxHxLxL = jax.nn.softmax(scores_RxHxLxL, axis=-1)
        seen = jnp.einsum("rhqk,rkhd->rqhd", shares_RxHxLxL, value)
        return self.output(seen.reshape(rows, length, width))

    def _inputs(self, words_RxLxE: jax.Array) -> list[jax.Array]:
        """Return queries, keys and values, float32[R, L, E] each, as products of slices of the
        weights: cutting one product's result in three instead takes MiniLM 8 % longer.
        """
        assert self.inputs.bias is not None
        kernels = jnp.split(self.inputs.kernel[...], 3, axis=1)
        biases = jnp.split(self.inputs.bias[...][None, None, :], 3, axis=2)
        return [words_RxLxE @ kernel + bias for kernel, bias in zip(kernels, biases, strict=True)]


class FeedForward(nnx.Module):
    """One hidden layer, applied to each position by itself.

    Args:
        approximate: of GELU, by a hyperbolic tangent.
    """

    def __init__(self, width: int, units: int, *, approximate: bool = True, rngs: nnx.Rngs) -> None:
        self.approximate = approximate
        self.hidden = nnx.Linear(width, units, rngs=rngs)
        self.output = nnx.Linear(units, width, rngs=rngs)

    def __call__(self, words_RxLxE: jax.Array) -> jax.Array:
        """Return float32[R, L, E]."""
        hidden = nnx.gelu(self.hidden(words_RxLxE), approximate=self.approximate)
        return self.output(hidden)
