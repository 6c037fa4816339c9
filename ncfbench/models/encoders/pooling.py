"""A convolution over words and its maximum over time: plainly, and without ever computing a
convolution.

A filter of width J sees one word through each of its J taps, so a word's contribution at a tap is a
property of the word: ``projected[w, j] = table[w] @ kernel[j]``. The activity at a place is a sum
of J rows of that table. The gradient of its maximum over time reaches only the J words under each
filter's winning place. The products are left to each *word of the vocabulary*, the scattered sums
to each *winner*, and a place of a text costs a few additions: exact, and on CPU several times as
fast (benchmarks/README.md).

The parameters are those of :class:`flax.nnx.Conv` with padding "SAME": kernel float32[J, E, F],
bias float32[F].
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp

from ncfbench.models.encoders.protocol import Texts

Pool: TypeAlias = Callable[[jax.Array, jax.Array, jax.Array, Texts], jax.Array]
"""``pool(table_WxE, kernel_JxExF, bias_F, texts)``: float32[V, F], the maximum over a text's places
of the activity after ReLU; zero for a text without words.
"""

BLOCK_ACTIVITIES = 2**22
"""Activities computed at a time, 16 MB."""
ROWS_PER_WORD = 4
"""Winners (of all filters and taps) per word of the vocabulary up to which the gradient is added to
the words' rows one by one; above, it is gathered by word and filter first, which costs three passes
over the vocabulary and little for a winner.
"""

MOST_CELLS = 2**31 - 1
"""Cells (word, tap, filter) of that gathering that int32 can number."""


def plain_pool(table: jax.Array, kernel: jax.Array, bias: jax.Array, texts: Texts) -> jax.Array:
    """The reference, and what accelerators run; see :data:`Pool`."""
    words_VxLxE = table[texts.tokens] * texts.present[..., None]
    activity_VxLxF = jax.lax.conv_general_dilated(
        words_VxLxE,
        kernel,
        window_strides=(1,),
        padding="SAME",
        dimension_numbers=("NWC", "WIO", "NWC"),
    )
    # ReLU's floor is 0, so a zero is never above what a word of the text gives.
    in_text_VxL = _in_text(texts.lengths, texts.tokens.shape[1])
    return jnp.max(
        jax.nn.relu(activity_VxLxF + bias[None, None, :]) * in_text_VxL[..., None], axis=1
    )


@jax.custom_vjp
def projected_pool(table: jax.Array, kernel: jax.Array, bias: jax.Array, texts: Texts) -> jax.Array:
    """The same value and gradient by projected words; see :data:`Pool`. No forward-mode
    derivative.
    """
    rows, places = _project(table, kernel, _under_taps(texts, kernel))
    best_VxF = jnp.concatenate(
        [
            jnp.max(_activity(rows, places[block], kernel, texts.lengths[block]), axis=1)
            for block in _blocks(places, kernel)
        ]
    )
    return jnp.maximum(best_VxF + bias[None, :], 0)


def fastest_pool(backend: str) -> Pool:
    """The faster of the two on a kind of device: "cpu", "gpu", ..."""
    return projected_pool if backend == "cpu" else plain_pool


def _in_text(lengths: jax.Array, length: int) -> jax.Array:
    """bool[V, L]: the places of a text, those of removed words included."""
    return jnp.arange(length)[None, :] < lengths[:, None]


def _under_taps(texts: Texts, kernel: jax.Array) -> jax.Array:
    """int32[V, L + J - 1]: ids of the words that are there, 0 for none; tap j of place l sees
    column l + j.
    """
    width = kernel.shape[0]
    before = (width - 1) // 2
    return jnp.pad(
        jnp.where(texts.present, texts.tokens, 0), ((0, 0), (before, width - 1 - before))
    )


def _by_word(kernel: jax.Array) -> jax.Array:
    """float32[E, J F]: the kernel as one matrix that projects a word through all taps."""
    width, word_dimension, filters = kernel.shape
    return jnp.swapaxes(kernel, 0, 1).reshape(word_dimension, width * filters)


def _project(table: jax.Array, kernel: jax.Array, seen: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Rows float32[R, J F] of projected words, zero for none, and int32[V, L + J - 1], the row that
    each column sees.

    The rows are those of the vocabulary, or of the texts' columns where these are fewer.
    """
    if seen.size < table.shape[0]:
        words = jnp.where(seen.reshape(-1, 1) > 0, table[seen.reshape(-1)], 0)
        return words @ _by_word(kernel), jnp.arange(seen.size, dtype=jnp.int32).reshape(seen.shape)
    return (table @ _by_word(kernel)).at[0].set(0), seen


