"""A convolution over words and its maximum over time: plainly, and by projected words.

A filter of width J sees one word through each of its J taps, so a word's contribution at a tap is a
property of the word: ``projected[w, j] = table[w] @ kernel[j]``. The activity at a position is a
sum of J rows of that table, and the gradient of its maximum over time reaches only the J words
under each filter's winning position. So the products are left to each *word of the vocabulary*, the
scattered sums to each *winner*, and a position of a text costs a few additions: exact, and on a CPU
several times as fast (benchmarks/README.md).

The parameters are those of :class:`flax.nnx.Conv` with padding "SAME": kernel float32[J, E, F],
bias float32[F].
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp

from ncfbench.models.encoders.protocol import EncoderInput
from ncfbench.models.precision import convolve

Pool: TypeAlias = Callable[[jax.Array, jax.Array, jax.Array, EncoderInput], jax.Array]
"""``pool(table_WxE, kernel_JxExF, bias_F, texts)``: float32[V, F], the maximum over a text's words
of the activity after ReLU; zero for a text without words.
"""

BLOCK_ACTIVITIES = 2**22
"""Activities computed at a time, 16 MB."""
ROWS_PER_WORD = 4
"""Winners (of all filters and taps) per word of the vocabulary up to which the gradient is added to
the words' rows one by one; above, it is gathered by word and filter first, which costs three passes
over the vocabulary and little for a winner.
"""
KERNEL_ROWS_PER_WORD = 12
"""Winners per word of the vocabulary up to which the kernel's gradient is summed text by text;
above, as one product with that table.
"""

MOST_CELLS = 2**31 - 1
"""Cells (word, tap, filter) of that gathering that int32 can number."""


def plain_pool(
    table: jax.Array, kernel: jax.Array, bias: jax.Array, texts: EncoderInput
) -> jax.Array:
    """Convolve, the reference and what accelerators run; see :data:`Pool`."""
    activity_VxLxF = convolve(table[texts.tokens] * texts.present[..., None], kernel)
    # ReLU's floor is 0, so a zero is never above what a word of the text gives.
    in_text_VxL = _in_text(texts.lengths, texts.tokens.shape[1])
    return jnp.max(
        jax.nn.relu(activity_VxLxF + bias[None, None, :]) * in_text_VxL[..., None], axis=1
    )


@jax.custom_vjp
def projected_pool(
    table: jax.Array, kernel: jax.Array, bias: jax.Array, texts: EncoderInput
) -> jax.Array:
    """Sum projected words, to the same value and gradient; see :data:`Pool`.

    It has no forward-mode derivative.
    """
    rows, index_VxC = _project(table, kernel, _under_taps(texts, kernel))
    best_VxF = jnp.concatenate(
        [
            jnp.max(_activity(rows, index_VxC[block], kernel, texts.lengths[block]), axis=1)
            for block in _blocks(index_VxC, kernel)
        ]
    )
    return jnp.maximum(best_VxF + bias[None, :], 0)


def choose_pool(convolution: str, backend: str) -> Pool:
    """Return what a value of the setting stands for.

    Args:
        convolution: ``plain``, ``projected``, or ``auto``, the faster of the two on the device.
        backend: the kind of device: "cpu", "gpu", ...
    """
    if convolution == "auto":
        convolution = "projected" if backend == "cpu" else "plain"
    return projected_pool if convolution == "projected" else plain_pool


def _in_text(lengths: jax.Array, length: int) -> jax.Array:
    """Return bool[V, L]: where a text is, removed words included."""
    return jnp.arange(length)[None, :] < lengths[:, None]


def _under_taps(texts: EncoderInput, kernel: jax.Array) -> jax.Array:
    """Return int32[V, L + J - 1]: ids of the words that are present, 0 for none.

    Tap j of position l sees column l + j.
    """
    width = kernel.shape[0]
    before = (width - 1) // 2
    return jnp.pad(
        jnp.where(texts.present, texts.tokens, 0), ((0, 0), (before, width - 1 - before))
    )


def _by_word(kernel: jax.Array) -> jax.Array:
    """Return float32[E, J F]: the kernel as one matrix that projects a word through all taps."""
    width, word_dimension, filters = kernel.shape
    return jnp.swapaxes(kernel, 0, 1).reshape(word_dimension, width * filters)


def _project(table: jax.Array, kernel: jax.Array, seen: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return projected words, float32[R, J F], and the row that each column sees, int32[V, L+J-1].

    The rows are those of the vocabulary, or of the texts' columns where these are fewer; zero for
    no word.
    """
    if seen.size < table.shape[0]:
        words = jnp.where(seen.reshape(-1, 1) > 0, table[seen.reshape(-1)], 0)
        return words @ _by_word(kernel), jnp.arange(seen.size, dtype=jnp.int32).reshape(seen.shape)
    return (table @ _by_word(kernel)).at[0].set(0), seen


