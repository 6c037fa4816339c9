"""Encode texts all padded to one length, or in groups by length; both for any encoder of words.

:func:`grouped` works on no padding and on no word that dropout removed: it moves the words that are
present to the front, sorts the texts by their number, and encodes them block by block. A block has
one of a few static lengths, so the same compiled program serves every batch. The number of blocks
of each length depends on the texts. The backward pass encodes each block again, so the activations
of one block are in memory at a time.

An encoder takes part as a pure function; see :data:`Encode`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp

from ncfbench.models.encoders.protocol import Texts

Encode: TypeAlias = Callable[[Any, jax.Array, jax.Array, jax.Array], jax.Array]
"""``encode(parameters, words_VxLxE, positions, present_VxL)``: float32[V, H], the texts' vectors.

Words that are not present must not matter, and a text without words gets a zero vector.
``positions``, int32[V, L] or int32[1, L], are those of the words in their texts: in a group the
words that were removed have made room, and later words keep their position.
"""
Run: TypeAlias = Callable[[Encode, Any, jax.Array, Texts], jax.Array]
"""``run(encode, parameters, table_WxE, texts)``: float32[V, H]. The table holds the vectors of all
words.
"""

BLOCK_WORDS = 1024
"""Word slots of a group's block."""
RATIO = 0.75
"""Length of a group, in those of the next longer one."""
SHORTEST = 4
"""Words of the shortest group."""
PLAIN_WORDS = 2**18
"""Word slots up to which :func:`plain` encodes all texts at once. Where there are more, it works in
parts of that size, and the backward pass encodes each part again.
"""


def plain(encode: Encode, parameters: Any, table: jax.Array, texts: Texts) -> jax.Array:
    """Encode all texts padded to the maximum length, the reference; see :data:`Run`."""
    n_texts, length = texts.tokens.shape
    positions = jnp.arange(length, dtype=jnp.int32)[None, :]

    def part(tokens: jax.Array, present: jax.Array) -> jax.Array:
        return encode(parameters, table[tokens], positions, present)

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


def grouped(encode: Encode, parameters: Any, table: jax.Array, texts: Texts) -> jax.Array:
    """Encode texts in groups by length, to the same value and gradient; see :data:`Run`.

    It has no forward-mode derivative.
    """
    has_words = texts.tokens.shape[1] > 0
    return (_grouped if has_words else plain)(encode, parameters, table, texts)


def choose(way: str, backend: str) -> Run:
    """Return what a value of a setting stands for.

    Args:
        way: ``plain``, ``grouped``, or ``auto``, the faster of the two on the device.
        backend: the kind of device: "cpu", "gpu", ...
    """
    if way == "auto":
        way = "grouped" if backend == "cpu" else "plain"
    return grouped if way == "grouped" else plain


def group_lengths(length: int) -> list[int]:
    """Return the groups' lengths, the longest first, for texts of at most ``length`` words."""
    lengths = [length]
    while lengths[-1] > SHORTEST:
        lengths.append(max(SHORTEST, int(RATIO * lengths[-1])))
    return lengths


class _Sorted(NamedTuple):
    """Texts by the number of words that are present, the longest first; empty ones behind."""

    order: jax.Array
    """int32[V]: the text at each row."""
    counts: jax.Array
    """int32[V]: words present in each row's text."""
    tokens: jax.Array
    """int32[V + size, L]: words that are present, from the front on."""
    positions: jax.Array
    """int32[V + size, L]: their positions in the text; L where there is no word."""


def _sort(texts: Texts) -> _Sorted:
    n_texts, length = texts.tokens.shape
    counts = jnp.sum(texts.present, axis=1, dtype=jnp.int32)
    order = jnp.argsort(-counts).astype(jnp.int32)
    positions = jnp.arange(length, dtype=jnp.int32)[None, :]
    # Positions of words that are present sort before L, in their order.
    front = jnp.sort(jnp.where(texts.present, positions, length), axis=1)[order]
    tokens = jnp.take_along_axis(texts.tokens[order], jnp.minimum(front, length - 1), axis=1)
    # Blocks may reach behind the last text: rows without words stand there.
    rows = ((0, _block_size(n_texts, min(SHORTEST, length))), (0, 0))
    return _Sorted(
        order, counts[order], jnp.pad(tokens, rows), jnp.pad(front, rows, constant_values=length)
    )


