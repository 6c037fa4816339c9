"""The convolutional encoder: words, one convolution, maximum over time, dense.

Kim 2014; KDD 2017, section 5.2. A filter of width J sees one word through each of its J taps, so a
word's contribution at a tap is a property of the word: ``projected[w, j] = table[w] @ kernel[j]``.
The activity at a position is a sum of J rows of that table, and the gradient of its maximum over
time reaches only the J words under each filter's winning position. So :func:`projected_pool` leaves
the products to each *word of the vocabulary*, the scattered sums to each *winner*: exact, and on a
CPU several times as fast (benchmarks/README.md).
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from ncfbench.config import RunConfig
from ncfbench.models.encoders.protocol import DataFacts, EncoderInput, embedding

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


def plain_pool(
    table: jax.Array, kernel: jax.Array, bias: jax.Array, texts: EncoderInput
) -> jax.Array:
    """Return float32[V, F]: the maximum over a text's words of the activity after ReLU; zero for a
    text without words. The reference, and what accelerators run.

    Args:
        table: float32[W, E], the vectors of all words.
        kernel, bias: float32[J, E, F] and float32[F], of a convolution with padding "SAME".
    """
    words_VxLxE = table[texts.tokens] * texts.present[..., None]
    layout = "NWC", "WIO", "NWC"
    activity_VxLxF = jax.lax.conv_general_dilated(
        words_VxLxE, kernel, window_strides=(1,), padding="SAME", dimension_numbers=layout
    )
    # ReLU's floor is 0, so a zero is never above what a word of the text gives.
    in_text_VxL = _in_text(texts.lengths, texts.tokens.shape[1])
    return jnp.max(
        jax.nn.relu(activity_VxLxF + bias[None, None, :]) * in_text_VxL[..., None], axis=1
    )


@jax.custom_vjp
def projected_pool(
    table: jax.Array, kernel: jax.Array, bias: jax.Array, texts: EncoderInput
) -> jax.Array:
    """Sum projected words, to the value and gradient of :func:`plain_pool`.

    It has no forward-mode derivative.
    """
    return _forward(table, kernel, bias, texts)[0]


def _in_text(lengths: jax.Array, length: int) -> jax.Array:
    """Return bool[V, L]: where a text is, removed words included."""
    return jnp.arange(length)[None, :] < lengths[:, None]


def _under_taps(texts: EncoderInput, kernel: jax.Array) -> jax.Array:
    """Return int32[V, L + J - 1]: word ids, 0 for none; tap j of position l sees column l + j."""
    before, after = (len(kernel) - 1) // 2, len(kernel) // 2
    return jnp.pad(jnp.where(texts.present, texts.tokens, 0), ((0, 0), (before, after)))


def _matrix(kernel: jax.Array) -> jax.Array:
    """Return float32[E, J F]: the kernel as one matrix that projects a word through all taps."""
    return jnp.swapaxes(kernel, 0, 1).reshape(kernel.shape[1], -1)


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
    """Return the largest activity of each text and filter, float32[V, F], and its position, int32;
    the last one where a text has no words.
    """
    # The barriers make the compiler compute the activity twice and forget it each time; to keep it
    # for the second use takes three to fifteen times as long.
    best_VxF = jax.lax.optimization_barrier(
        jnp.max(_activity(rows, index_VxC, kernel, lengths), axis=1)
    )
    rows, index_VxC = jax.lax.optimization_barrier((rows, index_VxC))
    wins = _activity(rows, index_VxC, kernel, lengths) == best_VxF[:, None]
    length = wins.shape[1]
    position = jnp.arange(length, dtype=jnp.int32)[None, :, None]
    # The first of equals: equal sums come from equal words, whose gradients are added up anyway.
    in_text = _in_text(lengths, length)[..., None]
    return best_VxF, jnp.min(jnp.where(wins & in_text, position, length - 1), axis=1)


def _forward(
    table: jax.Array, kernel: jax.Array, bias: jax.Array, texts: EncoderInput
) -> tuple[jax.Array, Any]:
    seen_VxC = _under_taps(texts, kernel)
    # Projected words, of the vocabulary or of the texts' columns where these are fewer.
    if seen_VxC.size < len(table):
        columns = seen_VxC.reshape(-1)
        rows = jnp.where(columns[:, None] > 0, table[columns], 0) @ _matrix(kernel)
        index_VxC = jnp.arange(len(columns), dtype=jnp.int32).reshape(seen_VxC.shape)
    else:
        rows, index_VxC = (table @ _matrix(kernel)).at[0].set(0), seen_VxC
    n_texts, width = seen_VxC.shape
    # Few texts at a time, for large arrays are given back to the system after each use.
    size = max(1, BLOCK_ACTIVITIES // (width * kernel.shape[2]))
    blocks = [
        _winners(rows, index_VxC[block], kernel, texts.lengths[block])
        for block in (slice(first, first + size) for first in range(0, n_texts, size))
    ]
    best_VxF, winner_VxF = (jnp.concatenate(parts) for parts in zip(*blocks, strict=True))
    activity_VxF = best_VxF + bias[None, :]
    return jnp.maximum(activity_VxF, 0), (table, kernel, seen_VxC, winner_VxF, activity_VxF > 0)


def _backward(kept: Any, gradient_VxF: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array, None]:
    table, kernel, seen, winner_VxF, is_positive = kept
    width, word_dimension, filters = kernel.shape
    n_words = len(table)
    gradient_VxF = jnp.where(is_positive, gradient_VxF, 0)
    of_bias = jnp.sum(gradient_VxF, axis=0)
    word_VxJxF = jnp.stack(
        [jnp.take_along_axis(seen, winner_VxF + j, axis=1) for j in range(width)], axis=1
    )
    winners, n_cells = word_VxJxF.size, n_words * width * filters
    if winners <= ROWS_PER_WORD * n_words or n_cells > MOST_CELLS:
        of_table = _table_by_rows(table, kernel, word_VxJxF, gradient_VxF)
        return of_table, _kernel_by_texts(table, word_VxJxF, gradient_VxF), of_bias, None
    tap = jnp.arange(width, dtype=jnp.int32)[None, :, None]
    column = jnp.arange(filters, dtype=jnp.int32)[None, None, :]
    cell = (word_VxJxF * width + tap) * filters + column
    # No word, no gradient: an index past the last cell is dropped.
    cell = jnp.where(word_VxJxF > 0, cell, n_cells).reshape(-1)
    updates = jnp.broadcast_to(gradient_VxF[:, None], word_VxJxF.shape).reshape(-1)
    flat = jnp.zeros(n_cells, table.dtype).at[cell].add(updates, mode="drop")
    of_projected = flat.reshape(n_words, width * filters)
    if winners <= KERNEL_ROWS_PER_WORD * n_words:
        of_kernel = _kernel_by_texts(table, word_VxJxF, gradient_VxF)
    else:
        of_kernel = (table.T @ of_projected).reshape(word_dimension, width, filters)
        of_kernel = jnp.swapaxes(of_kernel, 0, 1)
    return of_projected @ _matrix(kernel).T, of_kernel, of_bias, None


def _table_by_rows(
    table: jax.Array, kernel: jax.Array, word_VxJxF: jax.Array, gradient_VxF: jax.Array
) -> jax.Array:
    """Return the table's gradient, float32[W, E]: each winner's is added to its word's row, in two
    halves of the columns, because XLA adds rows in one thread, and halves side by side.
    """
    n_words, word_dimension = table.shape
    updates = gradient_VxF[:, None, :, None] * jnp.swapaxes(kernel, 1, 2)[None]
    # No word, no gradient: an index past the last row is dropped.
    rows = jnp.where(word_VxJxF > 0, word_VxJxF, n_words).reshape(-1)
    halves = [
        jnp.zeros((n_words, half.shape[1]), table.dtype).at[rows].add(half, mode="drop")
        for half in jnp.split(updates.reshape(-1, word_dimension), [word_dimension // 2], axis=1)
    ]
    return jnp.concatenate(halves, axis=1)


def _kernel_by_texts(table: jax.Array, word_VxJxF: jax.Array, gradient_VxF: jax.Array) -> jax.Array:
    """Return the kernel's gradient, float32[J, E, F], in a loop over the texts, whose words stay in
    the cache: one sum over all texts would take twice the time.
    """

    def add(total: jax.Array, text: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, None]:
        word_JxF, gradient_F = text
        weight_JxF = jnp.where(word_JxF > 0, gradient_F[None, :], 0)
        return total + table[word_JxF] * weight_JxF[..., None], None

    empty = jnp.zeros((*word_VxJxF.shape[1:], table.shape[1]), table.dtype)
    total_JxFxE, _ = jax.lax.scan(add, empty, (word_VxJxF, gradient_VxF), unroll=4)
    return jnp.swapaxes(total_JxFxE, 1, 2)


projected_pool.defvjp(_forward, _backward)
