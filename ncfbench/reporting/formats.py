"""Formats of values in tables, beside Python's own format specifications such as ``.2f``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

Format: TypeAlias = Callable[[Any], str]
"""Returns the text of a value that is not None."""


def three_digits(value: float) -> str:
    """Return a number with three significant digits, and never with an exponent from 100 on."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def counted(number: int, noun: str) -> str:
    """Return a number of things, such as ``1 seed`` and ``3 seeds``."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def with_error(pair: tuple[float, float | None]) -> str:
    """Return a value with its standard error, where that is known: ``0.414 ± 0.006``."""
    value, error = pair
    return f"{value:.3f}" if error is None else f"{value:.3f} ± {error:.3f}"


def interval(spec: str) -> Format:
    """Return a format of two ends: ``1.80..2.02``."""
    return lambda ends: f"{ends[0]:{spec}}..{ends[1]:{spec}}"
