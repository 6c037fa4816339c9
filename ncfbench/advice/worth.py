"""What each choice of a recommendation for ranking is worth, and what is reached at each time.

A choice is worth what the best candidate loses that differs in it. Such candidates may differ in
other settings too: each value of a choice stands at its best.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from ncfbench.advice.answer import RaceAnswer, RacedArm
from ncfbench.catalog import BUILT_IN
from ncfbench.reporting.floors import FloorResult
from ncfbench.reporting.formats import three_digits
from ncfbench.reporting.quality import ERROR, RECALL
from ncfbench.reporting.table import Col, Table
from ncfbench.reporting.views.answers import FLOORS_NOTE

MOMENTS = (5, 15, 60, 300, 900)
"""Seconds for which the best recall until then is named."""
LEFT_OUT = ("dataset", "seed", "epochs", "probe_every", "word_dimension")
"""Settings that are no choices, or follow another one."""


class Row(NamedTuple):
    """A value of a choice that was not recommended, with the best candidate that has it."""

    choice: str
    value: str
    arm: RacedArm


def worth(answer: RaceAnswer) -> list[Row]:
    """Return the best candidate with every other value of sampler, loss, encoder and so on, and the
    best one with another value of each number; the choices that matter most first.
    """
    best = answer.best
    if best is None:
        return []
    others = [arm for arm in answer.arms if arm.has_run and arm is not best]
    rows: list[Row] = []
    for name, own in best.config.to_dict().items():
        if name in LEFT_OUT or not _is_read(best, name):
            continue
        of_value: dict[Any, RacedArm] = {}
        for arm in sorted(others, key=_order):
            value = arm.config.to_dict().get(name, own)
            if value != own and _is_read(arm, name):
                of_value.setdefault(value, arm)
        shown = of_value.items() if name in BUILT_IN else [*of_value.items()][:1]
        rows += [Row(name, str(value), arm) for value, arm in shown]
    first = {row.choice: _order(row.arm) for row in reversed(rows)}
    return sorted(rows, key=lambda row: (row.choice not in BUILT_IN, *_negated(first[row.choice])))


def worth_table(answer: RaceAnswer) -> Table:
    """Return the recommended candidate, the best ones that differ from it in each choice, and the
    floors, as a table of at most 80 columns.
    """
    level, metric = abs(answer.target or 0.0), answer.question.metric
    shown: list[Row | FloorResult] = []
    if answer.best is not None:
        shown = [Row("recommended", "", answer.best), *worth(answer), *answer.floors]
    cols = [
        Col("choice", _choice),
        Col("instead", _instead, wraps=True),
        Col(f"s to {level:.3g}", _seconds),
        Col("later", _later),
        Col("trained s", _trained),
        Col("validation", lambda row: -row.arm.level if isinstance(row, Row) else None, ".3f"),
        Col("test recall@50", _test),
    ]
    notes = [
        f"s to {level:.3g}: until a {metric} of validation links that is 0.95 of the best.",
        "later: times as late as the recommended one. Each value at its best: other settings may"
        " differ too.",
    ]
    if any(isinstance(row, Row) and row.arm.at_end for row in shown):
        notes.append(f"by chance test recall is {answer.chance:.3f}; {ERROR}")
    if steps := frontier(answer):
        texts = [f"{recall:.3f} after {seconds} s" for seconds, recall in steps]
        notes.append(f"Best test recall@50 of any candidate: {', '.join(texts)}.")
    notes += [FLOORS_NOTE] if answer.floors else []
    return Table.of(f"What each choice is worth: {answer.subject}", cols, shown, notes)


def frontier(answer: RaceAnswer) -> list[tuple[int, float]]:
    """Return the best test recall@50 of any candidate until each of some moments, in seconds of
    training and of derived features; moments at which nothing more was reached are left out.
    """
    points = [point for arm in answer.arms if arm.has_run for point in arm.means(f"test_{RECALL}")]
    found: list[tuple[int, float]] = []
    for moment in MOMENTS:
        reached = [recall for seconds, recall in points if 0 < seconds <= moment]
        if reached and (not found or max(reached) > found[-1][1]):
            found.append((moment, max(reached)))
    return found


def as_rows(answer: RaceAnswer) -> list[dict[str, Any]]:
    """Return :func:`worth` as rows of JSON."""
    return [
        {
            "choice": row.choice,
            "value": row.value,
            "entrant": row.arm.name,
            "times_later": row.arm.expected if math.isfinite(row.arm.expected) else None,
            "seconds": row.arm.total_seconds,
            "validation": -row.arm.level,
            "status": row.arm.status,
        }
        for row in worth(answer)
    ]


def _order(arm: RacedArm) -> tuple[float, float]:
    return arm.expected, arm.level


def _negated(order: tuple[float, float]) -> Sequence[float]:
    return [-value for value in order]


def _is_read(arm: RacedArm, name: str) -> bool:
    config = arm.config
    setting = config.settings.get(name)
    return setting is not None and config.reads(setting) and setting.is_active(config.to_dict())


def _choice(row: Row | FloorResult) -> str:
    return "no training" if isinstance(row, FloorResult) else row.choice


def _instead(row: Row | FloorResult) -> str:
    return str(row.row["floor"]) if isinstance(row, FloorResult) else row.value


def _seconds(row: Row | FloorResult) -> str | None:
    seconds = row.seconds if isinstance(row, FloorResult) else row.arm.total_seconds
    return None if seconds is None else three_digits(seconds)


def _trained(row: Row | FloorResult) -> str | None:
    return three_digits(row.arm.curve.clock) if isinstance(row, Row) else None


def _later(row: Row | FloorResult) -> str | None:
    if isinstance(row, FloorResult):
        return None
    if math.isfinite(row.arm.expected):
        return f"{row.arm.expected:.2g}"
    return "left" if row.arm.status == "left" else "never"


def _test(row: Row | FloorResult) -> str | None:
    quality = row.at_end if isinstance(row, FloorResult) else row.arm.at_end
    return None if quality is None else quality.text(RECALL)
