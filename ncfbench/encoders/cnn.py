"""The convolutional encoder: words, one convolution, maximum over time, dense (Kim 2014; KDD 2017, section 5.2)."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from flax import nnx

from ncfbench.config import RunConfig
from ncfbench.encoders.protocol import EMBEDDING_SCALE, Texts


class Convolution(nnx.Module):
    """Word embedding -> convolution -> ReLU -> max over time -> dense.

    A filter is centred on each word of the text; beyond both ends, and where a word was removed, it sees zeros.
    """

    def __init__(self, config: RunConfig, n_items: int, n_words: int, *, rngs: nnx.Rngs) -> None:
        self.words = nnx.Embed(
            n_words + 1, config.word_dimension, embedding_init=nnx.initializers.normal(EMBEDDING_SCALE), rngs=rngs
        )
        self.convolution = nnx.Conv(
            config.word_dimension, config.filters, kernel_size=(config.filter_width,), padding="SAME", rngs=rngs
        )
        self.dense = nnx.Linear(config.filters, config.dimension, rngs=rngs)

    def __call__(self, texts: Texts) -> jax.Array:
        """float32[V, D]; the bias alone for a text without words."""
        words_VxLxE = self.words(texts.tokens) * texts.present[..., None]
        activity_VxLxF = nnx.relu(self.convolution(words_VxLxE))
        in_text_VxL = jnp.arange(texts.tokens.shape[1])[None, :] < texts.lengths[:, None]
        # ReLU's floor is 0, so a zero is never above what a word of the text gives.
        pooled_VxF = jnp.max(activity_VxLxF * in_text_VxL[..., None], axis=1)
        return self.dense(pooled_VxF)
