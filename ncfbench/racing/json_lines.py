"""Objects of JSON, and dictionaries as Python prints them, within a program's lines."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from ncfbench.errors import UsageError
from ncfbench.racing.numerals import number_of

PYTHON_NAMES = re.compile(r"(?<=[\s:,\[(])(-?(?:nan|inf))\b(?=\s*[,}\])])")
PYTHON_CALLS = re.compile(r"\b(?:np\.\w+|tensor|[aA]rray)\(([^(),]+)[^()]*\)")
"""A number as NumPy, PyTorch and JAX print it: ``np.float64(0.31)``."""
MOST_OBJECTS = 20
"""Beginnings of an object that are tried in a line."""
DECODER = json.JSONDecoder()


def fields_of(line: str) -> dict[Any, Any]:
    """Return the fields of the JSON objects, or Python dictionaries, that a line holds anywhere."""
    fields: dict[Any, Any] = {}
    begin = line.find("{")
    for _ in range(MOST_OBJECTS):
        if begin < 0:
            break
        try:
            found, end = DECODER.raw_decode(line, begin)
        except (ValueError, RecursionError):
            found, end = _python_dict(line, begin)
        if isinstance(found, dict):
            fields |= found
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


def numbers_of(fields: Mapping[Any, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the numbers of nested objects with their paths, also those that are texts."""
    return ((path, value) for path, value in flat(fields) if is_number(value))


def is_number(value: object) -> bool:
    """Return whether a value is a number, or a text that holds one alone."""
    try:
        return number_of(value) is not None
    except UsageError:  # it is one, and is refused when it is read
        return True


def last_of(path: str) -> str:
    """Return the name of a number, without the objects around it."""
    return path.rpartition(".")[2]
