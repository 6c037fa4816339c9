"""The recurrent encoder: words, LSTM, dense.

Hochreiter and Schmidhuber 1997; KDD 2017, section 5.2. Gates stand in the order input, forget,
cell, output. A forget gate that starts open, by a constant of 1, lets long texts learn (Jozefowicz
et al. 2015). A word that dropout removed is skipped, as if the text did not have it.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from ncfbench.config import RunConfig
from ncfbench.models.encoders.protocol import DataFacts, EncoderInput, embedding

GROUPS = 4
"""Groups of texts: of 1, 2, 4, 8 and 16 the best or within 10 % of it at 160 to 2,900 texts of up
to 20 to 300 words, on one core and on two.
"""


class Lstm(nnx.Module):
    """Word embedding -> LSTM over the words of the text -> its last output -> dense."""

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


def plain_recur(
    table: jax.Array, kernel: jax.Array, bias: jax.Array, texts: EncoderInput
) -> jax.Array:
    """Run all texts step by step to the maximum length, the reference.

    Return float32[V, H], the output at each text's last word that is present; zero for a text
    without words.

    Args:
        table: float32[W, E].
        kernel: float32[E + H, 4H], the input's above the recurrent.
        bias: float32[4H].
    """
    input_kernel, recurrent_kernel = jnp.split(kernel, [table.shape[1]])
    inputs_LxVx4H = table[texts.tokens.T] @ input_kernel + bias[None, None, :]

    def advance(
        state: tuple[jax.Array, jax.Array], step: tuple[jax.Array, jax.Array]
    ) -> tuple[tuple[jax.Array, jax.Array], None]:
        output_VxH, cell_VxH = state
        inputs_Vx4H, present_V = step
        i, f, g, o = _gates(inputs_Vx4H + output_VxH @ recurrent_kernel)
        new_cell = f * cell_VxH + i * g
        is_word = present_V[:, None]
        return (
            jnp.where(is_word, o * jnp.tanh(new_cell), output_VxH),
            jnp.where(is_word, new_cell, cell_VxH),
        ), None

    zeros = jnp.zeros((len(texts.tokens), recurrent_kernel.shape[0]), inputs_LxVx4H.dtype)
    (output_VxH, _), _ = jax.lax.scan(advance, (zeros, zeros), (inputs_LxVx4H, texts.present.T))
    return output_VxH


def grouped_recur(
    table: jax.Array, kernel: jax.Array, bias: jax.Array, texts: EncoderInput
) -> jax.Array:
    """Run texts in groups of about one length, to the value and gradient of :func:`plain_recur`.

    Words that are present move to the front, texts are sorted by their number, and each group runs
    up to its own longest text: no work is done on removed words and little on padding, and the
    groups share the cores. It has no forward-mode derivative.
    """
    to_front = jnp.argsort(~texts.present, axis=1, stable=True)
    tokens = jnp.take_along_axis(texts.tokens, to_front, axis=1)
    lengths = jnp.sum(texts.present, axis=1)
    order = jnp.argsort(-lengths)
    size = max(1, -(-len(tokens) // GROUPS))
    groups = [order[first : first + size] for first in range(0, len(tokens), size)]
    outputs = [
        _last_output(table, kernel, bias, tokens[group].T, lengths[group]) for group in groups
    ]
    sorted_VxH = jnp.concatenate(outputs)
    return jnp.zeros_like(sorted_VxH).at[order].set(sorted_VxH, unique_indices=True)


def _gates(sums_Vx4H: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
    i, f, g, o = jnp.split(sums_Vx4H, 4, axis=-1)
    return jax.nn.sigmoid(i), jax.nn.sigmoid(f + 1), jnp.tanh(g), jax.nn.sigmoid(o)


@jax.custom_vjp
def _last_output(
    table: jax.Array, kernel: jax.Array, bias: jax.Array, tokens_LxV: jax.Array, lengths: jax.Array
) -> jax.Array:
    # Without a gradient the compiler drops the arrays that are kept for it.
    return _forward(table, kernel, bias, tokens_LxV, lengths)[0]


def _forward(
    table: jax.Array, kernel: jax.Array, bias: jax.Array, tokens_LxV: jax.Array, lengths: jax.Array
) -> tuple[jax.Array, Any]:
    """Return the last outputs, and the inputs, cells and gates of each step for the gradient."""

    def advance(position: jax.Array, state: tuple[Any, ...]) -> tuple[Any, ...]:
        output_VxH, cell_VxH, kept = state
        inputs = jnp.concatenate([table[tokens_LxV[position]], output_VxH], axis=-1)
        i, f, g, o = _gates(inputs @ kernel + bias[None, :])
        new_cell = f * cell_VxH + i * g
        steps = inputs, cell_VxH, jnp.concatenate([i, f, g, o], axis=-1)
        kept = tuple(all_.at[position].set(step) for all_, step in zip(kept, steps, strict=True))
        in_text = (position < lengths)[:, None]
        return (
            jnp.where(in_text, o * jnp.tanh(new_cell), output_VxH),
            jnp.where(in_text, new_cell, cell_VxH),
            kept,
        )

    units = kernel.shape[1] // 4
    zeros = jnp.zeros((tokens_LxV.shape[1], units), kernel.dtype)
    # Rows after the group's longest text stay zero and are never read.
    widths = len(kernel), units, 4 * units
    kept = tuple(jnp.zeros((*tokens_LxV.shape, width), kernel.dtype) for width in widths)
    start = zeros, zeros, kept
    output_VxH, _, kept = jax.lax.fori_loop(0, jnp.max(lengths), advance, start)
    return output_VxH, (kept, table, kernel, tokens_LxV, lengths)


def _backward(kept: Any, of_output: jax.Array) -> tuple[jax.Array | None, ...]:
    (inputs_LxVxEH, cells_LxVxH, gates_LxVx4H), table, kernel, tokens_LxV, lengths = kept
    longest, size, transposed = jnp.max(lengths), table.shape[1], kernel.T

    def retreat(step: jax.Array, state: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
        of_output, of_cell, of_table, of_kernel, of_bias = state
        position = longest - 1 - step
        i, f, g, o = jnp.split(gates_LxVx4H[position], 4, axis=-1)
        cell = cells_LxVxH[position]
        bent = jnp.tanh(f * cell + i * g)
        of_new_cell = of_cell + of_output * o * (1 - bent * bent)
        of_i = of_new_cell * g * i * (1 - i)
        of_f = of_new_cell * cell * f * (1 - f)
        of_g = of_new_cell * i * (1 - g * g)
        of_o = of_output * bent * o * (1 - o)
        in_text = (position < lengths)[:, None]
        of_sums = jnp.where(in_text, jnp.concatenate([of_i, of_f, of_g, of_o], axis=-1), 0)
        of_inputs = of_sums @ transposed
        return (
            jnp.where(in_text, of_inputs[:, size:], of_output),
            jnp.where(in_text, of_new_cell * f, of_cell),
            of_table.at[tokens_LxV[position]].add(of_inputs[:, :size]),
            of_kernel + inputs_LxVxEH[position].T @ of_sums,
            of_bias + jnp.sum(of_sums, axis=0),
        )

    totals = jnp.zeros_like(table), jnp.zeros_like(kernel), jnp.zeros_like(kernel[0])
    start = (of_output, jnp.zeros_like(of_output), *totals)
    _, _, of_table, of_kernel, of_bias = jax.lax.fori_loop(0, longest, retreat, start)
    return of_table, of_kernel, of_bias, None, None


_last_output.defvjp(_forward, _backward)
