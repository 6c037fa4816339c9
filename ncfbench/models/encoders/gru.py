"""The bidirectional recurrent encoder: words, a GRU in each direction, mean over time, dense.

The model of Bansal, Belanger and McCallum 2016 ("Ask the GRU"). The unit is that of Cho et al.
2014, with the reset gate after the recurrent product, so that a step has one product.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from ncfbench.config import RunConfig
from ncfbench.models.encoders import packing
from ncfbench.models.encoders.protocol import DataFacts, EncoderInput, embedding

SHAPE = packing.Shape(row_words=40, block_words=0, block_rows=64)
"""Blocks of 256 rows take three times as long at 160 texts, and the same at 4,000."""


class Direction(nnx.Module):
    """A GRU that reads rows of texts in one direction. Gates: reset, update, new."""

    def __init__(self, word_dimension: int, units: int, *, rngs: nnx.Rngs) -> None:
        self.input_gates = nnx.Linear(word_dimension, 3 * units, rngs=rngs)
        self.recurrent_gates = nnx.Linear(
            units, 3 * units, use_bias=False, kernel_init=nnx.initializers.orthogonal(), rngs=rngs
        )

    def __call__(
        self, words_RxLxE: jax.Array, texts_RxL: jax.Array, is_reversed: bool
    ) -> jax.Array:
        """Return float32[R, L, H]: the output at each word. A text begins with a state of zero."""
        kernel = self.recurrent_gates.kernel[...]
        units = kernel.shape[0]

        def advance(
            state: tuple[jax.Array, jax.Array], step: tuple[jax.Array, jax.Array]
        ) -> tuple[tuple[jax.Array, jax.Array], jax.Array]:
            output_RxH, last_R = state
            inputs_Rx3H, text_R = step
            is_word_R = text_R > 0
            output_RxH = jnp.where((is_word_R & (text_R != last_R))[:, None], 0, output_RxH)
            before_Rx3H = output_RxH @ kernel
            gates = jax.nn.sigmoid(inputs_Rx3H[:, : 2 * units] + before_Rx3H[:, : 2 * units])
            reset, update = jnp.split(gates, 2, axis=-1)
            new = jnp.tanh(inputs_Rx3H[:, 2 * units :] + reset * before_Rx3H[:, 2 * units :])
            new = update * output_RxH + (1 - update) * new
            # Where there is no word, the state stays for the text's next one.
            new = jnp.where(is_word_R[:, None], new, output_RxH)
            return (new, jnp.where(is_word_R, text_R, last_R)), new

        inputs_LxRx3H = self.input_gates(jnp.swapaxes(words_RxLxE, 0, 1))
        rows, kind = len(texts_RxL), inputs_LxRx3H.dtype
        start, steps = (jnp.zeros((rows, units), kind), jnp.zeros(rows, jnp.int32)), texts_RxL.T
        _, outputs_LxRxH = jax.lax.scan(advance, start, (inputs_LxRx3H, steps), reverse=is_reversed)
        return jnp.swapaxes(outputs_LxRxH, 0, 1)


class Gru(nnx.Module):
    """Word embedding -> GRUs over the words, forwards and backwards -> mean over time -> dense.

    A word that dropout removed is skipped, as if the text did not have it.
    """

    def __init__(self, config: RunConfig, data: DataFacts, *, rngs: nnx.Rngs) -> None:
        size, units = config.word_dimension, config.gru_units
        self.words = embedding(data.words + 1, size, rngs)
        self.directions = nnx.List([Direction(size, units, rngs=rngs) for _ in range(2)])
        self.dense = nnx.Linear(2 * units, config.dimension, rngs=rngs)

    def __call__(self, texts: EncoderInput) -> jax.Array:
        """Return float32[V, D]; the bias alone for a text without words."""

        def encode(
            directions: Any, words_RxLxE: jax.Array, positions: jax.Array, texts_RxL: jax.Array
        ) -> jax.Array:
            forwards, backwards = directions
            outputs = (
                forwards(words_RxLxE, texts_RxL, is_reversed=False),
                backwards(words_RxLxE, texts_RxL, is_reversed=True),
            )
            return jnp.concatenate(outputs, axis=-1)

        table = self.words.embedding[...]
        return self.dense(packing.run(encode, self.directions, table, texts, SHAPE))
