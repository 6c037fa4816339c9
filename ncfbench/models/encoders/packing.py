"""Encode texts all padded to one length, or packed: several texts in a row, without padding.

:func:`packed` lays the words that are present one after the other into rows, as many whole texts to
a row as fit, and encodes the rows block by block. All blocks have one shape, and so have the parts
into which the last one is cut, so a single compiled program serves every batch. The backward pass
encodes each block again, so the activations of one block are in memory at a time.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
from flax import nnx

from ncfbench.models.blocks import in_blocks
from ncfbench.models.encoders.protocol import EncoderInput

Encode: TypeAlias = Callable[[Any, jax.Array, jax.Array, jax.Array], jax.Array]
"""``encode(parameters, words_RxLxE, positions, texts_RxL)``: float32[R, L, H], each word's vector.

A row holds the words of several texts. ``texts_RxL``, int32, numbers the texts from 1; it is 0
where there is no word. A word must see the words of its own text only. ``positions``, int32[R, L]
or int32[1, L], are those of the words in their texts, removed words counted.
"""

PLAIN_WORDS = 2**18
"""Word slots that :func:`run` encodes at a time, by default; where there are more, the backward
pass encodes each part again.
"""
PARTS = 4
"""Parts into which the last block of rows is cut. A transformer takes 0.79 times as long for 158
texts, half of whose words were removed, as with whole blocks alone; with 2 parts 0.86.
"""


class Shape(NamedTuple):
    """The shape of what is encoded at a time; it changes no result."""

    row_words: int
    """Word slots of a row, where no text is longer."""
    block_words: int
    """Word slots of a block of rows."""
    block_rows: int
    """Rows of a block at least."""


def run(
    function: Encode,
    module: Any,
    table: jax.Array,
    texts: EncoderInput,
    shape: Shape | None,
    most_words: int = 0,
) -> jax.Array:
    """Return float32[V, H]: the mean over the words of each text that are present; zero for a text
    without words. Texts are packed on a CPU, where that is faster, and padded elsewhere.

    Args:
        function: called with the module in place of its parameters.
        table: float32[W, E], the vectors of all words.
        shape: of the packed rows; None for texts that are padded everywhere.
        most_words: in place of :data:`PLAIN_WORDS`.
    """
    graph, parameters = nnx.split(module)

    def encode(parameters: Any, *arguments: jax.Array) -> jax.Array:
        return function(nnx.merge(graph, parameters), *arguments)

    length = texts.tokens.shape[1]
    if shape is not None and length > 0 and jax.default_backend() == "cpu":
        return packed(encode, shape, parameters, table, texts)
    positions = jnp.arange(length, dtype=jnp.int32)[None, :]

    def padded(tokens: jax.Array, present: jax.Array) -> jax.Array:
        vectors = encode(parameters, table[tokens], positions, present.astype(jnp.int32))
        total_VxH = jnp.sum(jnp.where(present[..., None], vectors, 0), axis=1)
        return total_VxH / jnp.maximum(jnp.sum(present, axis=1, keepdims=True), 1)

    size = max(1, (most_words or PLAIN_WORDS) // max(length, 1))
    return in_blocks(padded, (texts.tokens, texts.present), size)


class Rows(NamedTuple):
    """Words laid into K rows of P slots each."""

    texts: jax.Array
    """int32[K, P]: the text of each word, from 1 on; 0 where there is no word."""
    positions: jax.Array
    """int32[K, P]: positions of the words in their texts."""
    tokens: jax.Array
    """int32[K, P]: ids of the words."""
    used: jax.Array
    """int32: rows that hold words; the others come after them."""

    def each_block(self, height: int, state: Any, work: Callable[..., Any]) -> Any:
        """Return ``state`` after ``work(state, texts, positions, tokens)`` on all blocks.

        The rows that fill no whole block are worked on in parts of it, so that few empty rows are.
        """
        width = self.texts.shape[1]

        def work_in(height: int, first: jax.Array, end: jax.Array, state: Any) -> Any:
            def advance(block: jax.Array, state: Any) -> Any:
                at = first + block * height, jnp.int32(0)
                return work(
                    state,
                    *(jax.lax.dynamic_slice(rows, at, (height, width)) for rows in self[:3]),
                )

            return jax.lax.fori_loop(0, (end - first + height - 1) // height, advance, state)

        whole = self.used // height * height
        state = work_in(height, jnp.int32(0), whole, state)
        return work_in(height // PARTS, whole, self.used, state)


def pack(texts: EncoderInput, row_words: int, multiple_of: int = 1) -> Rows:
    """Lay the words that are present into rows of ``row_words`` slots, each text after the one
    before it, or at the beginning of the next row. The number of rows is a multiple.
    """
    n_texts, length = texts.tokens.shape
    end = jnp.cumsum(jnp.sum(texts.present, axis=1, dtype=jnp.int32), dtype=jnp.int32)
    begin = jnp.concatenate([jnp.zeros(1, jnp.int32), end[:-1]])
    # For each text, the first one after it that does not fit into a row that begins with it.
    following = jnp.searchsorted(end, begin + row_words, side="right").astype(jnp.int32)

    def open_row(state: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        first, opens = state
        return following[first], opens.at[first].set(1)

    start = jnp.int32(0), jnp.zeros(n_texts, jnp.int32)
    opens = jax.lax.while_loop(lambda state: state[0] < n_texts, open_row, start)[1]
    row = jnp.cumsum(opens, dtype=jnp.int32) - 1
    # ``begin`` never falls: the largest so far is that of the text that opened the row.
    row_begin = jax.lax.cummax(jnp.where(opens > 0, begin, 0))
    first_slot = row * row_words + begin - row_begin
    slots_VxL = first_slot[:, None] + jnp.cumsum(texts.present, axis=1, dtype=jnp.int32) - 1
    n_rows = -(-_most_rows(texts, row_words) // multiple_of) * multiple_of
    slots = jnp.where(texts.present, slots_VxL, n_rows * row_words).reshape(-1)

    def lay(values: jax.Array) -> jax.Array:
        words = jnp.broadcast_to(values, texts.tokens.shape).reshape(-1)
        flat = jnp.zeros(n_rows * row_words, jnp.int32).at[slots].set(words, mode="drop")
        return flat.reshape(n_rows, row_words)

    return Rows(
        lay(jnp.arange(1, n_texts + 1, dtype=jnp.int32)[:, None]),
        lay(jnp.arange(length, dtype=jnp.int32)[None, :]),
        lay(texts.tokens),
        row[-1] + 1,
    )


def _most_rows(texts: EncoderInput, row_words: int) -> int:
    """Return the rows that suffice: two that follow each other hold more than one has slots."""
    return min(len(texts.tokens), 2 * texts.tokens.size // row_words + 1)


def _pack_blocks(texts: EncoderInput, shape: Shape) -> tuple[Rows, int, jax.Array]:
    """Return packed rows, the rows of a block, and each text's weight of a word in its mean,
    float32[1 + V]; no text stands first.
    """
    width = max(shape.row_words, texts.tokens.shape[1])
    height = max(shape.block_rows, shape.block_words // width)
    height = -(-min(height, _most_rows(texts, width)) // PARTS) * PARTS
    counts = jnp.sum(texts.present, axis=1, dtype=jnp.float32)
    return pack(texts, width, height), height, jnp.pad(1 / jnp.maximum(counts, 1), (1, 0))


@partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def packed(
    encode: Encode, shape: Shape, parameters: Any, table: jax.Array, texts: EncoderInput
) -> jax.Array:
    """Encode several texts in a row, to the value and gradient of texts that are padded.

    It has no forward-mode derivative.
    """
    return _forward(encode, shape, parameters, table, texts)[0]


def _forward(
    encode: Encode, shape: Shape, parameters: Any, table: jax.Array, texts: EncoderInput
) -> tuple[jax.Array, Any]:
    rows, height, share = _pack_blocks(texts, shape)

    def vectors_of(texts: jax.Array, positions: jax.Array, tokens: jax.Array) -> jax.Array:
        return encode(parameters, table[tokens], positions, texts)

    def work(total_VxH: jax.Array, texts: jax.Array, *rest: jax.Array) -> jax.Array:
        return total_VxH.at[texts].add(vectors_of(texts, *rest) * share[texts][..., None])

    row = jax.eval_shape(vectors_of, *(array[:1] for array in rows[:3]))
    zeros = jnp.zeros((len(share), row.shape[-1]), row.dtype)
    return rows.each_block(height, zeros, work)[1:], (parameters, table, texts)


def _backward(
    encode: Encode, shape: Shape, kept: Any, gradient_VxH: jax.Array
) -> tuple[Any, jax.Array, None]:
    parameters, table, texts = kept
    rows, height, share = _pack_blocks(texts, shape)
    of_word_VxH = jnp.pad(gradient_VxH, ((1, 0), (0, 0))) * share[:, None]

    def work(
        state: tuple[Any, jax.Array], texts: jax.Array, positions: jax.Array, tokens: jax.Array
    ) -> tuple[Any, jax.Array]:
        def vectors(parameters: Any, words: jax.Array) -> jax.Array:
            return encode(parameters, words, positions, texts)

        total, of_table = state
        of_parameters, of_words = jax.vjp(vectors, parameters, table[tokens])[1](of_word_VxH[texts])
        return jax.tree.map(jnp.add, total, of_parameters), of_table.at[tokens].add(of_words)

    zeros = jax.tree.map(jnp.zeros_like, parameters), jnp.zeros_like(table)
    return *rows.each_block(height, zeros, work), None


packed.defvjp(_forward, _backward)
