"""Texts as token ids, and the vocabulary that these stand for."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ncfbench.data.words import tokenize
from ncfbench.errors import DataError
from ncfbench.storage.tables import storage_errors

if TYPE_CHECKING:
    from ncfbench.data.pieces import Pieces

PADDING = 0
"""The token id of no word; words are numbered from 1."""
WORDS_AT_ONCE = 2**22
"""Words of a corpus in memory at a time: 16 MB."""
MOST_WORDS = 2**24
"""Different words that a corpus may have; each costs about 150 bytes of memory."""


@dataclass(frozen=True)
class Vocabulary:
    """Words by falling count, ties alphabetically; word i of the tuple has the token id i + 1."""

    words: tuple[str, ...]
    counts: tuple[int, ...]


@dataclass(frozen=True)
class Texts:
    """Token ids of n items, one item after another::

        words   = [4 5 6 7 8]
        lengths = [2 0 3]         item 0: 4 5, item 1: nothing, item 2: 6 7 8

    Args:
        words: int32[total], ids from 1; often a file that is mapped, not read.
        lengths: int32[n].
    """

    words: NDArray[np.int32]
    lengths: NDArray[np.int32]

    @cached_property
    def offsets(self) -> NDArray[np.int64]:
        """int64[n + 1]: the index of each item's first word, and the number of all words."""
        return np.concatenate([np.zeros(1, np.int64), np.cumsum(self.lengths, dtype=np.int64)])

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, item: int) -> NDArray[np.int32]:
        return self.words[self.offsets[item] : self.offsets[item + 1]]

    def taken(self, items: NDArray[np.integer]) -> Texts:
        """Copy the texts of the given items, in that order: ``taken([2, 0])`` of the example holds
        ``[6 7 8 4 5]``.
        """
        lengths = self.lengths[items]
        taken = Texts(np.empty(int(lengths.sum(dtype=np.int64)), np.int32), lengths)
        for row, item in enumerate(items.tolist()):
            taken.words[taken.offsets[row] : taken.offsets[row + 1]] = self[item]
        return taken

    def padded(self) -> NDArray[np.int32]:
        """Return int32[n, L], as wide as the longest text, filled up with :data:`PADDING`."""
        length = max(int(self.lengths.max(initial=0)), 1)
        tokens = np.full((len(self), length), PADDING, dtype=np.int32)
        tokens[np.arange(length) < self.lengths[:, None]] = self.words
        return tokens


class _Numbers(dict[str, int]):
    """A number for each word, from 0, in the order of the first look-up."""

    def __missing__(self, word: str) -> int:
        number = self[word] = len(self)
        return number


class Corpus:
    """The texts of all items, added one after another, with few of their words in memory.

    Words are numbered as they come, and the numbers written to a file. Once all words are counted,
    a second pass over that file replaces these numbers by token ids. Memory holds the different
    words and a piece of the file, however long all texts are together.

    Args:
        folder: takes two files of 4 bytes a word; the caller removes it.
        pieces: makes word pieces of a pretrained model, which are then the vocabulary.
        clean: removes markup from a text before it becomes words.
    """

    def __init__(
        self,
        folder: Path,
        pieces: Pieces | None = None,
        clean: Callable[[str], str] | None = None,
    ) -> None:
        self._pieces_of = pieces
        self._clean = clean
        self._raw, self._final = folder / "words.raw", folder / "words.final"
        self._numbers = _Numbers()
        self._pending = array("i")
        self._lengths = array("i")
        with storage_errors(self._raw):
            self._raw.write_bytes(b"")

    def __len__(self) -> int:
        return len(self._lengths)

    def tokenize(self, text: str) -> list[str]:
        """Return the tokens of a text, in order: words, or word pieces."""
        if self._clean is not None:
            text = self._clean(text)
        return tokenize(text) if self._pieces_of is None else self._pieces_of(text)

    def add(self, tokens: Iterable[str]) -> None:
        """Add the words of the next item.

        Raises:
            DataError: more different words than :data:`MOST_WORDS`, or a full disk.
        """
        if self._pieces_of is not None:
            tokens = self._pieces_of.whole(tokens)
        before = len(self._pending)
        self._pending.extend(map(self._numbers.__getitem__, tokens))
        self._lengths.append(len(self._pending) - before)
        if len(self._pending) >= WORDS_AT_ONCE:
            self._flush()

    def finish(self, min_count: int, size: int | None, max_length: int) -> tuple[Texts, Vocabulary]:
        """Keep the words that occur ``min_count`` times or more, at most ``size`` of them.

        Other words are left out of a text before it is cut to ``max_length``.

        Raises:
            DataError: no word is left, or a full disk.
        """
        self._flush()
        counts = np.zeros(len(self._numbers), np.int64)
        for _, numbers in self._pieces():
            counts += np.bincount(numbers, minlength=len(counts))
        words = list(self._numbers)
        if self._pieces_of is not None:
            return self._finish_pieces(self._pieces_of, words, counts)
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
        return self._encoded(ids, max_length), vocabulary

    def _finish_pieces(
        self, pieces: Pieces, words: Sequence[str], counts: NDArray[np.int64]
    ) -> tuple[Texts, Vocabulary]:
        """Return the texts by the ids of a model, and its whole vocabulary with counts."""
        ids = np.array([pieces.ids[word] for word in words], np.int32)
        of_piece = np.zeros(len(pieces.ids), np.int64)
        of_piece[ids] = counts
        vocabulary = Vocabulary(pieces.words, tuple(of_piece[1:].tolist()))
        return self._encoded(ids, int(np.max(self._lengths, initial=0))), vocabulary

    def _encoded(self, ids: NDArray[np.int32], max_length: int) -> Texts:
        """Replace numbers by ids, in a second pass over the file."""
        lengths = np.zeros(len(self), np.int32)
        with storage_errors(self._final), self._final.open("wb") as file:
            for items, numbers in self._pieces():
                found, lengths[items] = _encode(
                    ids[numbers], np.asarray(self._lengths)[items], max_length
                )
                file.write(found.data)
        self._raw.unlink()
        return Texts(_mapped(self._final), lengths)

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
        """Yield runs of items and their words' numbers: about :data:`WORDS_AT_ONCE` words, or one
        longer item.
        """
        raw, ends = _mapped(self._raw), np.cumsum(np.asarray(self._lengths), dtype=np.int64)
        item = word = 0
        while item < len(ends):
            after = max(int(np.searchsorted(ends, word + WORDS_AT_ONCE, side="right")), item + 1)
            yield slice(item, after), raw[word : ends[after - 1]]
            item, word = after, int(ends[after - 1])


def _encode(
    ids: NDArray[np.int32], lengths: NDArray[np.integer], max_length: int
) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """Leave unknown words out of some texts and cut each; return the words and the new lengths."""
    known = np.concatenate([np.zeros(1, np.int64), np.cumsum(ids != PADDING)])
    text = np.repeat(np.arange(len(lengths)), lengths)
    begin = known[np.cumsum(lengths) - lengths]
    kept = (ids != PADDING) & (known[:-1] - begin[text] < max_length)
    return ids[kept], np.bincount(text[kept], minlength=len(lengths))


def _mapped(path: Path) -> NDArray[np.int32]:
    """Map a file of int32; an empty one cannot be mapped."""
    return np.memmap(path, np.int32, "r") if path.stat().st_size else np.zeros(0, np.int32)