def _blocks(index_VxC: jax.Array, kernel: jax.Array) -> list[slice]:
    """Return the texts to work on at a time, so that their activities stay small.

    Large arrays are given back to the system after each use.
    """
    n_texts, columns = index_VxC.shape
    size = max(1, BLOCK_ACTIVITIES // (columns * kernel.shape[2]))
    return [slice(first, first + size) for first in range(0, n_texts, size)]


def _activity(
    rows: jax.Array, index_VxC: jax.Array, kernel: jax.Array, lengths: jax.Array
) -> jax.Array:
    """Return float32[V, L, F]: the activity before bias and ReLU, -inf after a text's end."""
    width, _, filters = kernel.shape
    length = index_VxC.shape[1] - width + 1
    seen_VxCxJF = rows[index_VxC]
    taps = (seen_VxCxJF[:, j : j + length, j * filters : (j + 1) * filters] for j in range(width))
    return jnp.where(_in_text(lengths, length)[..., None], sum(taps), -jnp.inf)


def _winners(
    rows: jax.Array, index_VxC: jax.Array, kernel: jax.Array, lengths: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Return the largest activity of each text and filter, float32[V, F], and its position, int32.

    The position is the last one where a text has no words.
    """
    # The barriers make the compiler compute the activity twice and forget it each time; to keep it
    # for the second use took three to fifteen times as long (4,272 texts of up to 40 words: 51 ms
    # and 17 ms; 160 of up to 300: 14.6 and 0.9).
    best_VxF = jax.lax.optimization_barrier(
        jnp.max(_activity(rows, index_VxC, kernel, lengths), axis=1)
    )
    rows, index_VxC = jax.lax.optimization_barrier((rows, index_VxC))
    wins = _activity(rows, index_VxC, kernel, lengths) == best_VxF[:, None]
    length = wins.shape[1]
    position = jnp.arange(length, dtype=jnp.int32)[None, :, None]
    # The first of equals: equal sums come from equal words, whose gradients are added up in any
    # case.
    winner_VxF = jnp.min(
        jnp.where(wins & _in_text(lengths, length)[..., None], position, length - 1), axis=1
    )
    return best_VxF, winner_VxF


def _forward(
    table: jax.Array, kernel: jax.Array, bias: jax.Array, texts: EncoderInput
) -> tuple[jax.Array, Any]:
    seen = _under_taps(texts, kernel)
    rows, index_VxC = _project(table, kernel, seen)
    found = [
        _winners(rows, index_VxC[block], kernel, texts.lengths[block])
        for block in _blocks(index_VxC, kernel)
    ]
    best_VxF, winner_VxF = (jnp.concatenate(parts) for parts in zip(*found, strict=True))
    activity_VxF = best_VxF + bias[None, :]
    return jnp.maximum(activity_VxF, 0), (table, kernel, seen, winner_VxF, activity_VxF > 0)


def _backward(kept: Any, gradient_VxF: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array, None]:
    table, kernel, seen, winner_VxF, is_positive = kept
    width, word_dimension, filters = kernel.shape
    n_rows = table.shape[0]
    gradient_VxF = jnp.where(is_positive, gradient_VxF, 0)
    word_VxJxF = jnp.stack(
        [jnp.take_along_axis(seen, winner_VxF + j, axis=1) for j in range(width)], axis=1
    )
    of_bias = jnp.sum(gradient_VxF, axis=0)
    winners, most_cells = word_VxJxF.size, n_rows * width * filters
    if winners <= ROWS_PER_WORD * n_rows or most_cells > MOST_CELLS:
        of_table = _by_rows(table, kernel, word_VxJxF, gradient_VxF)
        return of_table, _of_kernel(table, word_VxJxF, gradient_VxF), of_bias, None
    tap = jnp.arange(width, dtype=jnp.int32)[None, :, None]
    cell = (word_VxJxF * width + tap) * filters + jnp.arange(filters, dtype=jnp.int32)[
        None, None, :
    ]
    # No word, no gradient: an index past the last cell is dropped.
    cell = jnp.where(word_VxJxF > 0, cell, most_cells)
    updates = jnp.broadcast_to(gradient_VxF[:, None], word_VxJxF.shape)
    flat = (
        jnp.zeros(most_cells, table.dtype)
        .at[cell.reshape(-1)]
        .add(updates.reshape(-1), mode="drop")
    )
    of_projected = flat.reshape(n_rows, width * filters)
    if winners <= KERNEL_ROWS_PER_WORD * n_rows:
        of_kernel = _of_kernel(table, word_VxJxF, gradient_VxF)
    else:
        of_kernel = (table.T @ of_projected).reshape(word_dimension, width, filters)
        of_kernel = jnp.swapaxes(of_kernel, 0, 1)
    return of_projected @ _by_word(kernel).T, of_kernel, of_bias, None


def _by_rows(
    table: jax.Array, kernel: jax.Array, word_VxJxF: jax.Array, gradient_VxF: jax.Array
) -> jax.Array:
    """Return the table's gradient, float32[W, E]: each winner's is added to its word's row.

    In two halves of the columns, because XLA adds rows in one thread, and halves side by side.
    """
    n_rows, word_dimension = table.shape
    updates = (gradient_VxF[:, None, :, None] * jnp.swapaxes(kernel, 1, 2)[None]).reshape(
        -1, word_dimension
    )
    # No word, no gradient: an index past the last row is dropped.
    rows = jnp.where(word_VxJxF > 0, word_VxJxF, n_rows).reshape(-1)
    halves = jnp.split(updates, [word_dimension // 2], axis=1)
    return jnp.concatenate(
        [
            jnp.zeros((n_rows, half.shape[1]), table.dtype).at[rows].add(half, mode="drop")
            for half in halves
        ],
        axis=1,
    )


def _of_kernel(table: jax.Array, word_VxJxF: jax.Array, gradient_VxF: jax.Array) -> jax.Array:
    """Return the kernel's gradient, float32[J, E, F]: the winners' words, text by text.

    A loop over the texts, whose words then stay in the cache; as one sum over all texts they would
    be stored first, for twice the time.
    """

    def add(total: jax.Array, text: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, None]:
        word_JxF, gradient_F = text
        weight_JxF = jnp.where(word_JxF > 0, gradient_F[None, :], 0)
        return total + table[word_JxF] * weight_JxF[..., None], None

    _, width, filters = word_VxJxF.shape
    empty = jnp.zeros((width, filters, table.shape[1]), table.dtype)
    total_JxFxE, _ = jax.lax.scan(add, empty, (word_VxJxF, gradient_VxF), unroll=4)
    return jnp.swapaxes(total_JxFxE, 1, 2)


projected_pool.defvjp(_forward, _backward)
