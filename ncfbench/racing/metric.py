"""Lines of a program that hold its metric: JSON, or what a regular expression matches."""

from __future__ import annotations

import json
import math
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

from ncfbench.errors import UsageError, either
from ncfbench.racing import direction
from ncfbench.racing.lines import (
    cleaned,
    fields_of,
    flat,
    is_number,
    matches_in,
    name_of,
    value_group,
)
from ncfbench.racing.numerals import number_at, number_of

OTHERS = (
    *("step", "seconds", "epoch", "time", "iter", "iteration", "global_step", "batch", "lr"),
    *("learning_rate", "rank", "local_rank", "elapsed", "timestamp", "seed"),
)
"""Numbers of a JSON line that are never the metric, unless it is named."""
DEFAULT = "metric"
HINT = r"--metric is the name of a number in lines of JSON, or an expression: 'recall\W+([0-9.]+)'"
"""Help where lines hold no metric."""


class Line(NamedTuple):
    """The numbers of a line."""

    value: float
    step: float | None = None


def log_metric(**numbers: float) -> None:
    """Print a line that ``ncfbench race`` reads: ``log_metric(recall=0.31, step=200)``.

    Args:
        numbers: the metric under any name; ``step`` is optional.

    Raises:
        TypeError, ValueError: a value is no number.
    """
    print(json.dumps({name: float(value) for name, value in numbers.items()}), flush=True)


@dataclass
class Metric:
    """Reads the metric of a line.

    Attributes:
        key: of JSON lines, also a nested one such as ``eval.recall``; None takes :data:`DEFAULT`,
            or the only number beside :data:`OTHERS`.
        pattern: a regular expression instead, with a group ``value``, or else the first one beside
            the group ``step``.
        minimize: True if less is better, False if more is; None asks the name.
        seen: key of the lines so far where none is named.
    """

    key: str | None = None
    pattern: re.Pattern[str] | None = None
    minimize: bool | None = None
    seen: str | None = field(default=None, compare=False)
    _twice: str = field(default="", compare=False)

    @classmethod
    def of(cls, text: str | None, *, minimize: bool | None = None) -> Metric:
        """Return the metric of ``--metric``: an expression if it has a group, else a key.

        Raises:
            UsageError: it is an invalid expression, or its only group is step.
        """
        if text is None:
            return cls(minimize=minimize)
        try:
            pattern = re.compile(text)
        except re.error as error:
            raise UsageError(
                f"--metric {text!r} is no regular expression: {error}. Use for example"
                " 'recall@50=([0-9.]+)', or the name of a number in lines of JSON."
            ) from error
        if not pattern.groups:
            return cls(text, minimize=minimize)
        value_group(pattern)
        return cls(pattern=pattern, minimize=minimize)

    @cached_property
    def _group(self) -> int:
        assert self.pattern is not None
        return value_group(self.pattern)

    @cached_property
    def _named(self) -> str:
        return "" if self.pattern is None else name_of(self.pattern, self._group)

    @property
    def name(self) -> str:
        """Name of the metric in an answer."""
        return self._named or self.key or self.seen or DEFAULT

    @property
    def known_direction(self) -> bool | None:
        """Whether less is better, by the question or by the name; None where neither says."""
        if self.minimize is not None:
            return self.minimize
        return direction.is_less_better(self.name)

    @property
    def is_less_better(self) -> bool:
        """True if less is better; more is where nothing says."""
        return bool(self.known_direction)

    @property
    def notes(self) -> list[str]:
        """How lines are read, a sentence each."""
        notes, known = [], self.known_direction
        if self.key is None and self.pattern is None:
            notes.append(f"The metric is {self.name}, as lines of JSON have it.")
        if known is None:
            notes.append(
                f"More {self.name} is taken to be better; its name does not say: --minimize if not."
            )
        elif self.minimize is None:
            less, other = ("Less", "maximize") if known else ("More", "minimize")
            notes.append(f"{less} {self.name} is better, by its name; --{other} if not.")
        return [*notes, *filter(None, [self._twice])]

    def read(self, text: str) -> Line | None:
        """Return the numbers of a line; None where it has no metric.

        Raises:
            UsageError: it and the lines before have several numbers, and none of them is chosen; or
                a number can be read in two ways.
        """
        line = cleaned(text)
        value, step = self._of_json(line) if self.pattern is None else self._matched(line)
        if value is None:
            return None
        return Line(value, step if step is not None and math.isfinite(step) else None)

    @property
    def narrowed(self) -> str:
        """The option that takes only lines with a word."""
        expression = self.pattern.pattern if self.pattern else _in_words(self.name)
        return "--metric " + shlex.quote(rf"^(?=.*\bWORD\b).*?{expression}")

    def _matched(self, line: str) -> _Numbers:
        assert self.pattern is not None
        matches = matches_in(self.pattern, line)
        first = next(matches, None)
        if first is None or first[self._group] is None:
            return _NOTHING
        spans = {name: first.span(name) for name in self.pattern.groupindex}
        spans["value"] = first.span(self._group)
        slash = line.find("/", first.end(self._group), first.end())
        spans["/"] = slash, slash  # an expression that goes on over it ends the number there
        value, step = (self._number(line, name, spans) for name in ("value", "step"))
        second = next(matches, None)
        texts = [line[slice(*match.span(self._group))] for match in (first, second) if match]
        if not self._twice and len({*texts}) > 1:
            self._twice = (
                f"--metric matches {texts[0]} and {texts[1]} in one line: the first counts. Begin"
                " the expression with a word before the other one to take that."
            )
        return value, step

    def _number(self, line: str, name: str, spans: Mapping[str, tuple[int, int]]) -> float | None:
        start, end = spans.get(name, (-1, -1))
        if start < 0:
            return None
        named = [spans[other] for other in ("value", "step", "/") if other in spans]
        low = max((to for at, to in named if at >= 0 and to <= start), default=0)
        high = min((at for at, _ in named if at >= end), default=len(line))
        return number_at(line, start, end, (low, high), is_count=name != "value")

    def _of_json(self, line: str) -> _Numbers:
        fields = fields_of(line)
        if self.key is None:
            path = self.seen = _only_number(fields, self.seen)
        else:
            path = _path_of(fields, self.key)
        if path is None:
            return _NOTHING
        values = dict(flat(fields))
        beside = path.removesuffix(_last(path))
        step = number_of(values.get(f"{beside}step", fields.get("step")), is_count=True)
        return number_of(values.get(path)), step


