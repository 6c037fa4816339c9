"""Encode texts padded to one length, or packed: several texts in a row, without padding.

:func:`packed` works on no padding and on no word that dropout removed. It lays the words that are
present one after the other into rows, whole texts to a row as many as fit, and encodes the rows
block by block. All blocks have one shape, so a single compiled program serves every batch; their
number depends on the texts. The backward pass encodes each block again, so the activations of one
block are in memory at a time.

An encoder takes part as a pure function; see :data:`Encode`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp

from ncfbench.models.encoders.protocol import Texts

Encode: TypeAlias = Callable[[Any, jax.Array, jax.Array, jax.Array], jax.Array]
"""``encode(parameters, words_RxLxE, positions, texts_RxL)``: float32[R, L, H], a vector of each word.

A row holds words of several texts. ``texts_RxL``, int32, numbers them from 1; it is 0 where there is
no word. Words must see the words of their own text only. ``positions``, int32[R, L] or int32[1, L],
are those of the words in their texts, removed words counted.
"""
Run: TypeAlias = Callable[[Encode, Any, jax.Array, Texts], jax.Array]
"""``run(encode, parameters, table_WxE, texts)``: float32[V, H], the mean over the words of each text
that are present; zero for a text without words. The table holds the vectors of all words.
"""

ROW_WORDS = 64
"""Word slots of a row, where texts are no longer."""
BLOCK_WORDS = 1024
"""Word slots of a block of rows."""
PLAIN_WORDS = 2**18
"""Word slots up to which :func:`plain` encodes all texts at once. Where there are more, it works in
parts of that size, and the backward pass encodes each part again.
"""


def plain(encode: Encode, parameters: Any, table: jax.Array, texts: Texts) -> jax.Array:
    """Encode all texts padded to the maximum length, the reference; see :data:`Run`."""
    n_texts, length = texts.tokens.shape
    positions = jnp.arange(length, dtype=jnp.int32)[None, :]

    def part(tokens: jax.Array, present: jax.Array) -> jax.Array:
        vectors = encode(parameters, table[tokens], positions, present.astype(jnp.int32))
        total_VxH = jnp.sum(jnp.where(present[..., None], vectors, 0), axis=1)
        return total_VxH / jnp.maximum(jnp.sum(present, axis=1, keepdims=True), 1)

    if texts.tokens.size <= PLAIN_WORDS:
        return part(texts.tokens, texts.present)
    size = max(1, PLAIN_WORDS // length)
    n_parts = -(-n_texts // size)

    def cut(array: jax.Array) -> jax.Array:
        padded = jnp.pad(array, ((0, n_parts * size - n_texts), (0, 0)))
        return padded.reshape(n_parts, size, length)

    again = jax.checkpoint(part)
    parts = jax.lax.map(lambda each: again(*each), (cut(texts.tokens), cut(texts.present)))
    vectors: jax.Array = parts.reshape(n_parts * size, -1)[:n_texts]
    return vectors


def packed(encode: Encode, parameters: Any, table: jax.Array, texts: Texts) -> jax.Array:
    """Encode several texts in a row, to the same value and gradient; see :data:`Run`.

    It has no forward-mode derivative.
    """
    has_words = texts.tokens.shape[1] > 0
    return (_packed if has_words else plain)(encode, parameters, table, texts)


def choose(way: str, backend: str) -> Run:
    """Return what a value of a setting stands for.

    Args:
        way: ``plain``, ``packed``, or ``auto``, the faster of the two on the device.
        backend: the kind of device: "cpu", "gpu", ...
    """
    if way == "auto":
        way = "packed" if backend == "cpu" else "plain"
    return packed if way == "packed" else plain


class Rows(NamedTuple):
    """Words in rows, K of them in all blocks, of P slots each."""

    texts: jax.Array
    """int32[K, P]: the text of each word, from 1 on; 0 where there is no word."""
    positions: jax.Array
    """int32[K, P]: positions of the words in their texts."""
    tokens: jax.Array
    """int32[K, P]: ids of the words."""
    n_blocks: jax.Array
    """int32: blocks that hold words; the others come behind."""


def pack(texts: Texts) -> Rows:
    """Lay the words that are present into rows: each text whole, in the first row that is not full,
    and behind the text before it.
    """
    n_texts, length = texts.tokens.shape
    width = max(ROW_WORDS, length)
    height = max(1, BLOCK_WORDS // width)
    counts = jnp.sum(texts.present, axis=1, dtype=jnp.int32)
    end = jnp.cumsum(counts, dtype=jnp.int32)
    begin = end - counts
    # The first text that no longer fits into a row that begins with a given one.
    following = jnp.searchsorted(end, begin + width, side="right").astype(jnp.int32)

    def open_row(state: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        first, is_first = state
        return following[first], is_first.at[first].set(1)

    _, is_first = jax.lax.while_loop(
        lambda state: state[0] < n_texts,
        open_row,
        (jnp.int32(0), jnp.zeros(n_texts, jnp.int32)),
    )
    row = jnp.cumsum(is_first, dtype=jnp.int32) - 1
    # Words before the row's first text; ``begin`` never falls.
    before = jax.lax.cummax(jnp.where(is_first > 0, begin, 0))
    place = row * width + begin - before
    slot_VxL = place[:, None] + jnp.cumsum(texts.present, axis=1, dtype=jnp.int32) - 1
    # Two rows that follow each other hold more than one row's words.
    most = min(n_texts, 2 * texts.tokens.size // width + 1)
    rows = -(-most // height) * height
    slot = jnp.where(texts.present, slot_VxL, rows * width).reshape(-1)
    text, position = (
        jnp.broadcast_to(each, texts.tokens.shape).reshape(-1)
        for each in (
            jnp.arange(1, n_texts + 1, dtype=jnp.int32)[:, None],
            jnp.arange(length, dtype=jnp.int32)[None, :],
        )
    )

    def laid(values: jax.Array) -> jax.Array:
        empty = jnp.zeros(rows * width, jnp.int32)
        filled = empty.at[slot].set(values, mode="drop", unique_indices=True)
        return filled.reshape(rows, width)

    n_blocks = (row[-1] + height) // height
    return Rows(laid(text), laid(position), laid(texts.tokens.reshape(-1)), n_blocks)


def _each_block(rows: Rows, state: Any, work: Callable[..., Any]) -> Any:
    """Return ``state`` after ``work(state, texts, positions, tokens)`` on all blocks."""
    width = rows.texts.shape[1]
    height = max(1, BLOCK_WORDS // width)

    def advance(block: jax.Array, state: Any) -> Any:
        parts = (
            jax.lax.dynamic_slice(array, (block * height, jnp.int32(0)), (height, width))
            for array in rows[:3]
        )
        return work(state, *parts)

    return jax.lax.fori_loop(0, rows.n_blocks, advance, state)


def _shares(texts: Texts) -> jax.Array:
    """Return float32[1 + V]: a word's weight in the mean of its text; 0 for no text."""
    counts = jnp.sum(texts.present, axis=1, dtype=jnp.float32)
    return jnp.concatenate([jnp.zeros(1), 1 / jnp.maximum(counts, 1)])


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _packed(encode: Encode, parameters: Any, table: jax.Array, texts: Texts) -> jax.Array:
    return _forward(encode, parameters, table, texts)[0]


