"""cuDNN's LSTM, for NVIDIA GPUs: one call for the whole loop over the words, where XLA's would
launch kernels for each.

Not measured. The layout of its weights is that of :mod:`jax.experimental.rnn`, with gates in the
order i, f, g, o; its second bias, which our LSTM lacks, holds the 1 by which our forget gate starts
open.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax.experimental import rnn

from ncfbench.models.device import compute_capability


def available() -> bool:
    """Whether JAX computes on an NVIDIA GPU."""
    return compute_capability() is not None


def packed_weights(
    input_kernel_Ex4H: jax.Array, input_bias_4H: jax.Array, recurrent_kernel_Hx4H: jax.Array
) -> jax.Array:
    """float32[4H (E + H + 2)]: our parameters as cuDNN wants them.

    The kernels' transposes, row by row, then both biases::

        W_ih [4H, E] | W_hh [4H, H] | b_ih [4H] | b_hh [4H] = (0.. 1.. 0.. 0..)
    """
    units = recurrent_kernel_Hx4H.shape[0]
    open_forget_gate = jnp.zeros_like(input_bias_4H).at[units : 2 * units].set(1)
    parts = (input_kernel_Ex4H.T, recurrent_kernel_Hx4H.T, input_bias_4H, open_forget_gate)
    return jnp.concatenate([part.reshape(-1) for part in parts])


def last_output(
    inputs_VxLxE: jax.Array,
    lengths_V: jax.Array,
    input_kernel_Ex4H: jax.Array,
    input_bias_4H: jax.Array,
    recurrent_kernel_Hx4H: jax.Array,
) -> jax.Array:
    """float32[V, H]: the LSTM's output at the last word of each text; zeros for a text without
    words.

    Sums are float32. Products are TF32 where :func:`ncfbench.models.precision.at` was asked for
    less than float32.

    Args:
        inputs_VxLxE: float32; what stands behind a text's last word does not matter.
        lengths_V: int32: words of each text, 0 to L.
        input_kernel_Ex4H, input_bias_4H, recurrent_kernel_Hx4H: float32, gates in the order i, f,
            g, o; the forget gate is the sigmoid of f + 1.
    """
    units, (n_texts, _, width) = recurrent_kernel_Hx4H.shape[0], inputs_VxLxE.shape
    zeros = jnp.zeros((1, n_texts, units), inputs_VxLxE.dtype)
    _, last_1xVxH, _ = rnn.lstm(
        inputs_VxLxE,
        zeros,
        zeros,
        packed_weights(input_kernel_Ex4H, input_bias_4H, recurrent_kernel_Hx4H),
        jnp.maximum(lengths_V, 1),  # cuDNN knows no empty sequence
        width,
        units,
        1,
        0.0,
        False,
    )
    return jnp.where((lengths_V > 0)[:, None], last_1xVxH[0], 0)