_Numbers = tuple[float | None, float | None]
"""A line's metric and its step."""
_NOTHING: _Numbers = None, None


def _path_of(fields: Mapping[str, Any], key: str) -> str | None:
    """Return the path of a key: its own, or that of the only nested number of this name."""
    if key in fields:
        return key
    numbers = (path for path, value in flat(fields) if is_number(value))
    return _only([path for path in numbers if f".{path}".endswith(f".{key}")])


def _only_number(fields: dict[str, Any], seen: str | None) -> str | None:
    """Return the key of a line's metric where none is named: that of the lines before, if any."""
    if seen == DEFAULT:
        return seen
    keys = [key for key in fields if key not in OTHERS and is_number(fields[key])]
    keys = [DEFAULT] if DEFAULT in fields else keys
    return _only([*dict.fromkeys([*filter(None, [seen]), *keys])])


def _only(keys: list[str]) -> str | None:
    if len(keys) > 1:
        raise UsageError(
            f"Lines of JSON hold {either(keys, 'and')}: choose one with --metric {_best(keys)}."
        )
    return keys[0] if keys else None


def _best(keys: list[str]) -> str:
    """Return the key to propose: none of training, and one whose name says what is better."""
    return min(keys, key=lambda key: ("train" in key, direction.is_less_better(key) is None))


def _last(path: str) -> str:
    """Return the name of a number, without the objects around it."""
    return path.rpartition(".")[2]


def _in_words(path: str) -> str:
    """Return an expression for the number of a name in lines of JSON or of words."""
    return rf"{re.escape(_last(path))}\W+([0-9.]+)"
