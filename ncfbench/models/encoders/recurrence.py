"""An LSTM over words and its last output: plainly, and in groups of texts of about one length.

:func:`grouped_recur` sorts the texts by length and runs each group up to its own longest text, so
that little work is done on padding; the groups' loops do not wait for each other and share the
cores.
Its backward pass takes the gates that the forward pass kept, and sums the recurrent kernel's
gradient in one product after the loop.

Gates stand in the order input, forget, cell, output. A forget gate that starts open, by a constant
of 1, lets long texts learn (Jozefowicz et al. 2015).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp

from ncfbench.models.encoders.protocol import Texts

Recur: TypeAlias = Callable[[jax.Array, jax.Array, jax.Array, jax.Array, Texts], jax.Array]
"""``recur(table_WxE, input_kernel_Ex4H, bias_4H, recurrent_kernel_Hx4H, texts)``: float32[V, H],
the output at each text's last word; zero for a text without words.
"""

GROUPS = 8
"""Number of groups: of 1 to 16 the best or next to it at 184, 512 and 4,272 texts of up to 40 words
and at 160 and 512 of up to 300.
"""


def plain_recur(
    table: jax.Array,
    input_kernel: jax.Array,
    bias: jax.Array,
    recurrent_kernel: jax.Array,
    texts: Texts,
) -> jax.Array:
    """Run all texts step by step to the maximum length, the reference; see :data:`Recur`."""
    inputs_LxVx4H = _inputs(table, input_kernel, bias, texts.tokens, texts.present)

    def advance(
        state: tuple[jax.Array, jax.Array], step: tuple[jax.Array, jax.Array]
    ) -> tuple[tuple[jax.Array, jax.Array], None]:
        output_VxH, cell_VxH = state
        inputs_Vx4H, position = step
        i, f, g, o = _gates(inputs_Vx4H + output_VxH @ recurrent_kernel)
        new_cell = f * cell_VxH + i * g
        in_text = (position < texts.lengths)[:, None]
        return (
            jnp.where(in_text, o * jnp.tanh(new_cell), output_VxH),
            jnp.where(in_text, new_cell, cell_VxH),
        ), None

    zeros = jnp.zeros((len(texts.tokens), recurrent_kernel.shape[0]), inputs_LxVx4H.dtype)
    positions = jnp.arange(texts.tokens.shape[1])
    (output_VxH, _), _ = jax.lax.scan(advance, (zeros, zeros), (inputs_LxVx4H, positions))
    return output_VxH


def grouped_recur(
    table: jax.Array,
    input_kernel: jax.Array,
    bias: jax.Array,
    recurrent_kernel: jax.Array,
    texts: Texts,
) -> jax.Array:
    """Run texts in groups of about one length, to the same value and gradient; see :data:`Recur`.

    It has no forward-mode derivative.
    """
    order = jnp.argsort(-texts.lengths)
    size = max(1, -(-len(texts.tokens) // GROUPS))
    outputs = []
    for first in range(0, len(texts.tokens), size):
        group = order[first : first + size]
        inputs_LxVx4H = _inputs(
            table, input_kernel, bias, texts.tokens[group], texts.present[group]
        )
        outputs.append(_last_output(inputs_LxVx4H, recurrent_kernel, texts.lengths[group]))
    sorted_VxH = jnp.concatenate(outputs)
    return jnp.zeros_like(sorted_VxH).at[order].set(sorted_VxH, unique_indices=True)


def choose_recur(recurrence: str, backend: str) -> Recur:
    """Return what a value of the setting stands for.

    Args:
        recurrence: ``plain``, ``grouped``, or ``auto``, the faster of the two on the device.
        backend: the kind of device: "cpu", "gpu", ...
    """
    if recurrence == "auto":
        recurrence = "grouped" if backend == "cpu" else "plain"
    return grouped_recur if recurrence == "grouped" else plain_recur


def _inputs(
    table: jax.Array, kernel: jax.Array, bias: jax.Array, tokens: jax.Array, present: jax.Array
) -> jax.Array:
    """Return float32[L, V, 4H]: the words' share of all gates, in one product."""
    words_LxVxE = jnp.where(present.T[..., None], table[tokens.T], 0)
    inputs: jax.Array = words_LxVxE @ kernel + bias[None, None, :]
    return inputs


