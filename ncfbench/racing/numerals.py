"""Numbers in a program's lines, whole, whatever part of them an expression matches."""

from __future__ import annotations

import math
import re
from typing import NamedTuple

from ncfbench.errors import UsageError

NUMBER = re.compile(
    r"""
    (?: (?<![\w)\]]) [-+] )?                    # no sign where a name or a number stands before
    (?: (?P<hex> 0x [0-9a-f]+ (?:\.[0-9a-f]+)? (?:p[-+]?[0-9]+)? ) (?!\w)
      | (?P<word> (?<!\w) (?:nan|inf(?:inity)?) (?!\w) )
      | (?:
            (?<![0-9],) (?: (?P<grouped>
                    [1-9][0-9]{0,2} (?P<mark>[,'\u2019\u00a0\u2009\u202f]) [0-9]{3}
                        (?:(?P=mark)[0-9]{3})* (?P<part>\.[0-9]+)?
                  | (?<!\w) [1-9][0-9]{0,2} (?:_[0-9]{3})+ (?:\.[0-9]+)? )
              | (?P<dots> [1-9][0-9]{0,2} (?:\.[0-9]{3})+ , [0-9]+ )
              | (?P<comma> [0-9]+ , [0-9]+ )
            ) (?! [.,]?[0-9] )                  # else a list: 3,0.25,0.31
          | [0-9]+ (?:\.[0-9]*)? | (?<![\w)\].]) \.[0-9]+
        ) (?P<exponent> e[-+]?[0-9]+ )?
    ) (?P<percent> [ \u00a0]?% )?
    """,
    re.VERBOSE | re.IGNORECASE,
)
"""A number, whole. A comma is a list's where a list is possible: 0.25,0.31."""
MORE = re.compile(r"(?i:[a-z][-+]?[0-9])|[kKMGTB]\b|\s?[x×*·]\s?10\b|[._][0-9]|#")  # noqa: RUF001
"""The rest of a number that is written in no way known here: 1.2d-3, 1.5k, 1.2x10^-3, 1.2.3."""
FRACTION = re.compile(r"/\.?[0-9][0-9.]*")
"""The rest after a number that is the upper part of a fraction, or the first of two."""
SPACED = re.compile(r"(?: [0-9]{3})* [0-9]{3}\.[0-9]+")
"""The rest after one to three digits that may be the first group of a number, as in 1 234.5."""
MARKS = ",_'\u2019\u00a0\u2009\u202f"
"""Signs between groups of three digits."""
NOT_FINITE = re.compile(r"(?<!\w)(?:nan|inf(?:inity)?)(?!\w)", re.IGNORECASE)
AROUND = " \t\u00a0\"'.,;:!()[]{}%=|"
"""Characters that an expression may match beside a number."""
REACH = 80
"""Characters to either side of a match that its number may take."""
LONGEST_SHOWN = 160


class Number(NamedTuple):
    """A number of a line, and whether it is one of percent."""

    value: float
    is_percent: bool = False


def number_at(
    line: str, start: int, end: int, within: tuple[int, int], *, is_count: bool = False
) -> Number | None:
    """Return the number of which ``line[start:end]`` is a part; None if there is not just one.

    Args:
        within: bounds that the number does not pass, such as those of other groups.
        is_count: 1,234 is read as 1234, and a number that cannot be read is None.

    Raises:
        UsageError: it can be read in two ways, or in none.
    """
    text = line[start:end]
    own = text.strip(AROUND)
    start += len(text) - len(text.lstrip(AROUND))
    end = start + len(own)
    if not own:
        return None
    word = line.rfind(" ", 0, start) + 1  # no number goes on over a plain space
    low, high = max(within[0], word, start - REACH), min(within[1], end + REACH)
    found = next((each for each in NUMBER.finditer(line, low, high) if each.end() > start), None)
    if found is None or found.end() < end or found.start() >= end:
        return None
    sign = line[start : found.start()]
    if sign not in ("", "-", "+"):  # the expression matched other text too
        return None
    doubt = "" if is_count else _doubt(line[:high], found, start)
    if doubt:
        raise UsageError(
            f"The metric is unclear in the line {_shown(line, start)!r}: {doubt}. Print numbers"
            " such as 1234.5 or 1.2e-05, or lines of JSON."
        )
    if is_count and MORE.match(line, found.end(), high):
        return None
    value = _value(found)
    return Number(-value if sign == "-" else value, bool(found["percent"]))


def number_of(value: object, *, is_count: bool = False) -> Number | None:
    """Return a number, or that of a text which holds nothing else; None of anything else.

    Raises:
        UsageError: as :func:`number_at`.
    """
    if isinstance(value, str):
        return number_at(value, 0, len(value), (0, len(value)), is_count=is_count)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return Number(float(value))
    except OverflowError:
        return None


def _value(found: re.Match[str]) -> float:
    text = found[0].removesuffix(found["percent"] or "")
    if found["hex"]:
        try:
            return float.fromhex(text)
        except OverflowError:
            return math.inf
    if found["dots"]:
        text = text.replace(".", "").replace(",", ".")
    elif found["comma"] or (_is_either(found) and found["exponent"]):
        text = text.replace(",", ".")
    elif found["grouped"]:
        text = re.sub(f"[{MARKS}]", "", text)
    return float(text)


def _is_either(found: re.Match[str]) -> bool:
    """Return whether a comma may be one of thousands or one of decimals."""
    grouped, is_comma = found["grouped"] or "", found["mark"] == ","
    return is_comma and grouped.count(",") == 1 and not found["part"]


def _doubt(line: str, found: re.Match[str], start: int) -> str:
    """Return why a number cannot be read; empty where it can."""
    number = found[0].strip()
    if found["dots"] or (_is_either(found) and not found["exponent"]):
        return f"{number!r} may be read in two ways"
    if any(mark in line[found.start() : start] for mark in MARKS):
        return f"{number!r} may be one number or two, and --metric matches its end"
    if rest := FRACTION.match(line, found.end()):
        return (
            f"{number + rest[0]!r} may be a fraction or two numbers; where the first one counts,"
            " let --metric match the slash too"
        )
    if number.isdigit() and len(number) < 4 and (rest := SPACED.match(line, found.end())):
        return f"{number + rest[0]!r} may be one number or two"
    more = MORE.match(line, found.end())
    return f"{number + more[0]!r} is not a plain number" if more else ""


def _shown(line: str, start: int) -> str:
    """Return the part of a line around a position."""
    begin = max(start - LONGEST_SHOWN // 2, 0)
    return line[begin : begin + LONGEST_SHOWN].strip()
