"""Lines of a program that hold its metric: JSON, or what a regular expression matches."""

from __future__ import annotations

import json
import math
import re
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ncfbench.errors import UsageError, either
from ncfbench.racing import direction
from ncfbench.racing.expressions import cleaned, escaped, matches_in, name_of, value_group
from ncfbench.racing.json_lines import fields_of, flat, is_number, last_of, numbers_of
from ncfbench.racing.numerals import Number, number_at, number_of
from ncfbench.racing.series import SPLIT, first_of, source_in, split_in

OTHERS = (
    *("step", "seconds", "epoch", "time", "iter", "iteration", "global_step", "batch", "lr"),
    *("learning_rate", "rank", "local_rank", "elapsed", "timestamp", "seed"),
)
"""Numbers of a JSON line that are never the metric, unless it is named."""
DEFAULT = "metric"
LONGEST_SPLIT = 16
"""Characters of a text of JSON that says on which data a number was measured."""
MOST_PROPOSED = 5
DIGITS = "([-+.0-9]+)"
"""Group of a proposed expression; numbers are read whole."""


class Line(NamedTuple):
    """The numbers of a line.

    Attributes:
        split: the data of the metric, by a word of the line: train, validation, test, or empty.
        source: the process of several that printed it, such as ``rank 1``; empty for one.
    """

    value: float
    step: float | None = None
    split: str = ""
    source: str = ""


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
        group: of the pattern, which holds the metric.
        seen: key of the lines so far where none is named.
        splits: a line of each kind of data that lines name.
        sample: the last line that held the metric.
    """

    key: str | None = None
    pattern: re.Pattern[str] | None = None
    minimize: bool | None = None
    group: int = 1
    seen: str | None = field(default=None, compare=False)
    splits: dict[str, str] = field(default_factory=dict, compare=False)
    sample: str = field(default="", compare=False)
    _is_percent: bool | None = field(default=None, compare=False)
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
        if pattern.groups:
            return cls(pattern=pattern, minimize=minimize, group=value_group(pattern))
        return cls(text, minimize=minimize)

    @property
    def name(self) -> str:
        """Name of the metric in an answer."""
        if self.pattern is None:
            return self.key or self.seen or DEFAULT
        return name_of(self.pattern, self.group) or DEFAULT

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
    def split(self) -> str:
        """The kind of data whose lines count, where lines name several; else empty."""
        return first_of([*self.splits])

    @property
    def notes(self) -> list[str]:
        """How lines are read, a sentence each."""
        found, known = [], self.known_direction
        if self.key is None and self.pattern is None:
            found.append(f"The metric is {self.name}, as lines of JSON have it.")
        if known is None:
            found.append(
                f"More {self.name} is taken to be better; its name does not say: --minimize if not."
            )
        elif self.minimize is None:
            less, other = ("Less", "maximize") if known else ("More", "minimize")
            found.append(f"{less} {self.name} is better, by its name; --{other} if not.")
        if self.split:
            splits = dict(self.splits)
            line = next(line for name, line in splits.items() if name != self.split)
            word = split_in(line, self._expression(line)[1])
            found.append(
                f"Lines are of {either([*splits], 'and')} data: those of {self.split} count. To"
                f" take others: {self.narrowed(line, word)}."
            )
        return [*found, *filter(None, [self._twice])]

    def read(self, text: str) -> Line | None:
        """Return the numbers of a line; None where it has no metric.

        Raises:
            UsageError: it and the lines before have several numbers, and none of them is chosen; or
                a number can be read in two ways.
        """
        line = cleaned(text)
        value, step, word = self._matched(line) if self.pattern is not None else self._of_json(line)
        if value is None:
            return None
        self._check_unit(value, line)
        split = (word and word.lastgroup) or ""
        if split:
            self.splits.setdefault(split, line)
        source, self.sample = source_in(line), line
        return Line(
            value.value,
            step.value if step and math.isfinite(step.value) else None,
            split,
            f"{source[1].lower()} {source[2]}" if source and source[1] not in self.name else "",
        )

    def narrowed(self, line: str, word: re.Match[str] | None) -> str:
        """Return the option that takes only lines with a word of this one."""
        own, at = self._expression(line)
        if word is None:
            return f"--metric {shlex.quote(f'WORD.*{own}')}"
        text = rf"\b{escaped(word[0])}\b"
        parts = [text, own] if word.start() < at else [own, text]
        return f"--metric {shlex.quote('.*'.join(parts))}"

    def _expression(self, line: str) -> tuple[str, int]:
        """Return an expression for the metric of a line, and the metric's position there."""
        if self.pattern is not None:
            found = next(matches_in(self.pattern, line), None)
            return self.pattern.pattern, found.start(self.group) if found else 0
        name = re.escape(last_of(self.name))
        found = re.search(rf"(?<![\w.])[\"']?{name}\W{{1,4}}(?=[-+.]?[0-9])", line)
        return (escaped(found[0]) + DIGITS, found.start()) if found else (DIGITS, 0)

    def advice(self, lines: Iterable[str]) -> str:
        """Return what to do about lines that hold no metric."""
        if self.pattern is not None:
            return "Does --metric match its lines?"
        for line in lines:
            paths = [path for path, _ in numbers_of(fields_of(line)) if last_of(path) not in OTHERS]
            if paths:
                names = either(paths[:MOST_PROPOSED], "and")
                alike = [path for path in paths if self.key and self.key in path]
                return f"Lines of JSON hold {names}: give --metric {_best(alike or paths)}."
            own, _ = self._expression(line)
            if own != DIGITS:
                return f"For words give an expression: --metric {shlex.quote(own)}."
        return "For words give an expression: --metric 'recall=([0-9.]+)'."

    def _matched(self, line: str) -> _Found:
        assert self.pattern is not None
        matches = matches_in(self.pattern, line)
        matched = next(matches, None)
        if matched is None or matched[self.group] is None:
            return _NOTHING
        spans = {name: matched.span(name) for name in self.pattern.groupindex}
        spans["value"] = matched.span(self.group)
        slash = line.find("/", matched.end(self.group), matched.end())
        spans["/"] = slash, slash  # an expression that goes on over it ends the number there
        value, step = (self._number(line, name, spans) for name in ("value", "step"))
        word = split_in(line, spans["value"][0])
        for other in matches:
            self._note_other(line, value, other)
        return value, step, word

    def _number(self, line: str, name: str, spans: Mapping[str, tuple[int, int]]) -> Number | None:
        start, end = spans.get(name, (-1, -1))
        if start < 0:
            return None
        named = [spans[other] for other in ("value", "step", "/") if other in spans]
        low = max((to for at, to in named if at >= 0 and to <= start), default=0)
        high = min((at for at, _ in named if at >= end), default=len(line))
        return number_at(line, start, end, (low, high), is_count=name != "value")

    def _note_other(self, line: str, value: Number | None, other: re.Match[str]) -> None:
        """Note another number of the line that the expression matches."""
        if self._twice or value is None or other[self.group] is None:
            return
        second = number_at(line, *other.span(self.group), (0, len(line)), is_count=True)
        if second is None or second == value:
            return
        assert self.pattern is not None
        before = re.search(r"[\w./]+\W*$", line[: other.start()])
        words = escaped(before[0]) if before else ""
        self._twice = (
            f"--metric matches {value.value:g} and {second.value:g} in one line: the first counts."
            f" For the other: --metric {shlex.quote(words + self.pattern.pattern)}."
        )

    def _of_json(self, line: str) -> _Found:
        fields = fields_of(line)
        if not fields:
            return _NOTHING
        if self.key is None:
            path = self.seen = _only_number(fields, self.seen)
        else:
            path = _path_of(fields, self.key)
        if path is None:
            return _NOTHING
        values = dict(flat(fields))
        beside = path.removesuffix(last_of(path))
        step = number_of(values.get(f"{beside}step", fields.get("step")), is_count=True)
        texts = [beside, *(text.strip() for text in values.values() if isinstance(text, str))]
        words = (SPLIT.match(text) for text in texts if len(text) <= LONGEST_SPLIT)
        return number_of(values.get(path)), step, next(filter(None, words), None)

    def _check_unit(self, value: Number, line: str) -> None:
        """Refuse a metric that is in percent in some lines alone."""
        if not value.is_percent and (value.value.is_integer() or not math.isfinite(value.value)):
            return  # 0 is written without a sign too
        if self._is_percent not in (None, value.is_percent):
            raise UsageError(
                f"The metric has a percent sign in some lines and none in {line.strip()!r}, or the"
                " other way round. Print one unit."
            )
        self._is_percent = value.is_percent