def _gates(sums_Vx4H: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
    i, f, g, o = jnp.split(sums_Vx4H, 4, axis=-1)
    return jax.nn.sigmoid(i), jax.nn.sigmoid(f + 1), jnp.tanh(g), jax.nn.sigmoid(o)


@jax.custom_vjp
def _last_output(inputs_LxVx4H: jax.Array, kernel: jax.Array, lengths: jax.Array) -> jax.Array:
    """Return float32[V, H]: the output at each text's last word."""
    units = kernel.shape[0]
    zeros = jnp.zeros((inputs_LxVx4H.shape[1], units), inputs_LxVx4H.dtype)

    def advance(
        position: jax.Array, state: tuple[jax.Array, jax.Array]
    ) -> tuple[jax.Array, jax.Array]:
        output_VxH, cell_VxH = state
        i, f, g, o = _gates(inputs_LxVx4H[position] + output_VxH @ kernel)
        new_cell = f * cell_VxH + i * g
        in_text = (position < lengths)[:, None]
        return jnp.where(in_text, o * jnp.tanh(new_cell), output_VxH), jnp.where(
            in_text, new_cell, cell_VxH
        )

    output_VxH: jax.Array = jax.lax.fori_loop(0, jnp.max(lengths), advance, (zeros, zeros))[0]
    return output_VxH


def _forward(
    inputs_LxVx4H: jax.Array, kernel: jax.Array, lengths: jax.Array
) -> tuple[jax.Array, Any]:
    length, n_texts, _ = inputs_LxVx4H.shape
    units, dtype = kernel.shape[0], inputs_LxVx4H.dtype
    zeros = jnp.zeros((n_texts, units), dtype)
    # Rows behind the group's longest text stay zero, here and in the backward pass.
    kept = tuple(jnp.zeros((length, n_texts, width), dtype) for width in (4 * units, units, units))

    def advance(position: jax.Array, state: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
        output_VxH, cell_VxH, gates_LxVx4H, cells_LxVxH, outputs_LxVxH = state
        i, f, g, o = _gates(inputs_LxVx4H[position] + output_VxH @ kernel)
        new_cell = f * cell_VxH + i * g
        in_text = (position < lengths)[:, None]
        return (
            jnp.where(in_text, o * jnp.tanh(new_cell), output_VxH),
            jnp.where(in_text, new_cell, cell_VxH),
            gates_LxVx4H.at[position].set(jnp.concatenate([i, f, g, o], axis=-1)),
            cells_LxVxH.at[position].set(cell_VxH),
            outputs_LxVxH.at[position].set(output_VxH),
        )

    output_VxH, _, *kept_before = jax.lax.fori_loop(
        0, jnp.max(lengths), advance, (zeros, zeros, *kept)
    )
    return output_VxH, (*kept_before, kernel, lengths)


def _backward(kept: Any, gradient_VxH: jax.Array) -> tuple[jax.Array, jax.Array, None]:
    gates_LxVx4H, cells_LxVxH, outputs_LxVxH, kernel, lengths = kept
    longest, transposed = jnp.max(lengths), kernel.T

    def retreat(
        step: jax.Array, state: tuple[jax.Array, jax.Array, jax.Array]
    ) -> tuple[jax.Array, jax.Array, jax.Array]:
        of_output, of_cell, of_sums_LxVx4H = state
        position = longest - 1 - step
        i, f, g, o = jnp.split(gates_LxVx4H[position], 4, axis=-1)
        cell = cells_LxVxH[position]
        bent = jnp.tanh(f * cell + i * g)
        of_new_cell = of_cell + of_output * o * (1 - bent * bent)
        of_sums = jnp.concatenate(
            [
                of_new_cell * g * i * (1 - i),
                of_new_cell * cell * f * (1 - f),
                of_new_cell * i * (1 - g * g),
                of_output * bent * o * (1 - o),
            ],
            axis=-1,
        )
        in_text = (position < lengths)[:, None]
        of_sums = jnp.where(in_text, of_sums, 0)
        return (
            jnp.where(in_text, of_sums @ transposed, of_output),
            jnp.where(in_text, of_new_cell * f, of_cell),
            of_sums_LxVx4H.at[position].set(of_sums),
        )

    start = (gradient_VxH, jnp.zeros_like(gradient_VxH), jnp.zeros_like(gates_LxVx4H))
    _, _, of_sums_LxVx4H = jax.lax.fori_loop(0, longest, retreat, start)
    units = kernel.shape[0]
    of_kernel = outputs_LxVxH.reshape(-1, units).T @ of_sums_LxVx4H.reshape(-1, 4 * units)
    return of_sums_LxVx4H, of_kernel, None


_last_output.defvjp(_forward, _backward)
