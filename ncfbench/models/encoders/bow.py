"""The bag of words: the mean of word vectors, dense. The baseline that costs least."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from ncfbench.config import RunConfig
from ncfbench.models.encoders.protocol import DataFacts, EncoderInput, embedding

WIDE = 100
"""Length of word vectors from which a CPU sums texts block by block. Shorter ones gain as well, but
runs with the default of 50 keep their bits.
"""
BLOCK_TEXTS = 16
"""Texts whose words' vectors are in memory at a time: they stay in the cache."""


class BagOfWords(nnx.Module):
    """Word embedding -> mean over the words of the text -> dense; the words' order is lost.

    With ``bare_bag`` the mean is the item's vector, and 0 without words.
    """

    def __init__(self, config: RunConfig, data: DataFacts, *, rngs: nnx.Rngs) -> None:
        self.words = embedding(data.words + 1, config.word_dimension, rngs)
        sizes = config.word_dimension, config.dimension
        self.dense = None if config.bare_bag else nnx.Linear(*sizes, rngs=rngs)

    def __call__(self, texts: EncoderInput) -> jax.Array:
        """Return float32[V, D]; of a text without words the bias alone, or 0."""
        table, present = self.words.embedding[...], texts.present
        is_wide = table.shape[1] >= WIDE and jax.default_backend() == "cpu"
        total_VxE = (block_sums if is_wide else plain_sums)(table, texts.tokens, present)
        mean_VxE = total_VxE / jnp.maximum(jnp.sum(present, axis=1, keepdims=True), 1)
        return mean_VxE if self.dense is None else self.dense(mean_VxE)


def plain_sums(table: jax.Array, tokens_VxL: jax.Array, present_VxL: jax.Array) -> jax.Array:
    """Return the sum of each text's word vectors, float32[V, E]: the reference, and what
    accelerators run.

    Args:
        table: float32[W, E], the vectors of all words.
        present_VxL: bool, where there is a word.
    """
    words_VxLxE = jnp.take(table, tokens_VxL, axis=0)
    return jnp.sum(jnp.where(present_VxL[..., None], words_VxLxE, 0), axis=1)


@jax.custom_vjp
def block_sums(table: jax.Array, tokens_VxL: jax.Array, present_VxL: jax.Array) -> jax.Array:
    """Sum texts block by block, to the value and gradient of :func:`plain_sums`.

    The words' vectors of all texts at once, and as many of gradients, leave the cache: with 300
    numbers each the two take twice to three times as long (docs/models.md). It has no
    forward-mode derivative.
    """
    return _forward(table, tokens_VxL, present_VxL)[0]


def _forward(
    table: jax.Array, tokens_VxL: jax.Array, present_VxL: jax.Array
) -> tuple[jax.Array, Any]:
    def text_sum(text: tuple[jax.Array, jax.Array]) -> jax.Array:
        tokens_L, present_L = text
        return plain_sums(table, tokens_L[None], present_L[None])[0]

    texts = tokens_VxL, present_VxL
    return jax.lax.map(text_sum, texts, batch_size=BLOCK_TEXTS), (table, *texts)


def _backward(kept: Any, gradient_VxE: jax.Array) -> tuple[jax.Array, None, None]:
    """Add each text's gradient to the rows of its words, text by text, in the table's place."""
    table, tokens_VxL, present_VxL = kept
    # No word, no gradient: an index past the last row is dropped.
    rows_VxL = jnp.where(present_VxL, tokens_VxL, len(table))

    def add(
        total: jax.Array, text: tuple[jax.Array, jax.Array, jax.Array]
    ) -> tuple[jax.Array, None]:
        rows_L, present_L, gradient_E = text
        return total.at[rows_L].add(present_L[:, None] * gradient_E[None, :], mode="drop"), None

    texts = rows_VxL, present_VxL, gradient_VxE
    return jax.lax.scan(add, jnp.zeros_like(table), texts)[0], None, None


block_sums.defvjp(_forward, _backward)
