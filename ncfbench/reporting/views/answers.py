"""Answers as tables of 100 columns, and as JSON: each row of both has the values of
:func:`values_of`.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Any, TypeAlias

from ncfbench.reporting.answers import Answer, caveats, worth
from ncfbench.reporting.arms import Arm
from ncfbench.reporting.floors import BlendResult, FloorResult, Standing, standing
from ncfbench.reporting.formats import three_digits, with_error
from ncfbench.reporting.frames import grouped
from ncfbench.reporting.quality import (
    COLD_USERS,
    EPOCH_NOTE,
    ERROR,
    KNOWN_ITEMS,
    NEW_ITEMS,
    RECALL,
    TEST_RECALL,
)
from ncfbench.reporting.table import Col, Table
from ncfbench.reporting.views.sentences import deployment, headline, tied_sentence
from ncfbench.runs.labels import flags
from ncfbench.runs.quality import CERTAIN
from ncfbench.statistics.ranking import SHARE

AnswerRow: TypeAlias = Arm | FloorResult | BlendResult
PARTS = {COLD_USERS: "cold users", NEW_ITEMS: "new items", KNOWN_ITEMS: "known items"}
MEASURES = {
    RECALL: "recall@50",
    "recall_at_10": "recall@10",
    "ndcg_at_50": "NDCG@50",
    "mrr": "MRR",
    **PARTS,
}
"""Headings of the measures of an arm."""


def columns_of(answer: Answer) -> list[Col]:
    """Return the columns of the table of an answer, by names of :func:`values_of`."""
    level = "s" if answer.target is None else f"s to {abs(answer.target):.3g}"
    return [
        Col(level, _reached),
        Col("s of training", "clock_seconds", three_digits),
        Col(answer.split, "decided_by", ".3f"),
        Col("test recall@50", (TEST_RECALL, f"{TEST_RECALL}_error"), with_error),
        Col("epoch", "reported_epoch", ".3g"),
    ]


def values_of(answer: Answer, row: AnswerRow) -> dict[str, Any]:
    """Return what tables, CSV and JSON say of an arm, a floor or a blend; times in seconds."""
    judged, level = _judged(answer, row), -(answer.target or 0.0)
    is_there = not isinstance(row, FloorResult) or (judged is not None and judged >= level)
    found = {"clock_seconds": None, "decided_by": judged}
    found["seconds_to_level"] = row.total_seconds if is_there else None
    return measured_values(row) | found | (row.facts if isinstance(row, Arm) else {})


def measured_values(row: AnswerRow) -> dict[str, Any]:
    """Return what is known of a row without an answer: its status, measures and own facts."""
    measured, ends = row.reported.values if row.reported else {}, ("", "_error", "_chance")
    found: dict[str, Any] = {"name": row.name, "status": row.status}
    found |= {
        f"test_{name}{end}": measured.get(f"{name}{end}") for name in MEASURES for end in ends
    }
    return found | {"reported_epoch": row.epoch} | row.facts


def named_values(answer: Answer, rows: Iterable[tuple[str, AnswerRow]]) -> list[dict[str, Any]]:
    """Return :func:`values_of` rows of an answer, each with another name."""
    return [values_of(answer, row) | {"name": name} for name, row in rows]


def worth_table(answer: Answer, lead: str = "", notes: Sequence[str] = ()) -> Table:
    """Return the recommended arm, the best ones that differ from it in each choice, the floors and
    blends. An arm that is the best one for several choices has one row. All arms where none is
    recommended.

    Args:
        notes: more sentences below it.
    """
    rows: list[tuple[str, AnswerRow]] = [(arm.name, arm) for arm in answer.arms]
    if answer.best is not None:
        instead = grouped(worth(answer), lambda row: row.arm.name)
        rows = [("the recommended", answer.best)]
        for own in instead.values():
            choices = (f"{row.choice} {row.value}".replace("_", " ") for row in own)
            rows.append((", ".join(choices), own[0].arm))
    rows += [(f"no training: {floor.row['floor']}", floor) for floor in answer.floors]
    rows += [(f"both: {blend.floor.row['floor']} and it", blend) for blend in answer.blends]
    columns, below = [Col("with", "name", wraps=True), *columns_of(answer)], list[str]()
    if answer.best is not None:
        below.append(
            f"{columns[1].heading}: until a {answer.metric} of {answer.split} links that is"
            f" {SHARE:g} of the best{_features(answer)}. Each row is the best arm that has those"
            " settings, whatever else it has."
        )
    if any(row.status == "left" for _, row in rows):
        below.append("left: it left the race before.")
    by_chance = {f"{answer.split} {answer.metric}": answer.split_chance}
    by_chance |= {"test recall@50": answer.chance}
    known = [f"{name} {chance:.3f}" for name, chance in by_chance.items() if chance is not None]
    below += [f"By chance: {', '.join(known)}."] if known else []
    if any(arm.reported for arm in answer.main):
        below.append(f"{EPOCH_NOTE}. {ERROR}.")
    if answer.floors:
        below.append("no training: s is for content, fit and the choice of a penalty.")
    if (answer.chance or 0.0) >= 1:
        below.append(f"{CERTAIN[0].upper()}{CERTAIN[1:]}")
    shown, name = named_values(answer, rows), answer.named("answer")
    return Table.of(answer.title, columns, shown, [*below, *notes], name=name, lead=lead)


def _features(answer: Answer) -> str:
    """Return that the seconds to the level count item features, where some arm reads them."""
    seconds = max(arm.feature_seconds for arm in answer.arms)
    if not seconds:
        return ""
    return (
        f"; it counts the item features of arms that read them ({three_digits(seconds)} s), s of"
        " training does not"
    )


def answer_tables(answers: Sequence[Answer], locations: Mapping[str, str]) -> list[Table]:
    """Return the table of each answer about finished runs, above it what to deploy, and below it
    its paragraph and the caveats that do not stand above.

    Args:
        locations: ``--data-dir`` and ``--runs-dir`` to repeat in commands.
    """
    tables = []
    for answer in answers:
        reasons = caveats(answer)
        found = deployment(answer, reasons, locations)
        whole = f"{headline(answer, has_block=False)} {tied_sentence(answer.ties)}"
        lines = found["lines"] if found else [whole.strip()]
        sentences = [caveat.sentence for caveat in reasons]
        notes = [headline(answer)] if found else []
        notes += [each for each in sentences if not (found and each in lines[-1])]
        if len(answer.arms) == 1:
            words = ["ncfbench", "advise", answer.config.dataset, *chain(*locations.items())]
            notes += ["To let arms race for the best ranking:", shlex.join(words)]
        tables.append(worth_table(answer, "\n".join(lines), notes))
    return tables


def detail_tables(answers: Sequence[Answer]) -> list[Table]:
    """Return all arms of each answer whose own table leaves some out, and all measures of its main
    arms at the epoch that they report, of floors and blends.
    """
    tables = []
    for answer in answers:
        name, cols = answer.config.dataset, [Col("arm", "name", wraps=True)]
        if len(answer.arms) > len(answer.main):
            arms = named_values(answer, [(arm.name, arm) for arm in answer.arms])
            title, columns = f"All arms: {name}, {answer.metric}", cols + columns_of(answer)
            notes = [f"{EPOCH_NOTE}. {ERROR}."]
            tables.append(Table.of(title, columns, arms, notes, name=answer.named("arms")))
        able: list[AnswerRow] = [*answer.main, *answer.floors, *answer.blends]
        rows = named_values(answer, [(row.name, row) for row in able if row.reported])
        measures = [
            each for each in MEASURES if any(row[f"test_{each}"] is not None for row in rows)
        ]
        if not any(arm.reported for arm in answer.main):
            continue
        for each in measures:
            cols.append(Col(MEASURES[each], (f"test_{each}", f"test_{each}_error"), with_error))
        cols.insert(1, Col("epoch", "reported_epoch", ".3g"))
        by_chance = {MEASURES[each]: rows[0][f"test_{each}_chance"] for each in measures}
        chances = [f"{name} {chance:.3f}" for name, chance in by_chance.items() if chance]
        notes = [f"By chance: {', '.join(chances)}."] if chances else []
        notes.append(f"{ERROR}; only that of recall@50 has a part of the items.")
        if parts := [heading for each, heading in PARTS.items() if each in measures]:
            notes.append(f"{', '.join(parts)}: recall@50 of these alone.".capitalize())
        kind = "test links" if KNOWN_ITEMS in measures else "cold test items"
        title = f"Quality on {kind}: {name}"
        tables.append(Table.of(title, cols, rows, notes, name=answer.named("quality")))
    return tables


def as_rows(answers: Sequence[Answer], locations: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return answers about finished runs as plain objects, for JSON; times in seconds.

    Args:
        locations: as for :func:`answer_tables`.
    """
    rows = []
    for answer in answers:
        reasons = caveats(answer)
        deploy = deployment(answer, reasons, locations)
        said = {"deploy": deploy, "headline": headline(answer, has_block=bool(deploy))}
        doubts = {"caveats": [caveat._asdict() for caveat in reasons]}
        arms = [{"flags": flags(arm.config), **values_of(answer, arm)} for arm in answer.arms]
        rows.append({**_of_data(answer), **said, **doubts, **facts(answer), "arms": arms})
    return rows


