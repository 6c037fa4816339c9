"""The recurrent encoder: words, LSTM, dense.

Hochreiter and Schmidhuber 1997; KDD 2017, section 5.2.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from flax import nnx

from ncfbench.config import RunConfig
from ncfbench.models.encoders.protocol import DataFacts, EncoderInput, embedding
from ncfbench.models.encoders.recurrence import grouped_recur, plain_recur


class Lstm(nnx.Module):
    """Word embedding -> LSTM over the words of the text -> its last output -> dense.

    A word that dropout removed is skipped, as if the text did not have it.
    """

    def __init__(self, config: RunConfig, data: DataFacts, *, rngs: nnx.Rngs) -> None:
        units = config.lstm_units
        self.words = embedding(data.words + 1, config.word_dimension, rngs)
        self.input_gates = nnx.Linear(config.word_dimension, 4 * units, rngs=rngs)
        self.recurrent_gates = nnx.Linear(
            units, 4 * units, use_bias=False, kernel_init=nnx.initializers.orthogonal(), rngs=rngs
        )
        self.dense = nnx.Linear(units, config.dimension, rngs=rngs)

    def __call__(self, texts: EncoderInput) -> jax.Array:
        """Return float32[V, D]; the bias alone for a text without words."""
        bias = self.input_gates.bias
        assert bias is not None
        recur = grouped_recur if jax.default_backend() == "cpu" else plain_recur
        kernel = jnp.concatenate([self.input_gates.kernel[...], self.recurrent_gates.kernel[...]])
        return self.dense(recur(self.words.embedding[...], kernel, bias[...], texts))
