"""A transformer's block: self-attention and a hidden layer (Vaswani et al. 2017)."""

from __future__ import annotations

from typing import Any

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


class Block(nnx.Module):
    """Self-attention and a hidden layer, each added to its input.

    Args:
        units: of the hidden layer.
        norms_first: normalise the inputs of both (Xiong et al. 2020), instead of the sums.
        approximate: of GELU, by a hyperbolic tangent.
        norm: arguments of the normalisations.
    """

    def __init__(
        self,
        width: int,
        heads: int,
        units: int,
        *,
        norms_first: bool = True,
        approximate: bool = True,
        rngs: nnx.Rngs,
        **norm: Any,
    ) -> None:
        self.norms_first, self.approximate = norms_first, approximate
        self.attention_norm = nnx.LayerNorm(width, rngs=rngs, **norm)
        self.attention = SelfAttention(width, heads, rngs=rngs)
        self.hidden_norm = nnx.LayerNorm(width, rngs=rngs, **norm)
        self.hidden = nnx.Linear(width, units, rngs=rngs)
        self.output = nnx.Linear(units, width, rngs=rngs)

    def __call__(self, words_RxLxE: jax.Array, texts_RxL: jax.Array) -> jax.Array:
        """Return float32[R, L, E]."""
        if self.norms_first:
            words_RxLxE += self.attention(self.attention_norm(words_RxLxE), texts_RxL)
            words_RxLxE += self._feed_forward(self.hidden_norm(words_RxLxE))
        else:
            words_RxLxE = self.attention_norm(words_RxLxE + self.attention(words_RxLxE, texts_RxL))
            words_RxLxE = self.hidden_norm(words_RxLxE + self._feed_forward(words_RxLxE))
        return words_RxLxE

    def _feed_forward(self, words_RxLxE: jax.Array) -> jax.Array:
        return self.output(nnx.gelu(self.hidden(words_RxLxE), approximate=self.approximate))
