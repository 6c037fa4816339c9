"""Whether the lines of an arm are one series: training and validation, or several processes, may
print the same number. Pure.
"""

from __future__ import annotations

import itertools
import re
import statistics
from collections import defaultdict
from collections.abc import Hashable, Iterable, Sequence

from ncfbench.racing.clock import Reading

SPLITS = {
    "validation": ("val|valid|validat(?:e|ion|ing)|dev|eval|evaluat(?:e|ion|ing)|h[eo]ld[-_ ]?out"),
    "test": "test|testing",
    "train": "train|training|trn",
}
"""Words for the data that a number was measured on, those first which count before the others."""
SPLIT = re.compile(
    rf"(?<![a-z])(?:{'|'.join(f'(?P<{name}>{words})' for name, words in SPLITS.items())})(?![a-z])",
    re.IGNORECASE,
)
SPLIT_PARTS = ("val", "test", "train", "trn", "dev", "hold", "held")
"""One of them is in each such word: most lines need no further look."""
SOURCE_PARTS = ("rank", "process", "worker", "replica", "gpu", "cuda", "device", "node")
SOURCE = re.compile(
    rf"(?<![A-Za-z])({'|'.join(SOURCE_PARTS)})(?:_index)?"
    r"(?:_id)?\W{0,4}([0-9]+)(?![\w%]|\.[0-9])",
    re.IGNORECASE,
)
"""A process of several, such as ``"rank": 1`` and ``[rank1]``."""
WINDOW = 60
"""Last lines of an arm that are looked at."""
MOST_SERIES = 20
"""Lines that may be of training between two of validation."""
JUMPS = (1.5, 3.0)
"""Lines are of several series if values differ so many times as much from line to line as within a
series: of lines that repeat a step, and of lines that only take turns.
"""


def split_in(text: str, at: int | None = None) -> re.Match[str] | None:
    """Return the word for the data of a number: the last one before its position, or the first one
    after it that is no part of another name.
    """
    found = [*SPLIT.finditer(text)] if _has_any(text, SPLIT_PARTS) else []
    before = [each for each in found if at is not None and each.start() < at]
    alone = (each for each in found if not re.match(r"[_/.:=-]\w", text[each.end() :]))
    return before[-1] if before else next(alone if at else iter(found), None)


def source_in(text: str) -> re.Match[str] | None:
    """Return the process of several that a line names, by its kind and its number."""
    return SOURCE.search(text) if _has_any(text, SOURCE_PARTS) else None


def _has_any(text: str, parts: Iterable[str]) -> bool:
    lower = text.lower()
    return any(part in lower for part in parts)


def first_of(names: Iterable[str]) -> str:
    """Return the kind of data that counts of several: validation before test before training; empty
    where there are no two.
    """
    several = {*names} - {""}
    return next(name for name in SPLITS if name in several) if len(several) > 1 else ""


def doubt(lines: Sequence[Reading]) -> str:
    """Return why lines seem to be of several series; empty where they are one."""
    lines = lines[-WINDOW:]
    values = [line.value for line in lines]
    sources = _grouped([line.source for line in lines], values)
    if len(sources) > 1 and min(map(len, sources.values())) > 1:
        own = [{*each} for each in sources.values()]
        if 2 * len(set.intersection(*own)) < min(map(len, own)):  # no copies of each other
            first, other = itertools.islice(sources, 2)
            return f"{first or 'others'} and {other or 'others'} print it"
    steps = [line.step for line in lines]
    within = [index for _, run in itertools.groupby(steps) for index, _ in enumerate(run)]
    if None not in steps and _jump(values, within, JUMPS[0]):
        return "a step has several values"
    turns = range(2, min(len(values) // 3, MOST_SERIES) + 1)
    for period in turns:
        if _jump(values, [index % period for index in range(len(values))], JUMPS[1]):
            return "values jump to and fro"
    return ""


def _jump(values: Sequence[float], series: Sequence[int], times: float) -> bool:
    """Return whether values differ more from line to line than within each series."""
    grouped = _grouped(series, values)
    if len(grouped) < 2 or min(map(len, grouped.values())) < 3:
        return False
    inside = [abs(b - a) for own in grouped.values() for a, b in itertools.pairwise(own)]
    across = [abs(b - a) for a, b in itertools.pairwise(values)]
    return statistics.fmean(across) > times * statistics.fmean(inside)


def _grouped(names: Sequence[Hashable], values: Sequence[float]) -> dict[Hashable, list[float]]:
    grouped = defaultdict[Hashable, list[float]](list)
    for name, value in zip(names, values, strict=True):
        grouped[name].append(value)
    return grouped
