"""The definition of a word, the same for every data set and every script: see data/README.md."""

from __future__ import annotations

import re
import unicodedata
from functools import cache
from itertools import chain, pairwise

UNSPACED = (
    r"\u2E80-\u2FDF\u3005-\u3007\u3021-\u3029\u3038-\u303B\u3400-\u4DBF\u4E00-\u9FFF\uF900-\uFAFF"
    r"\U00020000-\U0003FFFF"  # Han
    r"\u3031-\u3035\u3041-\u30FF\u31F0-\u31FF\U0001AFF0-\U0001B16F"  # Hiragana, Katakana
    r"\u3105-\u312F\u31A0-\u31BF\uA000-\uA4CF"  # Bopomofo, Yi
    r"\U00016FE0-\U00018DFF\U0001B170-\U0001B2FF"  # Tangut, Nushu, Khitan
    r"\u0E01-\u0E4E\u0E81-\u0EDF"  # Thai, Lao
    r"\u1000-\u109F\uA9E0-\uA9FF\uAA60-\uAA7F\u1780-\u17DD"  # Myanmar, Khmer
    r"\u1950-\u19DF\u1A20-\u1AAF\uAA80-\uAADF\U00011700-\U0001174F"  # Tai
    r"\u1B00-\u1B4F\uA980-\uA9CF"  # Balinese, Javanese
)
"""Ranges, in a regular expression, of the scripts that are written without spaces between words."""

_ASCII_WORD = re.compile(r"[a-z0-9]+")
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
    """Return the words of a text, in order, in lower case and Unicode's form NFC: runs of letters
    and numbers with the marks that follow them, or overlapping pairs of :data:`UNSPACED` letters.
    """
    if "\\" in text:
        text = read_escapes(text)
    if text.isascii():
        return _ASCII_WORD.findall(text.lower())
    run, character, ignored = _patterns()
    text = unicodedata.normalize("NFKC", text).translate(_FOLDED)
    for apart, vowel in _AM_VOWELS.items():
        text = text.replace(apart, vowel)
    text = unicodedata.normalize("NFC", ignored.sub("", text).lower())
    words = []
    for match in run.finditer(text):
        if match.lastgroup == "spaced":
            words.append(match[0])
        else:
            characters = character.findall(match[0])
            words += map("".join, pairwise(characters)) if characters[1:] else characters
    return words


def is_unspaced(word: str) -> bool:
    """Return whether a word begins in a script that is written without spaces."""
    return not word.isascii() and _patterns()[1].match(word) is not None


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


@cache
def _patterns() -> tuple[re.Pattern[str], re.Pattern[str], re.Pattern[str]]:
    """Compile patterns for texts beyond ASCII from the categories of all characters: a word, in the
    group ``spaced``, or a run without spaces; a character of such a run; what is ignored.
    """
    marks, ignored = [], [_IGNORED_MARKS]
    for character in map(chr, chain(*_MARKED_PLANES)):
        category = unicodedata.category(character)
        if category in ("Mn", "Mc"):
            marks.append(character)
        elif category in ("Cf", "Me") and character != _SEPARATING_FORMAT:
            ignored.append(character)
    with_marks = f"[{''.join(marks)}]*"
    unspaced = rf"(?=[{UNSPACED}])[^\W\d_]{with_marks}"
    spaced = rf"(?:\d|(?![{UNSPACED}])[^\W_]){with_marks}"
    return (
        re.compile(rf"(?P<spaced>(?:{spaced})+)|(?:{unspaced})+"),
        re.compile(unspaced),
        re.compile(f"[{''.join(ignored)}]"),
    )