def answer_frame(answers: Iterable[Answer]) -> list[dict[str, Any]]:
    """Return a row for each arm, floor and blend of some answers, for CSV; times in seconds."""
    frame = []
    for answer in answers:
        named = {name: getattr(answer, name) for name in ("metric", "split", "target")}
        rows: list[AnswerRow] = [*answer.arms, *answer.floors, *answer.blends]
        named = _of_data(answer) | named
        frame += [named | values_of(answer, row) | named for row in rows]
    return frame


def _of_data(answer: Answer) -> dict[str, Any]:
    return {"dataset": answer.config.dataset, "data_fingerprint": answer.data_fingerprint}


def facts(answer: Answer) -> dict[str, Any]:
    """Return what JSON says of an answer about finished runs, and of that of a race."""
    best = answer.best
    return {
        "metric": answer.metric,
        "split": answer.split,
        "level": answer.target,
        "recommended": best and best.name,
        "flags": best and flags(best.config),
        "tied": [arm.name for arm in answer.ties],
        "feature_seconds": answer.feature_seconds,
        "floors": floor_rows(answer),
        "blends": [values_of(answer, blend) for blend in answer.blends],
        "worth": [
            {
                "choice": row.choice,
                "value": row.value,
                "arm": row.arm.name,
                "times_later": row.arm.expected if math.isfinite(row.arm.expected) else None,
                "seconds": row.arm.total_seconds,
                answer.split: -row.arm.level,
                "status": row.arm.status,
            }
            for row in worth(answer)
        ],
    }


def floor_rows(answer: Answer) -> list[dict[str, Any]]:
    """Return the floors as plain objects, each with how the arm beside them stands to it."""
    arm, rows = answer.beside_floors, []
    for floor in answer.floors:
        beside = standing(arm, floor) if arm else Standing("unknown")
        stands = {
            "best_arm": beside.word if arm else None,
            "passed_after_seconds": beside.seconds,
        }
        rows.append(values_of(answer, floor) | stands | beside.difference)
    return rows


def _reached(row: Mapping[str, Any]) -> str:
    """Return the seconds to the level, or why there are none."""
    seconds, words = row.get("seconds", row["seconds_to_level"]), {"left": "left", "both": "-"}
    words["undecided"] = "not yet"
    return words.get(row["status"], "never") if seconds is None else three_digits(seconds)


def _judged(answer: Answer, arm: AnswerRow) -> float | None:
    """Return the metric of the links that decide; None of a floor where that is no recall@50."""
    if isinstance(arm, Arm):
        return -arm.level if math.isfinite(arm.level) else None
    if answer.metric != Answer.metric:
        return None
    if isinstance(arm, BlendResult):
        return arm.quality(answer.split).recall
    return arm.value(answer.split)
