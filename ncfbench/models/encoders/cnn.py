"""The convolutional encoder: words, one convolution, maximum over time, dense.

Kim 2014; KDD 2017, section 5.2.
"""

from __future__ import annotations

import jax
from flax import nnx

from ncfbench.config import RunConfig
from ncfbench.models.encoders.pooling import plain_pool, projected_pool
from ncfbench.models.encoders.protocol import DataFacts, EncoderInput, embedding


class Convolution(nnx.Module):
    """Word embedding -> convolution -> ReLU -> max over time -> dense.

    A filter is centred on each word of the text; beyond both ends, and where a word was removed, it
    sees zeros.
    """

    def __init__(self, config: RunConfig, data: DataFacts, *, rngs: nnx.Rngs) -> None:
        size, filters, width = config.word_dimension, config.filters, (config.filter_width,)
        self.words = embedding(data.words + 1, size, rngs)
        self.convolution = nnx.Conv(size, filters, kernel_size=width, padding="SAME", rngs=rngs)
        self.way = config.convolution
        self.dense = nnx.Linear(filters, config.dimension, rngs=rngs)

    def __call__(self, texts: EncoderInput) -> jax.Array:
        """Return float32[V, D]; the bias alone for a text without words."""
        kernel, bias = self.convolution.kernel[...], self.convolution.bias
        assert bias is not None
        is_plain = self.way == "plain" or (self.way == "auto" and jax.default_backend() != "cpu")
        pool = plain_pool if is_plain else projected_pool
        return self.dense(pool(self.words.embedding[...], kernel, bias[...], texts))
