r"""The definition of a word, the same for every data set and every script.

A word is a run of letters and numbers (Unicode's categories L and N) with the marks (Mn, Mc) that
follow them, after compatibility normalisation (NFKC, a superset of NFC) and in lower case:

- Vowel signs, points and accents belong to the letter that they follow, so ``हिन्दी`` is one word,
  and an accent may be composed or not.
- Scripts that are written without spaces between words (:data:`UNSPACED`) are cut into overlapping
  pairs of characters with their marks: ``爱情片`` is ``爱情 情片``. A lone character is a word.
- Everything else separates: hyphens and apostrophes (``don't`` is ``don t``, with ``'`` and ``’``),
  underscores, symbols, emoji. A text of emoji alone has no words.
- Invisible characters vanish: soft hyphens, joiners, variation selectors, marks of direction. A
  zero-width space separates.
- ``İ`` becomes ``i`` and ``ı`` stays, so ``İstanbul`` and ``istanbul`` are one word.
- Line ends and letters that an export wrote as ``\n``, ``\r``, ``\t`` and ``\u00e9`` are read as
  such where every backslash of a text can be an escape. Other backslashes separate.
"""

from __future__ import annotations

import re
import unicodedata
from functools import cache
from itertools import pairwise
from typing import NamedTuple

UNSPACED: dict[str, tuple[tuple[int, int], ...]] = {
    "Han": ((0x2E80, 0x2FDF), (0x3005, 0x3007), (0x3021, 0x3029), (0x3038, 0x303B),
            (0x3400, 0x4DBF), (0x4E00, 0x9FFF), (0xF900, 0xFAFF), (0x20000, 0x3FFFF)),
    "Hiragana and Katakana": ((0x3031, 0x3035), (0x3041, 0x30FF), (0x31F0, 0x31FF),
                              (0x1AFF0, 0x1B16F)),
    "Bopomofo": ((0x3105, 0x312F), (0x31A0, 0x31BF)),
    "Yi": ((0xA000, 0xA4CF),),
    "Tangut, Nushu and Khitan": ((0x16FE0, 0x18DFF), (0x1B170, 0x1B2FF)),
    "Thai": ((0x0E01, 0x0E4E),),
    "Lao": ((0x0E81, 0x0EDF),),
    "Myanmar": ((0x1000, 0x109F), (0xA9E0, 0xA9FF), (0xAA60, 0xAA7F)),
    "Khmer": ((0x1780, 0x17DD),),
    "Tai": ((0x1950, 0x19DF), (0x1A20, 0x1AAF), (0xAA80, 0xAADF), (0x11700, 0x1174F)),
    "Balinese and Javanese": ((0x1B00, 0x1B4F), (0xA980, 0xA9CF)),
}  # fmt: skip
"""Code points of the scripts that are written without spaces between words."""

_ASCII_WORD = re.compile(r"[a-z0-9]+")
_UNSPACED = "".join(
    f"{chr(first)}-{chr(last)}" for ranges in UNSPACED.values() for first, last in ranges
)
_FOLDED = str.maketrans({"İ": "i"})
# NFKC takes these two vowels apart, and so from the consonant that they belong to.
_AM_VOWELS = {"\u0e4d\u0e32": "\u0e33", "\u0ecd\u0eb2": "\u0eb3"}
_SEPARATING_FORMAT = "\u200b"
_IGNORED_MARKS = "\u034f\u180b-\u180d\u180f\ufe00-\ufe0f\U000e0100-\U000e01ef"
_MARKED_PLANES = (range(0x80, 0x20000), range(0xE0000, 0xE0200))

_LATEX = "nabla|neq?|not|nu|rangle|rho|right|rightarrow|rm|tau|text[a-z]*|theta|tilde|times|top?"
_ESCAPE = rf"(?P<letters>(?:\\u[0-9a-fA-F]{{4}})+)|(?P<space>\\(?!(?:{_LATEX})\b)[nrt])|\\[^A-Za-z]"
_ANY_ESCAPE = re.compile(_ESCAPE)
_ESCAPED_TEXT = re.compile(rf"(?:[^\\]|{_ESCAPE})*", re.DOTALL)
_DRIVE = re.compile(r"\b[A-Za-z]:\\")


def tokenize(text: str) -> list[str]:
    """Return the words of a text, in order."""
    if "\\" in text:
        text = read_escapes(text)
    if text.isascii():
        return _ASCII_WORD.findall(text.lower())
    patterns = _patterns()
    text = unicodedata.normalize("NFKC", text).translate(_FOLDED)
    for apart, vowel in _AM_VOWELS.items():
        text = text.replace(apart, vowel)
    text = unicodedata.normalize("NFC", patterns.ignored.sub("", text).lower())
    words = []
    for match in patterns.run.finditer(text):
        if match.lastgroup == "spaced":
            words.append(match[0])
            continue
        characters = patterns.unspaced_character.findall(match[0])
        pairs = pairwise(characters)
        words += ["".join(pair) for pair in pairs] or characters
    return words


def is_unspaced(word: str) -> bool:
    """Return whether a word begins in a script that is written without spaces."""
    return not word.isascii() and _patterns().unspaced_character.match(word) is not None


def read_escapes(text: str) -> str:
    r"""Return a text with ``\n``, ``\r``, ``\t`` and ``\u00e9`` read, if its backslashes are
    escapes; LaTeX and Windows paths are left alone.
    """
    if _DRIVE.search(text) or not _ESCAPED_TEXT.fullmatch(text):
        return text
    return _ANY_ESCAPE.sub(_read_escape, text)


def _read_escape(escape: re.Match[str]) -> str:
    if escape["letters"]:
        units = bytes.fromhex(escape["letters"].replace("\\u", ""))
        return units.decode("utf-16-be", "replace")
    return " " if escape["space"] else escape[0]


class _Patterns(NamedTuple):
    run: re.Pattern[str]
    """A word, in the group ``spaced``, or a run of characters that are written without spaces."""
    unspaced_character: re.Pattern[str]
    ignored: re.Pattern[str]


@cache
def _patterns() -> _Patterns:
    """Compile the patterns for texts beyond ASCII, from the categories of all characters."""
    marks, ignored = [], [_IGNORED_MARKS]
    for code in (code for plane in _MARKED_PLANES for code in plane):
        category = unicodedata.category(chr(code))
        if category in ("Mn", "Mc"):
            marks.append(chr(code))
        elif category in ("Cf", "Me") and chr(code) != _SEPARATING_FORMAT:
            ignored.append(chr(code))
    with_marks = f"[{''.join(marks)}]*"
    unspaced = rf"(?=[{_UNSPACED}])[^\W\d_]{with_marks}"
    spaced = rf"(?:\d|(?![{_UNSPACED}])[^\W_]){with_marks}"
    return _Patterns(
        re.compile(rf"(?P<spaced>(?:{spaced})+)|(?:{unspaced})+"),
        re.compile(unspaced),
        re.compile(f"[{''.join(ignored)}]"),
    )
