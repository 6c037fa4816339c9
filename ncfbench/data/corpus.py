"""Texts on their way to token ids, at most a few million words of them in memory.

Words are numbered as they come and written to a file; once all are counted, a second pass over that
file turns their numbers into the vocabulary's. Memory holds the different words and a piece of the
file, however long the texts are in all.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ncfbench.data.text import PADDING, Texts, Vocabulary
from ncfbench.errors import DataError
from ncfbench.storage.tables import storage_errors

PIECE = 2**22
"""Words worked on at a time: 16 MB."""
MOST_WORDS = 2**24
"""Different words; more are hardly words, and each costs some 150 bytes of memory."""


class _Numbers(dict[str, int]):
    """A number for each word, from 0, in the order in which they were asked for."""

    def __missing__(self, word: str) -> int:
        number = self[word] = len(self)
        return number


class Corpus:
    """The texts of all items, added one after another.

    Args:
        folder: takes two files of 4 bytes a word; whoever made it removes it.
    """

    def __init__(self, folder: Path) -> None:
        self._raw, self._final = folder / "words.raw", folder / "words.final"
        self._numbers = _Numbers()
        self._pending = array("i")
        self._lengths = array("i")
        with storage_errors(self._raw):
            self._raw.write_bytes(b"")

    def __len__(self) -> int:
        return len(self._lengths)

    def add(self, tokens: Iterable[str]) -> None:
        """The words of the next item.

        Raises:
            DataError: more different words than :data:`MOST_WORDS`, or a full disk.
        """
        before = len(self._pending)
        self._pending.extend(map(self._numbers.__getitem__, tokens))
        self._lengths.append(len(self._pending) - before)
        if len(self._pending) >= PIECE:
            self._flush()

    def finish(self, min_count: int, size: int | None, max_length: int) -> tuple[Texts, Vocabulary]:
        """Keep the words that occur ``min_count`` times or more in all texts, at most ``size`` of
        them.

        Unknown words are left out of a text before it is cut to ``max_length``.

        Raises:
            DataError: no word is left, or a full disk.
        """
        self._flush()
        counts = np.zeros(len(self._numbers), np.int64)
        for _, numbers in self._pieces():
            counts += np.bincount(numbers, minlength=len(counts))
        words = list(self._numbers)
        kept: list[int] = np.flatnonzero(counts >= min_count).tolist()
        kept.sort(key=lambda number: (-counts[number], words[number]))
        kept = kept[:size]
        if not kept:
            raise DataError(f"No word is left of {len(self):,} texts with min_count = {min_count}.")
        vocabulary = Vocabulary(
            tuple(words[number] for number in kept), tuple(counts[kept].tolist())
        )
        ids = np.full(len(words), PADDING, np.int32)
        ids[kept] = np.arange(1, len(kept) + 1)
        lengths = np.zeros(len(self), np.int32)
        with storage_errors(self._final), self._final.open("wb") as file:
            for items, numbers in self._pieces():
                found, lengths[items] = _encode(
                    ids[numbers], np.asarray(self._lengths)[items], max_length
                )
                file.write(found.data)
        self._raw.unlink()
        return Texts(_mapped(self._final), lengths), vocabulary

    def _flush(self) -> None:
        if len(self._numbers) > MOST_WORDS:
            raise DataError(
                f"More than {MOST_WORDS:,} different words: is this text? Make words of it, or"
                " tokens, first."
            )
        with storage_errors(self._raw), self._raw.open("ab") as file:
            file.write(memoryview(self._pending))
        self._pending = array("i")

    def _pieces(self) -> Iterator[tuple[slice, NDArray[np.int32]]]:
        """Runs of items, and their words' numbers: some :data:`PIECE` words, or one item that is
        longer.
        """
        raw, ends = _mapped(self._raw), np.cumsum(np.asarray(self._lengths), dtype=np.int64)
        item = word = 0
        while item < len(ends):
            after = max(int(np.searchsorted(ends, word + PIECE, side="right")), item + 1)
            yield slice(item, after), raw[word : ends[after - 1]]
            item, word = after, int(ends[after - 1])


def _encode(
    ids: NDArray[np.int32], lengths: NDArray[np.integer], max_length: int
) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """Some texts without their unknown words, each cut; and what their lengths have become."""
    known = np.concatenate([np.zeros(1, np.int64), np.cumsum(ids != PADDING)])
    text = np.repeat(np.arange(len(lengths)), lengths)
    begin = known[np.cumsum(lengths) - lengths]
    kept = (ids != PADDING) & (known[:-1] - begin[text] < max_length)
    return ids[kept], np.bincount(text[kept], minlength=len(lengths))


def _mapped(path: Path) -> NDArray[np.int32]:
    """A file of int32; an empty one cannot be mapped."""
    return np.memmap(path, np.int32, "r") if path.stat().st_size else np.zeros(0, np.int32)
