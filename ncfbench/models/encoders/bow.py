"""The bag of words: the mean of word vectors, dense. The baseline that costs least."""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from numpy.typing import NDArray

from ncfbench.config import RunConfig
from ncfbench.models.encoders.protocol import DataFacts, EncoderInput, embedding
from ncfbench.models.vectors import unit_vectors


@dataclass(frozen=True, eq=False)
class Weights:
    """Constant weights of token ids, which are no parameters: float32[W + 1], 0 of padding."""

    values: NDArray[np.float32]


class BagOfWords(nnx.Module):
    """Word embedding -> mean over the words of the text -> dense; the words' order is lost.

    With ``idf`` the mean is weighted by inverse document frequencies; with ``unit_bag`` it is
    scaled to unit length.
    """

    def __init__(self, config: RunConfig, data: DataFacts, *, rngs: nnx.Rngs) -> None:
        self.words = embedding(data.words + 1, config.word_dimension, rngs)
        self.dense = nnx.Linear(config.word_dimension, config.dimension, rngs=rngs)
        self.weights: Weights | None = None
        if config.idf:
            assert data.idf is not None, "facts of a data set"
            self.weights = Weights(data.idf())
        self.has_unit_length = config.unit_bag

    def __call__(self, texts: EncoderInput) -> jax.Array:
        """Return float32[V, D]; the bias alone for a text without words."""
        words_VxLxE, present = self.words(texts.tokens), texts.present[..., None]
        if self.weights is None:
            total_VxE = jnp.sum(jnp.where(present, words_VxLxE, 0), axis=1)
            mean_VxE = total_VxE / jnp.maximum(jnp.sum(present, axis=1), 1)
        else:
            weight = jnp.asarray(self.weights.values)[texts.tokens][..., None] * present
            total_VxE = jnp.sum(weight * words_VxLxE, axis=1)
            mean_VxE = total_VxE / jnp.maximum(jnp.sum(weight, axis=1), 1)
        return self.dense(unit_vectors(mean_VxE) if self.has_unit_length else mean_VxE)
