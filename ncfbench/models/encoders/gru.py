"""The bidirectional recurrent encoder: words, a GRU in each direction, mean over time, dense.

The model of Bansal, Belanger and McCallum 2016 ("Ask the GRU"); the unit is that of Cho et al. 2014
with the reset gate behind the recurrent product, so that a step has one product.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from ncfbench.config import RunConfig
from ncfbench.models.encoders import grouping
from ncfbench.models.encoders.protocol import EMBEDDING_SCALE, Texts
from ncfbench.settings import Setting


class Direction(nnx.Module):
    """A GRU that reads texts in one direction. Gates stand in the order reset, update, new."""

    def __init__(self, word_dimension: int, units: int, *, rngs: nnx.Rngs) -> None:
        self.input_gates = nnx.Linear(word_dimension, 3 * units, rngs=rngs)
        self.recurrent_gates = nnx.Linear(
            units, 3 * units, use_bias=False, kernel_init=nnx.initializers.orthogonal(), rngs=rngs
        )

    def __call__(
        self, words_VxLxE: jax.Array, present_VxL: jax.Array, is_reversed: bool
    ) -> jax.Array:
        """Return float32[V, H]: the sum of the outputs at all words that are present.

        The state passes over other positions as it is.
        """
        inputs_LxVx3H = self.input_gates(jnp.swapaxes(words_VxLxE, 0, 1))
        kernel = self.recurrent_gates.kernel[...]
        units = kernel.shape[0]

        def advance(
            state: tuple[jax.Array, jax.Array], step: tuple[jax.Array, jax.Array]
        ) -> tuple[tuple[jax.Array, jax.Array], None]:
            output_VxH, total_VxH = state
            inputs_Vx3H, is_present = step
            before_Vx3H = output_VxH @ kernel
            gates = jax.nn.sigmoid(inputs_Vx3H[:, : 2 * units] + before_Vx3H[:, : 2 * units])
            reset, update = jnp.split(gates, 2, axis=-1)
            new = jnp.tanh(inputs_Vx3H[:, 2 * units :] + reset * before_Vx3H[:, 2 * units :])
            new = update * output_VxH + (1 - update) * new
            is_present = is_present[:, None]
            return (
                jnp.where(is_present, new, output_VxH),
                total_VxH + jnp.where(is_present, new, 0),
            ), None

        zeros = jnp.zeros((len(present_VxL), units), inputs_LxVx3H.dtype)
        (_, total_VxH), _ = jax.lax.scan(
            advance, (zeros, zeros), (inputs_LxVx3H, present_VxL.T), reverse=is_reversed
        )
        return total_VxH


class Gru(nnx.Module):
    """Word embedding -> GRUs over the words, forwards and backwards -> mean over time -> dense.

    A word that dropout removed is skipped, as if the text did not have it.
    """

    title = "GRU"
    summary = "word embeddings, a GRU in both directions, mean over time, dense"
    uses = ("word_dimension", "word_dropout", "recurrence")
    settings = (
        Setting("gru_units", 50, "Units of the GRU in each direction", at_least=1, since=4),
    )
    negatives = 5

    def __init__(self, config: RunConfig, n_items: int, n_words: int, *, rngs: nnx.Rngs) -> None:
        size, units = config.word_dimension, config.gru_units
        self.words = nnx.Embed(
            n_words + 1,
            size,
            embedding_init=nnx.initializers.normal(EMBEDDING_SCALE),
            rngs=rngs,
        )
        self.directions = nnx.List([Direction(size, units, rngs=rngs) for _ in range(2)])
        self.way = config.recurrence
        self.dense = nnx.Linear(2 * units, config.dimension, rngs=rngs)

    def __call__(self, texts: Texts) -> jax.Array:
        """Return float32[V, D]; the bias alone for a text without words."""
        graph, parameters = nnx.split(self.directions)

        def encode(
            parameters: Any, words_VxLxE: jax.Array, positions: jax.Array, present_VxL: jax.Array
        ) -> jax.Array:
            forwards, backwards = nnx.merge(graph, parameters)
            count = jnp.maximum(jnp.sum(present_VxL, axis=1, keepdims=True), 1)
            total_Vx2H = jnp.concatenate(
                [
                    forwards(words_VxLxE, present_VxL, is_reversed=False),
                    backwards(words_VxLxE, present_VxL, is_reversed=True),
                ],
                axis=1,
            )
            return total_Vx2H / count

        run = grouping.choose(self.way, jax.default_backend())
        return self.dense(run(encode, parameters, self.words.embedding[...], texts))
