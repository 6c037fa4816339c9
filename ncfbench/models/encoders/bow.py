"""The bag of words: the mean of word vectors, dense. The baseline that costs least."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from ncfbench.config import RunConfig
from ncfbench.models.encoders.protocol import DataFacts, EncoderInput, embedding
from ncfbench.sampling.batch import rounded_up

WIDE = 100
"""Length of word vectors from which a CPU sums texts block by block. Shorter ones gain as well, but
runs with the default of 50 keep their bits.
"""
BLOCK_WORDS = 128
"""Words whose vectors are in memory at a time: they stay in the cache."""


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
    """Sum texts to the value and gradient of :func:`plain_sums`, some present words at a time.

    The words' vectors of all texts at once, and as many of gradients, leave the cache: with 300
    numbers each the two take twice to three times as long (docs/models.md). It has no
    forward-mode derivative.
    """
    return _forward(table, tokens_VxL, present_VxL)[0]


def _forward(
    table: jax.Array, tokens_VxL: jax.Array, present_VxL: jax.Array
) -> tuple[jax.Array, Any]:
    (texts, length), present = tokens_VxL.shape, present_VxL.reshape(-1)
    size = rounded_up(present.size, BLOCK_WORDS)
    slots = jnp.flatnonzero(present, size=size, fill_value=present.size).reshape(-1, BLOCK_WORDS)
    text_of, zeros = slots // length, jnp.zeros((texts, table.shape[1]), table.dtype)
    # Past the present words, indices past the last row: these are dropped.
    words = tokens_VxL.reshape(-1).at[slots].get(mode="fill", fill_value=len(table))
    blocks = (jnp.sum(present) + BLOCK_WORDS - 1) // BLOCK_WORDS
    return _add_rows(zeros, text_of, table, words, blocks), (table, words, text_of, blocks)


def _backward(kept: Any, gradient_VxE: jax.Array) -> tuple[jax.Array, None, None]:
    table, words, texts, blocks = kept
    return _add_rows(jnp.zeros_like(table), words, gradient_VxE, texts, blocks), None, None


def _add_rows(
    total: jax.Array, to: jax.Array, source: jax.Array, rows: jax.Array, blocks: Any
) -> Any:
    """Add some rows of the source to rows of the total, in its place, block by block."""

    def add(block: jax.Array, total: jax.Array) -> jax.Array:
        return total.at[to[block]].add(source.at[rows[block]].get(mode="clip"), mode="drop")

    return jax.lax.fori_loop(0, blocks, add, total)


block_sums.defvjp(_forward, _backward)
