"""The recurrent encoder: words, LSTM, dense (Hochreiter and Schmidhuber 1997; KDD 2017, section 5.2)."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from flax import nnx

from ncfbench.config import RunConfig
from ncfbench.encoders.protocol import EMBEDDING_SCALE, Texts


class Lstm(nnx.Module):
    """Word embedding -> LSTM over the words of the text -> its last output -> dense."""

    def __init__(self, config: RunConfig, n_items: int, n_words: int, *, rngs: nnx.Rngs) -> None:
        units = config.lstm_units
        self.words = nnx.Embed(
            n_words + 1, config.word_dimension, embedding_init=nnx.initializers.normal(EMBEDDING_SCALE), rngs=rngs
        )
        self.input_gates = nnx.Linear(config.word_dimension, 4 * units, rngs=rngs)
        self.recurrent_gates = nnx.Linear(
            units, 4 * units, use_bias=False, kernel_init=nnx.initializers.orthogonal(), rngs=rngs
        )
        self.dense = nnx.Linear(units, config.dimension, rngs=rngs)

    def __call__(self, texts: Texts) -> jax.Array:
        """float32[V, D]; the bias alone for a text without words."""
        words_VxLxE = self.words(texts.tokens) * texts.present[..., None]
        # The input's share of all gates is one large product before the loop.
        inputs_LxVx4H = jnp.swapaxes(self.input_gates(words_VxLxE), 0, 1)
        n_items, units = texts.tokens.shape[0], inputs_LxVx4H.shape[-1] // 4
        kernel_Hx4H = self.recurrent_gates.kernel[...]

        def advance(
            state: tuple[jax.Array, jax.Array], step: tuple[jax.Array, jax.Array]
        ) -> tuple[tuple[jax.Array, jax.Array], None]:
            output_VxH, cell_VxH = state
            inputs_Vx4H, place = step
            i, f, g, o = jnp.split(inputs_Vx4H + output_VxH @ kernel_Hx4H, 4, axis=-1)
            # A forget gate that starts open lets long texts learn (Jozefowicz et al. 2015).
            new_cell = nnx.sigmoid(f + 1) * cell_VxH + nnx.sigmoid(i) * jnp.tanh(g)
            new_output = nnx.sigmoid(o) * jnp.tanh(new_cell)
            in_text = (place < texts.lengths)[:, None]
            return (jnp.where(in_text, new_output, output_VxH), jnp.where(in_text, new_cell, cell_VxH)), None

        zeros = jnp.zeros((n_items, units), inputs_LxVx4H.dtype)
        places = jnp.arange(texts.tokens.shape[1])
        (output_VxH, _), _ = jax.lax.scan(advance, (zeros, zeros), (inputs_LxVx4H, places))
        return self.dense(output_VxH)
