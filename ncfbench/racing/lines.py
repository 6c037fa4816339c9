"""Lines as a terminal shows them, and the objects and matches in them."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from ncfbench.errors import UsageError
from ncfbench.racing.numerals import number_of

UNSEEN = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[ -/]+[0-~]|[@-Z\\-_])"
    r"|[\x00-\x07\x0e\x0f\x7f\u00ad\u200b-\u200f\u202a-\u202e\u2060\ufeff]"
)
"""Colours, movements of a terminal's cursor, and characters without a width."""
MINUS_OF_EXPONENT = re.compile(r"(?<=[0-9.][eE])[\u2010-\u2013](?=[0-9])")
NOT_FINITE = re.compile(r"(?<!\w)(?:nan|inf(?:inity)?)(?!\w)", re.IGNORECASE)
SIGN = re.compile(r"(?<![\w)\]])[-+](?=\.?[0-9])")
"""A sign of a number, not a hyphen between two words."""
PYTHON_NAMES = re.compile(r"(?<=[\s:,\[(])(-?(?:nan|inf))\b(?=\s*[,}\])])")
PYTHON_CALLS = re.compile(r"\b(?:np\.\w+|tensor|[aA]rray)\(([^(),]+)[^()]*\)")
"""A number as NumPy, PyTorch and JAX print it: ``np.float64(0.31)``."""
MOST_OBJECTS = 20
"""Beginnings of an object that are tried in a line."""
DECODER = json.JSONDecoder()


def cleaned(text: str) -> str:
    """Return a line as a terminal shows it: without colours, and what was deleted."""
    text = MINUS_OF_EXPONENT.sub("-", text.replace("\u2212", "-"))
    if text.isprintable():
        return text
    shown: list[str] = []
    for char in UNSEEN.sub("", text):
        if char != "\b":
            shown.append(char)
        elif shown:
            shown.pop()
    return "".join(shown)


def fields_of(line: str) -> dict[Any, Any]:
    """Return the fields of the JSON objects, or Python dictionaries, that a line holds anywhere."""
    fields: dict[Any, Any] = {}
    begin = line.find("{")
    for _ in range(MOST_OBJECTS):
        if begin < 0:
            break
        try:
            value, end = DECODER.raw_decode(line, begin)
        except (ValueError, RecursionError):
            value, end = _python_dict(line, begin)
        if isinstance(value, dict):
            fields |= value
        begin = line.find("{", end)
    return fields


def _python_dict(line: str, begin: int) -> tuple[object, int]:
    """Return the dictionary with which a line ends, and its end; None where there is none."""
    end = line.rfind("}") + 1
    text = PYTHON_CALLS.sub(r"\1", line[begin:end])
    try:
        return ast.literal_eval(PYTHON_NAMES.sub(r"'\1'", text)), end
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        return None, begin + 1


def flat(fields: Mapping[Any, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the values of nested objects with their paths: ``eval.recall``."""
    for name, value in fields.items():
        if isinstance(value, dict):
            yield from flat(value, f"{before}{name}.")
        else:
            yield f"{before}{name}", value


def is_number(value: object) -> bool:
    """Return whether a value is a number, or a text that holds one alone."""
    try:
        return number_of(value) is not None
    except UsageError:  # it is one, and is refused when it is read
        return True


def matches_in(pattern: re.Pattern[str], line: str) -> Iterator[re.Match[str]]:
    """Return where an expression matches a line; an expression of digits matches numbers with a
    sign, and those that are not finite, too: positions are those of the line.
    """
    plain = NOT_FINITE.sub(lambda word: "0.0".ljust(len(word[0]), "0"), line)
    if pattern.search(plain) is None:
        plain = SIGN.sub("0", plain)
    return pattern.finditer(plain)


def value_group(pattern: re.Pattern[str]) -> int:
    """Return the number of the group that holds the metric.

    Raises:
        UsageError: the only group is that of the step.
    """
    named = pattern.groupindex
    groups = [number for number in range(1, pattern.groups + 1) if number != named.get("step")]
    if not groups:
        raise UsageError(
            f"--metric {pattern.pattern!r} has a group for step alone. Write parentheses"
            " around the metric too, as in 'recall@50=([0-9.]+)'."
        )
    return named.get("value", groups[0])


def name_of(pattern: re.Pattern[str], group: int) -> str:
    """Return the words before a group of an expression, or else those behind it."""
    parts = re.finditer(r"\\.|\[(?:\\.|[^\]\\])*\]|\((?:\?P<\w+>|(?!\?))", pattern.pattern)
    opens = [part for part in parts if part[0].startswith("(")][group - 1]
    for text in (pattern.pattern[: opens.start()], pattern.pattern[opens.end() :]):
        plain = re.sub(r"\\[A-Za-z]|\[(?:\\.|[^\]\\])*\]|\(\?P<\w+>|\(\?[a-zA-Z]+\)", "|", text)
        if words := re.findall(r"(?:[A-Za-z_@](?:[\w@./ -]*[\w@])?)", plain.replace("\\", "")):
            return re.sub(r" (?:is|was)$", "", words[-1]).strip("_")
    return ""