def _block_size(n_texts: int, length: int) -> int:
    return min(n_texts, max(1, BLOCK_WORDS // length))


def _each_block(
    found: _Sorted,
    state: Any,
    work: Callable[[Any, jax.Array, int, jax.Array, jax.Array, jax.Array], Any],
) -> Any:
    """Return ``state`` after all blocks' ``work(state, first, size, tokens, positions, present)``.

    A block begins where the one before ended, and its length is the least that its first text
    needs.
    """
    n_texts, length = found.order.shape[0], found.tokens.shape[1]
    first = jnp.int32(0)
    for longest, shorter in pairwise([*group_lengths(length), 0]):
        size = _block_size(n_texts, longest)
        end = jnp.sum(found.counts > shorter, dtype=jnp.int32)

        def advance(
            carried: tuple[jax.Array, Any], size: int = size, longest: int = longest
        ) -> tuple[jax.Array, Any]:
            first, state = carried
            tokens, positions = (
                jax.lax.dynamic_slice(array, (first, jnp.int32(0)), (size, longest))
                for array in (found.tokens, found.positions)
            )
            present = positions < length
            return first + size, work(
                state, first, size, tokens, jnp.minimum(positions, length - 1), present
            )

        def is_before(carried: tuple[jax.Array, Any], end: jax.Array = end) -> jax.Array:
            return carried[0] < end

        first, state = jax.lax.while_loop(is_before, advance, (first, state))
    return state


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _grouped(encode: Encode, parameters: Any, table: jax.Array, texts: Texts) -> jax.Array:
    return _forward(encode, parameters, table, texts)[0]


def _forward(
    encode: Encode, parameters: Any, table: jax.Array, texts: Texts
) -> tuple[jax.Array, Any]:
    found = _sort(texts)
    shape = jax.eval_shape(
        lambda tokens: encode(parameters, table[tokens], tokens, tokens > 0), found.tokens
    )

    def work(
        sorted_VxH: jax.Array,
        first: jax.Array,
        size: int,
        tokens: jax.Array,
        positions: jax.Array,
        present: jax.Array,
    ) -> jax.Array:
        vectors = encode(parameters, table[tokens], positions, present)
        return jax.lax.dynamic_update_slice(sorted_VxH, vectors, (first, jnp.int32(0)))

    sorted_VxH = _each_block(found, jnp.zeros(shape.shape, shape.dtype), work)
    sorted_VxH = sorted_VxH[: len(found.order)]
    vectors = jnp.zeros_like(sorted_VxH).at[found.order].set(sorted_VxH, unique_indices=True)
    return vectors, (parameters, table, found)


def _backward(encode: Encode, kept: Any, gradient_VxH: jax.Array) -> tuple[Any, jax.Array, None]:
    parameters, table, found = kept
    sorted_VxH = jnp.pad(
        gradient_VxH[found.order], ((0, len(found.tokens) - len(found.order)), (0, 0))
    )

    def work(
        state: tuple[Any, jax.Array],
        first: jax.Array,
        size: int,
        tokens: jax.Array,
        positions: jax.Array,
        present: jax.Array,
    ) -> tuple[Any, jax.Array]:
        total, of_table = state
        gradient = jax.lax.dynamic_slice(
            sorted_VxH, (first, jnp.int32(0)), (size, sorted_VxH.shape[1])
        )
        _, pull = jax.vjp(
            lambda parameters, words: encode(parameters, words, positions, present),
            parameters,
            table[tokens],
        )
        of_parameters, of_words = pull(gradient)
        return jax.tree.map(jnp.add, total, of_parameters), of_table.at[tokens].add(of_words)

    zeros = jax.tree.map(jnp.zeros_like, parameters), jnp.zeros_like(table)
    of_parameters, of_table = _each_block(found, zeros, work)
    return of_parameters, of_table, None


_grouped.defvjp(_forward, _backward)