def _blocks(places: jax.Array, kernel: jax.Array) -> list[slice]:
    """Texts to work on at a time, so that their activities stay small: fewer, larger arrays are
    given back to the system.
    """
    n_texts, columns = places.shape
    size = max(1, BLOCK_ACTIVITIES // (columns * kernel.shape[2]))
    return [slice(first, first + size) for first in range(0, n_texts, size)]


def _activity(
    rows: jax.Array, places: jax.Array, kernel: jax.Array, lengths: jax.Array
) -> jax.Array:
    """float32[V, L, F] before bias and ReLU, -inf behind a text."""
    width, _, filters = kernel.shape
    length = places.shape[1] - width + 1
    seen_VxCxJF = rows[places]
    taps = (seen_VxCxJF[:, j : j + length, j * filters : (j + 1) * filters] for j in range(width))
    return jnp.where(_in_text(lengths, length)[..., None], sum(taps), -jnp.inf)


def _winners(
    rows: jax.Array, places: jax.Array, kernel: jax.Array, lengths: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """The largest activity of each text and filter, float32[V, F], and its place, int32[V, F]: the
    last of no words.
    """
    # The barriers make the compiler compute the activity twice and forget it each time; to keep it
    # for the second use took three to fifteen times as long (4,272 texts of up to 40 words: 51 ms
    # and 17 ms; 160 of up to 300: 14.6 and 0.9).
    best_VxF = jax.lax.optimization_barrier(
        jnp.max(_activity(rows, places, kernel, lengths), axis=1)
    )
    rows, places = jax.lax.optimization_barrier((rows, places))
    wins = _activity(rows, places, kernel, lengths) == best_VxF[:, None]
    length = wins.shape[1]
    place = jnp.arange(length, dtype=jnp.int32)[None, :, None]
    # The first of equals: equal sums come from equal words, whose gradients are added up in any
    # case.
    winner_VxF = jnp.min(
        jnp.where(wins & _in_text(lengths, length)[..., None], place, length - 1), axis=1
    )
    return best_VxF, winner_VxF


def _forward(
    table: jax.Array, kernel: jax.Array, bias: jax.Array, texts: Texts
) -> tuple[jax.Array, Any]:
    seen = _under_taps(texts, kernel)
    rows, places = _project(table, kernel, seen)
    found = [
        _winners(rows, places[block], kernel, texts.lengths[block])
        for block in _blocks(places, kernel)
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
    # No word, no gradient: an index behind the last row is dropped.
    if word_VxJxF.size <= ROWS_PER_WORD * n_rows or n_rows * width * filters > MOST_CELLS:
        updates = (gradient_VxF[:, None, :, None] * jnp.swapaxes(kernel, 1, 2)[None]).reshape(
            -1, word_dimension
        )
        rows = jnp.where(word_VxJxF > 0, word_VxJxF, n_rows).reshape(-1)
        of_table = jnp.zeros_like(table).at[rows].add(updates, mode="drop")
        # As a sum, which is fused with the gather; as a product it would be stored and transposed
        # first, for twice the time.
        weight_VxJxF = jnp.where(word_VxJxF > 0, gradient_VxF[:, None, :], 0)
        of_kernel = jnp.sum(table[word_VxJxF] * weight_VxJxF[..., None], axis=0)
        return of_table, jnp.swapaxes(of_kernel, 1, 2), of_bias, None
    tap = jnp.arange(width, dtype=jnp.int32)[None, :, None]
    cell = (word_VxJxF * width + tap) * filters + jnp.arange(filters, dtype=jnp.int32)[
        None, None, :
    ]
    cell = jnp.where(word_VxJxF > 0, cell, n_rows * width * filters)
    updates = jnp.broadcast_to(gradient_VxF[:, None], word_VxJxF.shape)
    flat = (
        jnp.zeros(n_rows * width * filters, table.dtype)
        .at[cell.reshape(-1)]
        .add(updates.reshape(-1), mode="drop")
    )
    of_projected = flat.reshape(n_rows, width * filters)
    of_kernel = jnp.swapaxes((table.T @ of_projected).reshape(word_dimension, width, filters), 0, 1)
    return of_projected @ _by_word(kernel).T, of_kernel, of_bias, None


projected_pool.defvjp(_forward, _backward)
