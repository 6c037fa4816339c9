"""Texts as token ids, and the words that these stand for."""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from ncfbench.data.assets.pieces import Pieces
from ncfbench.data.options import TextOptions
from ncfbench.data.words import tokenize
from ncfbench.errors import DataError

Int32: TypeAlias = NDArray[np.int32]
PADDING = 0  # the token id of no word; words are numbered from 1
MOST_WORDS = 2**24  # different ones of a corpus; each costs about 150 bytes of memory


@dataclass(frozen=True)
class Texts:
    """Token ids of n items, one item after another::

        words   = [4 5 6 7 8]
        lengths = [2 0 3]         item 0: 4 5, item 1: nothing, item 2: 6 7 8

    Args:
        words: int32[total], ids from 1; often a file that is mapped, not read.
        lengths: int32[n].
    """

    words: Int32
    lengths: Int32

    @cached_property
    def _ends(self) -> NDArray[np.int64]:
        return np.cumsum(self.lengths, dtype=np.int64)

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, item: int) -> Int32:
        end = self._ends[item]
        return self.words[end - self.lengths[item] : end]

    def padded(self) -> Int32:
        """Return int32[n, L], as wide as the longest text, filled up with :data:`PADDING`."""
        length = max(int(self.lengths.max(initial=0)), 1)
        tokens = np.full((len(self), length), PADDING, dtype=np.int32)
        tokens[np.arange(length) < self.lengths[:, None]] = self.words
        return tokens


class Corpus:
    """Collects the texts of all items, one after another, and numbers their words.

    Args:
        options: the tokenizer, if any, and which words are kept.
        clean: removes markup, which word pieces keep, from a text before it becomes words.

    Raises:
        DataError, UsageError: see :class:`ncfbench.data.assets.pieces.Pieces`.
    """

    def __init__(self, options: TextOptions, clean: Callable[[str], str] = str) -> None:
        self._options = options
        self._pieces = Pieces(options.tokenizer, options.max_length) if options.tokenizer else None
        self._clean = clean
        self._numbers: defaultdict[str, int] = defaultdict()
        self._numbers.default_factory = self._numbers.__len__
        self._tokens = array("i")
        self._lengths = array("i")

    def __len__(self) -> int:
        return len(self._lengths)

    def tokenize(self, text: str) -> list[str]:
        """Return the tokens of a text, in order: words, or word pieces."""
        return self._pieces(text) if self._pieces else tokenize(self._clean(text))

    def add(self, tokens: Iterable[str]) -> None:
        """Add the words of the next item; a DataError above :data:`MOST_WORDS` different ones."""
        if self._pieces is not None:
            tokens = self._pieces.whole(tokens)
        before = len(self._tokens)
        self._tokens.extend(map(self._numbers.__getitem__, tokens))
        self._lengths.append(len(self._tokens) - before)
        if len(self._numbers) > MOST_WORDS:
            raise DataError(
                f"More than {MOST_WORDS:,} different words: is this text? Make words of it, or"
                " tokens, first."
            )

    def finish(self) -> tuple[Texts, tuple[str, ...]]:
        """Return the texts, cut to the length, and the words of the ids 1, 2, ..., without those
        that the options leave out; word pieces are all kept. A DataError if no word is left.
        """
        min_count = self._options.min_count
        tokens, lengths = np.asarray(self._tokens, np.int32), np.asarray(self._lengths, np.int32)
        words = list(self._numbers)
        counts = np.bincount(tokens, minlength=len(words))
        if self._pieces is not None:
            tokens = np.array([self._pieces.ids[word] for word in words], np.int32)[tokens]
            return Texts(tokens, lengths), self._pieces.words
        kept: list[int] = np.flatnonzero(counts >= min_count).tolist()
        kept.sort(key=lambda number: (-counts[number], words[number]))
        if not kept:
            raise DataError(f"No word is left of {len(self):,} texts with min_count = {min_count}.")
        ids = np.full(len(words), PADDING, np.int32)
        ids[kept] = np.arange(1, len(kept) + 1)
        tokens = ids[tokens]
        text = np.repeat(np.arange(len(lengths)), lengths)[tokens != PADDING]
        tokens = tokens[tokens != PADDING]
        first = np.searchsorted(text, np.arange(len(lengths)))
        is_kept = np.arange(len(tokens)) - first[text] < self._options.max_length
        lengths = np.bincount(text[is_kept], minlength=len(lengths)).astype(np.int32)
        return Texts(tokens[is_kept], lengths), tuple(words[number] for number in kept)
