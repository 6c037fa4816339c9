"""Vectors of all users and of many items outside training."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from numpy.typing import NDArray

from ncfbench.models.blocks import by_length
from ncfbench.models.tables import FREE_ITEMS, WHOLE_TABLES
from ncfbench.models.towers import DeviceContent, Towers, UserVectors
from ncfbench.training.state import Parameters

Embed: TypeAlias = Callable[[Parameters, NDArray[np.int32], DeviceContent], jax.Array]
BLOCK_WORDS = 2**16
"""Word slots of a block of items: some 50 MB of activity in the convolution."""


def row_blocks(count: int, size: int) -> Iterator[NDArray[np.intp]]:
    """Yield all rows in blocks of one size; the last row fills the last block."""
    for start in range(0, count, size):
        yield np.minimum(np.arange(start, start + size), count - 1)


def compiled(towers: nnx.GraphDef[Towers], method: str) -> Any:
    """Return a method of towers as a compiled function of their parameters and its arguments."""

    @jax.jit
    def vectors(parameters: Parameters, *arguments: Any) -> Any:
        return getattr(nnx.merge(towers, parameters), method)(*arguments)

    return vectors


compiled_once = lru_cache(maxsize=64)(compiled)
"""The same, kept for runs to come, of towers without plug-ins: these may not be compared."""


class Embedder:
    """Vectors of all users and of many items, dropout off, in full float32.

    Items are embedded in blocks, so that memory is bounded and few compilations serve.

    Args:
        by_length: embed costly items in small blocks of texts of about equal lengths.
        is_shared: keep the compiled functions for embedders of equal towers.
    """

    def __init__(
        self,
        towers: nnx.GraphDef[Towers],
        content: DeviceContent,
        *,
        by_length: bool = False,
        is_shared: bool = False,
    ) -> None:
        self.towers, self.content, self.by_length = towers, content, by_length
        self.watch: Callable[[int, int], None] = lambda done, total: None
        """Called after each block of costly items: how many are done, and of how many."""
        self._length = max(int(content.tokens.shape[1]), 1)
        self._lengths = np.asarray(content.lengths) if by_length else np.zeros(0, np.int32)
        self._contents = {self._length: content}
        self._slot_seconds: float | None = None
        self.block = int(np.clip(BLOCK_WORDS // self._length, 32, 4096))

        make = compiled_once if is_shared else compiled
        self._users = make(towers, "users")
        self._items: Embed = make(towers, "items")
        self._cold_items: Embed = make(towers, "cold_items")

    def users(self, parameters: Parameters) -> UserVectors:
        """Return the vectors of all users, float32[n_users, D]."""
        vectors: UserVectors = self._users(parameters, self.content)
        return vectors

    def link_users(
        self, parameters: Parameters, users: NDArray[np.int32], items: NDArray[np.int32]
    ) -> UserVectors | None:
        """Return the vectors of the users of positive links, float32[M, D], whose histories lack
        the link itself; None where the user tower reads no histories.
        """
        if self.content.histories is None:
            return None
        vectors: UserVectors = self._users(parameters, self.content, users, WHOLE_TABLES, items)
        return vectors

    def items(self, parameters: Parameters, ids: NDArray[np.int32]) -> jax.Array:
        """Return the vectors of items with training links, float32[len(ids), D]."""
        return self._in_blocks(self._items, parameters, ids)

    def cold_items(self, parameters: Parameters, ids: NDArray[np.int32]) -> jax.Array:
        """Return the vectors of items without training links, float32[len(ids), D]."""
        return self._in_blocks(self._embed_cold(parameters), parameters, ids)

    def candidates(
        self, parameters: Parameters, ids: NDArray[np.int32], is_new: NDArray[np.bool_]
    ) -> jax.Array:
        """Return the vectors that score items, float32[len(ids), D].

        Args:
            is_new: bool[len(ids)], which have no training link.
        """
        if is_new.all() or FREE_ITEMS not in parameters:
            return self.cold_items(parameters, ids)
        vectors = self.items(parameters, ids)
        if not is_new.any():
            return vectors
        return vectors.at[np.flatnonzero(is_new)].set(self.cold_items(parameters, ids[is_new]))

    def forecast(self, parameters: Parameters, ids: NDArray[np.int32]) -> float:
        """Return about how many seconds costly items take; the first call times a block."""
        _, blocks = self._split(ids)
        if self._slot_seconds is None:
            length, block = blocks[0]
            embed, content = self._embed_cold(parameters), self._cut(length)
            for _ in range(2):
                begin = time.perf_counter()
                jax.block_until_ready(embed(parameters, block, content))
                seconds = time.perf_counter() - begin
            self._slot_seconds = seconds / (length * len(block))
        return self._slot_seconds * sum(length * len(block) for length, block in blocks)

    def _embed_cold(self, parameters: Parameters) -> Embed:
        # With direct coupling g is the vector of all items: one compiled function serves.
        return self._cold_items if FREE_ITEMS in parameters else self._items

    def _in_blocks(self, embed: Embed, parameters: Parameters, ids: NDArray[np.int32]) -> jax.Array:
        # Each block has a dispatch of its own: a convolution inside a scan is slow on a CPU.
        order, blocks = self._split(ids)
        parts, done = [], 0
        for length, block in blocks:
            parts.append(embed(parameters, block, self._cut(length)))
            if self.by_length:
                jax.block_until_ready(parts[-1])
                done = min(done + len(block), len(ids))
                self.watch(done, len(ids))
        return jnp.concatenate(parts)[np.argsort(order)]

    def _split(
        self, ids: NDArray[np.int32]
    ) -> tuple[NDArray[np.intp], list[tuple[int, NDArray[np.int32]]]]:
        """Return an order of the ids, costly ones by length, the longest text first, and blocks of
        ids in that order, each with the length that its texts are cut to.
        """
        if not self.by_length:
            rows = row_blocks(len(ids), self.block)
            return np.arange(len(ids)), [(self._length, ids[block]) for block in rows]
        order, blocks = by_length(self._lengths[ids], self._length)
        return order, [(length, ids[order[rows]]) for length, rows in blocks]

    def _cut(self, length: int) -> DeviceContent:
        if length not in self._contents:
            tokens = self.content.tokens[:, :length]
            self._contents[length] = self.content._replace(tokens=tokens)
        return self._contents[length]
