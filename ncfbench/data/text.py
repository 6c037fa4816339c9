"""Text to tokens: one tokeniser for every data set, and a vocabulary by count.

A token is a run of Unicode letters and digits, lower-cased after NFKC normalisation; everything
else separates, so ``state-of-the-art`` is four tokens and ``rr_interval`` two. What bibliographies
write in LaTeX is cleaned first: braces vanish (``c{DNA}`` is one token), accents join their letter
(``Barab\\'asi``), symbols keep their name (``$\\lambda$``).
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

PADDING = 0
"""The token id that stands for no word; words are numbered from 1."""

_COMBINING = {
    "'": "\u0301",
    "`": "\u0300",
    "^": "\u0302",
    '"': "\u0308",
    "~": "\u0303",
    "=": "\u0304",
    ".": "\u0307",
    "u": "\u0306",
    "v": "\u030c",
    "H": "\u030b",
    "c": "\u0327",
    "k": "\u0328",
    "r": "\u030a",
    "d": "\u0323",
    "b": "\u0331",
}
_LETTERS = {
    "ss": "ß",
    "o": "ø",
    "O": "Ø",
    "l": "ł",
    "L": "Ł",
    "ae": "æ",
    "AE": "Æ",
    "oe": "œ",
    "OE": "Œ",
    "aa": "å",
    "AA": "Å",
    "i": "i",
    "j": "j",
    "textless": "<",
    "textgreater": ">",
}
_FORMATTING = {
    "emph",
    "textit",
    "textbf",
    "textrm",
    "textsc",
    "texttt",
    "textsuperscript",
    "textsubscript",
    "mathrm",
    "mathbf",
    "mathit",
    "mathcal",
    "em",
    "it",
    "bf",
    "rm",
    "sc",
    "tt",
    "ensuremath",
    "text",
}

_ACCENT = re.compile(
    r"\\(?:(['`^\"~=.])\s*\{?\\?([A-Za-z])\}?|([uvHckrdb])(?:\s*\{\\?([A-Za-z])\}|\s+([A-Za-z])))"
)
_COMMAND = re.compile(r"\\([A-Za-z]+)\s*")
_TAG = re.compile(r"</?[A-Za-z][^<>]{0,200}>")
_TOKEN = re.compile(r"[^\W_]+")


def clean_latex(text: str) -> str:
    r"""``text`` without LaTeX: ``Barab{\'a}si`` becomes ``Barabási``, ``c{DNA}`` becomes
    ``cDNA``.
    """
    if "\\" not in text and "{" not in text and "<" not in text:
        return text
    text = text.replace("\\{", "{").replace("\\}", "}").replace("\\\\", "\\")
    text = _ACCENT.sub(lambda m: (m[2] or m[4] or m[5]) + _COMBINING[m[1] or m[3]], text)
    text = _COMMAND.sub(
        lambda m: "" if m[1] in _FORMATTING else _LETTERS.get(m[1], f" {m[1]} "), text
    )
    text = text.replace("{", "").replace("}", "")
    return _TAG.sub(" ", text)


def tokenize(text: str) -> list[str]:
    """The tokens of ``text``, in order."""
    return _TOKEN.findall(unicodedata.normalize("NFKC", clean_latex(text)).lower())


@dataclass(frozen=True)
class Vocabulary:
    """Words by falling count (ties alphabetical); the id of a word is its place, from 1."""

    words: tuple[str, ...]
    counts: tuple[int, ...]


@dataclass(frozen=True)
class Texts:
    """Word ids of n items, one item's after another's::

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
        """int64[n + 1]: where each item's words begin, and behind the last one's."""
        return np.concatenate([np.zeros(1, np.int64), np.cumsum(self.lengths, dtype=np.int64)])

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, item: int) -> NDArray[np.int32]:
        return self.words[self.offsets[item] : self.offsets[item + 1]]

    def taken(self, items: NDArray[np.integer]) -> Texts:
        """The texts of the given items, in that order, in memory: ``taken([2, 0])`` of the example
        is ``[6 7 8 4 5]``.
        """
        lengths = self.lengths[items]
        taken = Texts(np.empty(int(lengths.sum(dtype=np.int64)), np.int32), lengths)
        for place, item in enumerate(items.tolist()):
            taken.words[taken.offsets[place] : taken.offsets[place + 1]] = self[item]
        return taken

    def padded(self) -> NDArray[np.int32]:
        """int32[n, L], as wide as the longest, with :data:`PADDING` behind the last word."""
        length = max(int(self.lengths.max(initial=0)), 1)
        tokens = np.full((len(self), length), PADDING, dtype=np.int32)
        tokens[np.arange(length) < self.lengths[:, None]] = self.words
        return tokens
