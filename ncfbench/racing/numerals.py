"""Numbers in a program's lines, whole, whatever part of them an expression matches."""

from __future__ import annotations

import re

from ncfbench.errors import UsageError

NUMBER = re.compile(
    r"""
    (?: (?<![\w)\]]) [-+] )?                    # no sign where a name or a number stands before
    (?: (?<!\w) (?:nan|inf(?:inity)?) (?!\w)
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
"""The rest of what is no plain number: 1.2d-3, 1.5k, 1.2x10^-3, 1.2.3."""
FRACTION = re.compile(r"/\.?[0-9][0-9.]*")
"""The rest after a number that is the upper part of a fraction, or the first of two."""
SPACED = re.compile(r"[-+]?[0-9]{1,3}(?: [0-9]{3})* [0-9]{3}\.[0-9]+")
"""A number whose digits spaces may group, as in 1 234.5."""
MARKS = ",_'\u2019\u00a0\u2009\u202f"
"""Signs between groups of three digits."""
AROUND = " \t\u00a0\"'.,;:!()[]{}%=|"
"""Characters that an expression may match beside a number."""
REACH = 80
"""Characters to either side of a match that its number, and the text of an error, may take."""


def number_at(
    line: str, start: int, end: int, within: tuple[int, int], *, is_count: bool = False
) -> float | None:
    """Return the number of which ``line[start:end]`` is a part; None if there is not just one.

    Args:
        within: bounds that the number does not pass, such as those of other groups.
        is_count: 1,234 is read as 1234, and a number that cannot be read is None.

    Raises:
        UsageError: it can be read in two ways, or in none.
    """
    text = line[start:end]
    start += len(text) - len(text.lstrip(AROUND))
    end = start + len(text.strip(AROUND))
    if start == end:
        return None
    word = line.rfind(" ", 0, start) + 1  # no number goes on over a plain space
    low, high = max(within[0], word, start - REACH), min(within[1], end + REACH)
    number = next((each for each in NUMBER.finditer(line, low, high) if each.end() > start), None)
    if number is None or number.end() < end or number.start() >= end:
        return None
    sign = line[start : number.start()]
    if sign not in ("", "-", "+"):  # the expression matched other text too
        return None
    if is_count:
        if number["dots"] or MORE.match(line, number.end(), high):
            return None
    elif unclear := _unclear(line[:high], number, start):
        shown = line[max(start - REACH, 0) :][: 2 * REACH].strip()
        raise UsageError(
            f"The metric is unclear in the line {shown!r}: {unclear!r} may be read in two ways, or"
            " is no plain number. Print numbers such as 1234.5 or 1.2e-05, or lines of JSON. Where"
            " the first of two numbers counts, let --metric match the slash between them too."
        )
    value = _value(number)
    return -value if sign == "-" else value


def number_of(value: object, *, is_count: bool = False) -> float | None:
    """Return a number, or that of a text which holds nothing else; None of anything else.

    Raises:
        UsageError: as :func:`number_at`.
    """
    if isinstance(value, str):
        return number_at(value, 0, len(value), (0, len(value)), is_count=is_count)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value)
    except OverflowError:
        return None


def _value(number: re.Match[str]) -> float:
    text = number[0].removesuffix(number["percent"] or "")
    if number["comma"] or (_is_either(number) and number["exponent"]):
        return float(text.replace(",", "."))
    return float(re.sub(f"[{MARKS}]", "", text))


def _is_either(number: re.Match[str]) -> bool:
    """Return whether a comma may be one of thousands or one of decimals."""
    return number["mark"] == "," and number["grouped"].count(",") == 1 and not number["part"]


def _unclear(line: str, number: re.Match[str], start: int) -> str:
    """Return the text of a number that may be read in two ways, or in none; else nothing."""
    end = number.end()
    if rest := MORE.match(line, end) or FRACTION.match(line, end):
        return line[number.start() : rest.end()]
    is_either = number["dots"] or (_is_either(number) and not number["exponent"])
    if is_either or any(mark in line[number.start() : start] for mark in MARKS):
        return number[0].strip()
    spaced = SPACED.match(line, number.start())
    return spaced[0] if spaced else ""
