r"""Removal of markup from texts: LaTeX as bibliographies write it, and HTML tags.

Braces vanish (``c{DNA}`` is one word), accents join their letter (``Barab\'asi``), symbols keep
their name (``$\lambda$``). Only tags that HTML knows are removed; ``a<b and c>d`` stays.
"""

from __future__ import annotations

import re

# fmt: off
_COMBINING = {
    "'": "\u0301", "`": "\u0300", "^": "\u0302", '"': "\u0308", "~": "\u0303", "=": "\u0304",
    ".": "\u0307", "u": "\u0306", "v": "\u030c", "H": "\u030b", "c": "\u0327", "k": "\u0328",
    "r": "\u030a", "d": "\u0323", "b": "\u0331",
}
_LETTERS = {
    "ss": "ß", "o": "ø", "O": "Ø", "l": "ł", "L": "Ł", "ae": "æ", "AE": "Æ", "oe": "œ", "OE": "Œ",
    "aa": "å", "AA": "Å", "i": "i", "j": "j", "textless": "<", "textgreater": ">",
}
_FORMATTING = {
    "emph", "textit", "textbf", "textrm", "textsc", "texttt", "textsuperscript", "textsubscript",
    "mathrm", "mathbf", "mathit", "mathcal", "em", "it", "bf", "rm", "sc", "tt", "ensuremath",
    "text",
}
_TAGS = (
    "a abbr acronym address article aside audio b big blockquote body br button caption center cite"
    " code col colgroup dd del details dfn div dl dt em embed figcaption figure font footer form"
    " frame h[1-6] head header hr html i iframe img input ins kbd label legend li link main map"
    " mark meta nav nobr object ol optgroup option p param picture pre q s samp script section"
    " select small source span strike strong style sub summary sup svg table tbody td textarea"
    " tfoot th thead time title tr track tt u ul var video wbr"
    " inf sc italic bold underline monospace"  # of publishers
)
# fmt: on

_ACCENT = re.compile(
    r"\\(?:(['`^\"~=.])\s*\{?\\?([A-Za-z])\}?|([uvHckrdb])(?:\s*\{\\?([A-Za-z])\}|\s+([A-Za-z])))"
)
_COMMAND = re.compile(r"\\([A-Za-z]+)\s*")
_ATTRIBUTE = r"""\s+[\w:.-]+\s*=\s*(?:"[^"<>]*"|'[^'<>]*'|[^\s"'<>=]+)"""
_TAG = re.compile(rf"</?(?:{'|'.join(_TAGS.split())})(?:{_ATTRIBUTE}){{0,20}}\s*/?>", re.IGNORECASE)


def clean_latex(text: str) -> str:
    r"""Remove LaTeX and tags: ``Barab{\'a}si`` becomes ``Barabási``, ``c{DNA}`` ``cDNA``."""
    if "\\" not in text and "{" not in text and "<" not in text:
        return text
    text = text.replace("\\{", "{").replace("\\}", "}").replace("\\\\", "\\")
    text = _ACCENT.sub(lambda m: (m[2] or m[4] or m[5]) + _COMBINING[m[1] or m[3]], text)
    text = _COMMAND.sub(
        lambda m: "" if m[1] in _FORMATTING else _LETTERS.get(m[1], f" {m[1]} "), text
    )
    text = text.replace("{", "").replace("}", "")
    return _TAG.sub(" ", text)
