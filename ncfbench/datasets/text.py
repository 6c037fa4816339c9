"""Text to tokens: one tokeniser for every data set, and a vocabulary by count.

A token is a run of Unicode letters and digits, lower-cased after NFKC normalisation; everything else separates, so
``state-of-the-art`` is four tokens and ``rr_interval`` two. What bibliographies write in LaTeX is cleaned first: braces
vanish (``c{DNA}`` is one token), accents join their letter (``Barab\\'asi``), symbols keep their name (``$\\lambda$``).
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

PADDING = 0
"""The token id that stands for no word; words are numbered from 1."""

_COMBINING = {
    "'": "\u0301", "`": "\u0300", "^": "\u0302", '"': "\u0308", "~": "\u0303", "=": "\u0304", ".": "\u0307",
    "u": "\u0306", "v": "\u030c", "H": "\u030b", "c": "\u0327", "k": "\u0328", "r": "\u030a", "d": "\u0323", "b": "\u0331",
}  # fmt: skip
_LETTERS = {"ss": "ß", "o": "ø", "O": "Ø", "l": "ł", "L": "Ł", "ae": "æ", "AE": "Æ", "oe": "œ", "OE": "Œ", "aa": "å",
            "AA": "Å", "i": "i", "j": "j", "textless": "<", "textgreater": ">"}  # fmt: skip
_FORMATTING = {"emph", "textit", "textbf", "textrm", "textsc", "texttt", "textsuperscript", "textsubscript", "mathrm",
               "mathbf", "mathit", "mathcal", "em", "it", "bf", "rm", "sc", "tt", "ensuremath", "text"}  # fmt: skip

_ACCENT = re.compile(r"\\(?:(['`^\"~=.])\s*\{?\\?([A-Za-z])\}?|([uvHckrdb])(?:\s*\{\\?([A-Za-z])\}|\s+([A-Za-z])))")
_COMMAND = re.compile(r"\\([A-Za-z]+)\s*")
_TAG = re.compile(r"</?[A-Za-z][^<>]{0,200}>")
_TOKEN = re.compile(r"[^\W_]+")


def clean_latex(text: str) -> str:
    r"""``text`` without LaTeX: ``Barab{\'a}si`` becomes ``Barabási``, ``c{DNA}`` becomes ``cDNA``."""
    if "\\" not in text and "{" not in text and "<" not in text:
        return text
    text = text.replace("\\{", "{").replace("\\}", "}").replace("\\\\", "\\")
    text = _ACCENT.sub(lambda m: (m[2] or m[4] or m[5]) + _COMBINING[m[1] or m[3]], text)
    text = _COMMAND.sub(lambda m: "" if m[1] in _FORMATTING else _LETTERS.get(m[1], f" {m[1]} "), text)
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

    @classmethod
    def build(cls, texts: Iterable[Sequence[str]], min_count: int, size: int | None = None) -> Vocabulary:
        """The words that occur ``min_count`` times or more in all texts, at most ``size`` of them."""
        counter: Counter[str] = Counter()
        for tokens in texts:
            counter.update(tokens)
        kept = sorted(((word, n) for word, n in counter.items() if n >= min_count), key=lambda pair: (-pair[1], pair[0]))
        kept = kept[:size]
        return cls(words=tuple(word for word, _ in kept), counts=tuple(n for _, n in kept))

    def encode(self, texts: Iterable[Sequence[str]], max_length: int) -> list[NDArray[np.int32]]:
        """The ids of each text's known words, unknown ones left out, then cut to ``max_length``."""
        ids = {word: number for number, word in enumerate(self.words, start=1)}
        return [np.array([ids[token] for token in tokens if token in ids][:max_length], dtype=np.int32) for tokens in texts]


def pad(texts: Sequence[NDArray[np.int32]]) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Texts side by side, as wide as the longest.

    Returns:
        tokens int32[n, L], with :data:`PADDING` behind the last word, and lengths int32[n].
    """
    lengths = np.array([len(text) for text in texts], dtype=np.int32)
    length = max(int(lengths.max(initial=0)), 1)
    tokens = np.full((len(texts), length), PADDING, dtype=np.int32)
    if len(texts):
        tokens[np.arange(length) < lengths[:, None]] = np.concatenate(texts)
    return tokens, lengths
