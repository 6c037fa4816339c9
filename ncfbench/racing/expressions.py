"""Lines as a terminal shows them, and regular expressions that find a metric there."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator

from ncfbench.errors import UsageError
from ncfbench.racing.numerals import NOT_FINITE

UNSEEN = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[ -/]+[0-~]|[@-Z\\-_])"
    r"|[\x00-\x07\x0e\x0f\x7f\u00ad\u200b-\u200f\u202a-\u202e\u2060\ufeff]"
)
"""Colours, movements of a terminal's cursor, and characters without a width."""
MINUS_OF_EXPONENT = re.compile(r"(?<=[0-9.][eE])[\u2010-\u2013](?=[0-9])")
SIGN = re.compile(r"(?<![\w)\]])[-+](?=\.?[0-9])")
"""A sign of a number, not a hyphen between two words."""


def cleaned(text: str) -> str:
    """Return a line as a terminal shows it: without colours, and what was deleted."""
    text = MINUS_OF_EXPONENT.sub("-", text.replace("\u2212", "-"))
    if text.isprintable():
        return text
    text = UNSEEN.sub("", text)
    if "\b" not in text:
        return text
    shown: list[str] = []
    for char in text:
        if char != "\b":
            shown.append(char)
        elif shown:
            shown.pop()
    return "".join(shown)


def escaped(text: str) -> str:
    """Return an expression for a text, with plain spaces."""
    return re.escape(text).replace(r"\ ", " ")


def finite(line: str) -> str:
    """Return a line with zeros for nan and inf, which keep their length."""
    lower = line.lower()
    if "nan" not in lower and "inf" not in lower:
        return line
    return NOT_FINITE.sub(lambda found: "0.0".ljust(len(found[0]), "0"), line)


def matches_in(pattern: re.Pattern[str], line: str) -> Iterator[re.Match[str]]:
    """Return where an expression matches a line; an expression of digits matches numbers with a
    sign, and those that are not finite, too: positions are those of the line.
    """
    plain = finite(line)
    if pattern.search(plain) is None:
        plain = SIGN.sub("0", plain)
    return pattern.finditer(plain)


def value_group(pattern: re.Pattern[str]) -> int:
    """Return the number of the group that holds the metric."""
    named = pattern.groupindex
    groups = [number for number in range(1, pattern.groups + 1) if number != named.get("step")]
    if not groups:
        raise UsageError(
            f"--metric {pattern.pattern!r} has a group for step alone. Write parentheses"
            " around the metric too, as in 'recall@50=([0-9.]+)'."
        )
    return named.get("value", groups[0])


@functools.cache
def name_of(pattern: re.Pattern[str], group: int) -> str:
    """Return the words before a group of an expression, or else those behind it."""
    parts = re.finditer(r"\\.|\[(?:\\.|[^\]\\])*\]|\((?:\?P<\w+>|(?!\?))", pattern.pattern)
    opens = [part for part in parts if part[0].startswith("(")]
    at = opens[group - 1].start()
    for text in (pattern.pattern[:at], pattern.pattern[opens[group - 1].end() :]):
        plain = re.sub(r"\\[A-Za-z]|\[(?:\\.|[^\]\\])*\]|\(\?P<\w+>|\(\?[a-zA-Z]+\)", "|", text)
        if words := re.findall(r"(?:[A-Za-z_@](?:[\w@./ -]*[\w@])?)", plain.replace("\\", "")):
            return re.sub(r" (?:is|was)$", "", words[-1]).strip("_")
    return ""