def _forward(
    encode: Encode, parameters: Any, table: jax.Array, texts: Texts
) -> tuple[jax.Array, Any]:
    rows, share = pack(texts), _shares(texts)
    one = (rows.tokens[:1], rows.positions[:1], rows.texts[:1])
    width = jax.eval_shape(
        lambda tokens, *rest: encode(parameters, table[tokens], *rest), *one
    ).shape[-1]

    def work(
        total: jax.Array, texts: jax.Array, positions: jax.Array, tokens: jax.Array
    ) -> jax.Array:
        vectors = encode(parameters, table[tokens], positions, texts)
        return total.at[texts].add(vectors * share[texts][..., None])

    total = _each_block(rows, jnp.zeros((len(share), width), table.dtype), work)
    return total[1:], (parameters, table, rows, share)


def _backward(encode: Encode, kept: Any, gradient_VxH: jax.Array) -> tuple[Any, jax.Array, None]:
    parameters, table, rows, share = kept
    padded = jnp.pad(gradient_VxH, ((1, 0), (0, 0))) * share[:, None]

    def work(
        state: tuple[Any, jax.Array], texts: jax.Array, positions: jax.Array, tokens: jax.Array
    ) -> tuple[Any, jax.Array]:
        total, of_table = state
        _, pull = jax.vjp(
            lambda parameters, words: encode(parameters, words, positions, texts),
            parameters,
            table[tokens],
        )
        of_parameters, of_words = pull(padded[texts])
        return jax.tree.map(jnp.add, total, of_parameters), of_table.at[tokens].add(of_words)

    zeros = jax.tree.map(jnp.zeros_like, parameters), jnp.zeros_like(table)
    of_parameters, of_table = _each_block(rows, zeros, work)
    return of_parameters, of_table, None


_packed.defvjp(_forward, _backward)
