"""Lines of a program that hold its metric: JSON, or what a regular expression matches."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ncfbench.errors import UsageError, either

OTHERS = ("step", "seconds", "epoch", "time")
"""Numbers of a JSON line that are never the metric, unless it is named."""
DEFAULT = "metric"


class Line(NamedTuple):
    """The numbers of a line: the metric, the step, and the program's own training clock."""

    value: float
    step: float | None = None
    seconds: float | None = None


def log_metric(**numbers: float) -> None:
    """Print a line that ``ncfbench race`` reads: ``log_metric(recall=0.31, step=200)``.

    Args:
        numbers: the metric under any name; ``step`` and ``seconds`` (of training, by the program's
            own clock) are optional.

    Raises:
        TypeError, ValueError: a value is no number.
    """
    print(json.dumps({name: float(value) for name, value in numbers.items()}), flush=True)


@dataclass
class Metric:
    """Reads the metric of a line.

    Attributes:
        key: of JSON lines; None takes :data:`DEFAULT`, or the only number beside :data:`OTHERS`.
        pattern: a regular expression instead, with a group ``value``, or else the first one beside
            the groups ``step`` and ``seconds``.
        is_less_better: True for losses.
        group: of the pattern, which holds the metric.
        seen: key of the lines so far where none is named.
    """

    key: str | None = None
    pattern: re.Pattern[str] | None = None
    is_less_better: bool = False
    group: int = 1
    seen: str | None = field(default=None, compare=False)

    @classmethod
    def of(cls, text: str | None, *, is_less_better: bool = False) -> Metric:
        """Return the metric of ``--metric``: an expression if it has a group, else a key.

        Raises:
            UsageError: it is an invalid expression, or its only groups are step and seconds.
        """
        if text is None:
            return cls(is_less_better=is_less_better)
        try:
            pattern = re.compile(text)
        except re.error as error:
            raise UsageError(
                f"--metric {text!r} is no regular expression: {error}. Use for example"
                " 'recall@50=([0-9.]+)', or the name of a number in lines of JSON."
            ) from error
        if pattern.groups:
            return cls(pattern=pattern, is_less_better=is_less_better, group=_value_group(pattern))
        return cls(text, is_less_better=is_less_better)

    @property
    def name(self) -> str:
        """Name of the metric in an answer."""
        if self.pattern is None:
            return self.key or self.seen or DEFAULT
        parts = re.split(r"\(\?P<(?:step|seconds)>[^)]*\)", self.pattern.pattern)
        around = next((part for part in parts if "(" in part), "")
        words = re.match(r"[\w@ .-]*[\w@]", around)
        return words[0].strip() if words else DEFAULT

    def read(self, line: str) -> Line | None:
        """Return the numbers of a line; None where it has no metric.

        Raises:
            UsageError: it and the lines before have several numbers, and none of them is chosen.
        """
        if self.pattern is not None:
            matched = self.pattern.search(line)
            named = matched.groupdict() if matched else {}
            fields: dict[Any, Any] = {"value": matched and matched[self.group], **named}
            key: str | None = "value"
        else:
            fields = _json_of(line)
            key = self.key or _only_number(fields, self.seen)
            self.seen = key
        value, *more = (_number(fields.get(name)) for name in (key, "step", "seconds"))
        return None if value is None else Line(value, *more)


def _value_group(pattern: re.Pattern[str]) -> int:
    """Return the number of the group that holds the metric."""
    named = pattern.groupindex
    others = named.get("step"), named.get("seconds")
    groups = [number for number in range(1, pattern.groups + 1) if number not in others]
    if not groups:
        raise UsageError(
            f"--metric {pattern.pattern!r} has groups for step and seconds alone. Write parentheses"
            " around the metric too, as in 'recall@50=([0-9.]+)'."
        )
    return named.get("value", groups[0])


def _json_of(line: str) -> dict[Any, Any]:
    """Return the object of a line of JSON; empty where it holds none."""
    line = line.strip()
    # A progress bar that was not ended stands before what is printed next.
    begin = 0 if line.startswith("{") else line.rfind("{")
    try:
        return dict(json.loads(line[begin:])) if begin >= 0 and line.endswith("}") else {}
    except ValueError:
        return {}


def _only_number(fields: dict[str, Any], seen: str | None) -> str | None:
    """Return the key of a line's metric where none is named: that of the lines before, if any."""
    if seen == DEFAULT:
        return seen
    keys = [key for key in fields if key not in OTHERS and _number(fields[key]) is not None]
    keys = [DEFAULT] if DEFAULT in fields else keys
    keys = [*dict.fromkeys([*filter(None, [seen]), *keys])]
    if len(keys) > 1:
        raise UsageError(
            f"Lines of JSON hold {either(keys, 'and')}: choose one with --metric {keys[0]}."
        )
    return keys[0] if keys else None


def _number(value: object) -> float | None:
    """Return a number or the text of one; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        return float(value)
    except ValueError:
        return None
