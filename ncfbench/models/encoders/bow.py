"""The bag of words: the mean of word vectors, dense. The baseline that costs least."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from flax import nnx

from ncfbench.config import RunConfig
from ncfbench.models.encoders.protocol import DataFacts, EncoderInput, embedding


class BagOfWords(nnx.Module):
    """Word embedding -> mean over the words of the text -> dense; the words' order is lost."""

    def __init__(self, config: RunConfig, data: DataFacts, *, rngs: nnx.Rngs) -> None:
        self.words = embedding(data.words + 1, config.word_dimension, rngs)
        self.dense = nnx.Linear(config.word_dimension, config.dimension, rngs=rngs)

    def __call__(self, texts: EncoderInput) -> jax.Array:
        """Return float32[V, D]; the bias alone for a text without words."""
        present = texts.present[..., None]
        total_VxE = jnp.sum(jnp.where(present, self.words(texts.tokens), 0), axis=1)
        return self.dense(total_VxE / jnp.maximum(jnp.sum(present, axis=1), 1))