_Found = tuple[Number | None, Number | None, re.Match[str] | None]
_NOTHING: _Found = None, None, None


def _path_of(fields: Mapping[str, Any], key: str) -> str | None:
    """Return the path of a key: its own, or that of the only nested number of this name."""
    if key in fields:
        return key
    paths = [path for path, _ in numbers_of(fields) if f".{path}".endswith(f".{key}")]
    if len(paths) > 1:
        raise UsageError(_choice(paths))
    return paths[0] if paths else None


def _only_number(fields: dict[str, Any], seen: str | None) -> str | None:
    """Return the key of a line's metric where none is named: that of the lines before, if any."""
    if seen == DEFAULT:
        return seen
    keys = [key for key in fields if key not in OTHERS and is_number(fields[key])]
    keys = [DEFAULT] if DEFAULT in fields else keys
    keys = [*dict.fromkeys([*filter(None, [seen]), *keys])]
    if len(keys) > 1:
        raise UsageError(_choice(keys))
    return keys[0] if keys else None


def _choice(keys: list[str]) -> str:
    return f"Lines of JSON hold {either(keys, 'and')}: choose one with --metric {_best(keys)}."


def _best(keys: list[str]) -> str:
    """Return the key to propose: one of validation, or one whose name says what is better."""

    def order(key: str) -> tuple[bool, bool]:
        word = split_in(key)
        is_apart = word is not None and word.lastgroup == "train"
        return is_apart, direction.is_less_better(key) is None

    return min(keys, key=order)
