"""The bag of words: the mean of word vectors, dense. The baseline that costs least."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from numpy.typing import NDArray

from ncfbench.config import RunConfig
from ncfbench.models.encoders.protocol import DataFacts, EncoderInput, embedding
from ncfbench.models.interaction import unit_vectors

WIDE = 100
"""Length of word vectors from which a CPU sums texts block by block. Shorter ones gain as well, but
runs with the default of 50 keep their bits.
"""
BLOCK_TEXTS = 16
"""Texts whose words' vectors are in memory at a time: they stay in the cache."""


@dataclass(frozen=True, eq=False)
class Weights:
    """Constant weights of token ids, which are no parameters: float32[W + 1], 0 of padding."""

    values: NDArray[np.float32]


class BagOfWords(nnx.Module):
    """Word embedding -> mean over the words of the text -> dense; the words' order is lost.

    With ``idf`` the mean is weighted by inverse document frequencies; with ``unit_bag`` it is
    scaled to unit length. With ``bare_bag`` the mean is the item's vector, and 0 without words.
    """

    def __init__(self, config: RunConfig, data: DataFacts, *, rngs: nnx.Rngs) -> None:
        self.words = embedding(data.words + 1, config.word_dimension, rngs)
        sizes = config.word_dimension, config.dimension
        self.dense = None if config.bare_bag else nnx.Linear(*sizes, rngs=rngs)
        self.weights: Weights | None = None
        if config.idf:
            assert data.idf is not None, "facts of a data set"
            self.weights = Weights(data.idf())
        self.has_unit_length = config.unit_bag

    def __call__(self, texts: EncoderInput) -> jax.Array:
        """Return float32[V, D]; of a text without words the bias alone, or 0."""
        table, weight_VxL = self.words.embedding[...], self._weights(texts)
        is_wide = table.shape[1] >= WIDE and jax.default_backend() == "cpu"
        total_VxE = (block_sums if is_wide else plain_sums)(table, texts.tokens, weight_VxL)
        mean_VxE = total_VxE / jnp.maximum(jnp.sum(weight_VxL, axis=1, keepdims=True), 1)
        bag_VxE = unit_vectors(mean_VxE) if self.has_unit_length else mean_VxE
        return bag_VxE if self.dense is None else self.dense(bag_VxE)

    def _weights(self, texts: EncoderInput) -> jax.Array:
        """Return the weight of each word, [V, L]: 1 or idf, 0 where there is none."""
        if self.weights is None:
            return texts.present
        ids = texts.tokens if texts.words is None else texts.words
        return texts.present * jnp.asarray(self.weights.values)[ids]


def plain_sums(table: jax.Array, tokens_VxL: jax.Array, weight_VxL: jax.Array) -> jax.Array:
    """Return the weighted sum of each text's word vectors, float32[V, E]: the reference, and what
    accelerators run.

    Args:
        table: float32[W, E], the vectors of all words.
        weight_VxL: float32, or bool for 1 and 0; 0 where there is no word.
    """
    words_VxLxE, weight = jnp.take(table, tokens_VxL, axis=0), weight_VxL[..., None]
    if weight.dtype == bool:
        return jnp.sum(jnp.where(weight, words_VxLxE, 0), axis=1)
    return jnp.sum(weight * words_VxLxE, axis=1)


@jax.custom_vjp
def block_sums(table: jax.Array, tokens_VxL: jax.Array, weight_VxL: jax.Array) -> jax.Array:
    """Sum texts block by block, to the value and gradient of :func:`plain_sums`.

    The words' vectors of all texts at once, and as many of gradients, leave the cache: with 300
    numbers each the two take twice to three times as long (docs/encoders.md). It has no
    forward-mode derivative, and none of the weights.
    """
    return _forward(table, tokens_VxL, weight_VxL)[0]


def _forward(
    table: jax.Array, tokens_VxL: jax.Array, weight_VxL: jax.Array
) -> tuple[jax.Array, Any]:
    def text_sum(text: tuple[jax.Array, jax.Array]) -> jax.Array:
        tokens_L, weight_L = text
        return plain_sums(table, tokens_L[None], weight_L[None])[0]

    texts = tokens_VxL, weight_VxL
    return jax.lax.map(text_sum, texts, batch_size=BLOCK_TEXTS), (table, *texts)


def _backward(kept: Any, gradient_VxE: jax.Array) -> tuple[jax.Array, None, None]:
    """Add each text's gradient to the rows of its words, text by text, in the table's place."""
    table, tokens_VxL, weight_VxL = kept
    # No word, no gradient: an index past the last row is dropped.
    rows_VxL = jnp.where(weight_VxL > 0, tokens_VxL, len(table))

    def add(
        total: jax.Array, text: tuple[jax.Array, jax.Array, jax.Array]
    ) -> tuple[jax.Array, None]:
        rows_L, weight_L, gradient_E = text
        return total.at[rows_L].add(weight_L[:, None] * gradient_E[None, :], mode="drop"), None

    texts = rows_VxL, weight_VxL, gradient_VxE
    return jax.lax.scan(add, jnp.zeros_like(table), texts)[0], None, None


block_sums.defvjp(_forward, _backward)
