"""Floors as a table: what each reaches without training by gradients."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ncfbench.reporting.floors import FloorResult
from ncfbench.reporting.formats import three_digits
from ncfbench.reporting.quality import RECALL
from ncfbench.reporting.table import Col, Table
from ncfbench.runs.quality import CERTAIN, COMPARED

Row = Mapping[str, Any]


def floors_table(dataset: str, rows: Sequence[Row], more: Iterable[str] = ()) -> Table:
    """Return the table of rows of :data:`ncfbench.storage.schemas.FLOOR`.

    Args:
        more: notes below it.
    """
    cols = [
        Col("floor", "floor"),
        Col(f"recall@{COMPARED}", lambda row: FloorResult(row).reported.text(RECALL)),
        Col("NDCG", f"test_ndcg_at_{COMPARED}", ".3f"),
        Col("MRR", "test_mrr", ".3f"),
        Col("hit rate", f"test_hit_rate_at_{COMPARED}", ".3f"),
        Col("penalty", "penalty", "g"),
        Col("valid.", f"validation_recall_at_{COMPARED}", ".3f"),
        Col("s", lambda row: three_digits(FloorResult(row).seconds)),
        Col("s of ranking", "ranking_seconds", three_digits),
    ]
    names = {f"recall@{COMPARED}": "test", "valid.": "validation"}
    chances = {name: rows[0][f"{of}_recall_at_{COMPARED}_chance"] for name, of in names.items()}
    known = [f"{name} {chance:.3f}" for name, chance in chances.items() if chance is not None]
    notes = [
        f"Test links; NDCG and hit rate at {COMPARED}, too. ±: standard error over users and items."
        f" Chance: {', '.join(known)}.",
        "s: seconds of content, of all that chose the penalty, and of the fit. valid.: recall of"
        " validation links.",
    ]
    for content in dict.fromkeys(row["content"] for row in rows if row["content"]):
        readers = " and ".join(row["floor"] for row in rows if row["content"] == content)
        notes.append(f"Content of {readers}: {content.replace('features', 'dense features')}.")
    if users := rows[0]["test_cold_users"]:
        column = f"test_recall_at_{COMPARED}_cold_users"
        recalls = ", ".join(f"{row['floor']} {row[column]:.3f}" for row in rows)
        notes.append(
            f"{users:,.0f} users without training links stand apart: recall@{COMPARED} {recalls}."
        )
    notes += [CERTAIN] * (chances[f"recall@{COMPARED}"] >= 1)
    by = dict.fromkeys(row["chosen_by"] for row in rows if row["chosen_by"] not in (None, "given"))
    notes += [f"Penalties are chosen by recall@{COMPARED} of {text}." for text in by]
    notes += [
        f"{row['floor']}: {row['penalty']:g} is the {end} of its penalties, and a better one may"
        " lie beyond: see --penalty."
        for row in rows
        if (end := _end(row))
    ]
    return Table.of(f"Floors of {dataset}", cols, rows, [*notes, *more], name="floors")


def exposure_table(dataset: str, rows: Sequence[Row]) -> Table:
    """Return what the floors recommend, and recall of new and of known items where both are."""
    cols = [
        Col("floor", "floor"),
        *(Col(f"coverage@{m}", f"test_coverage_at_{m}", ".3f") for m in (10, COMPARED)),
        *(Col(f"links@{m}", f"test_popularity_at_{m}", ",.1f") for m in (10, COMPARED)),
    ]
    notes = [
        "coverage@M: share of the candidates that are among the M best of any user; links@M: mean"
        " training links of these items."
    ]
    recall = f"test_recall_at_{COMPARED}"
    if any(row[f"{recall}_new_items"] is not None for row in rows):
        cols += [
            Col("recall, new", f"{recall}_new_items", ".3f"),
            Col("recall, known", f"{recall}_known_items", ".3f"),
        ]
        notes.append(
            f"recall@{COMPARED} of links to new items, which have no training link, and to known"
            " ones, both in one ranking."
        )
    return Table.of(f"What the floors of {dataset} recommend", cols, rows, notes, name="exposure")


def _end(row: Row) -> str:
    """Return which end of its range a chosen penalty is at; empty within it."""
    penalties = json.loads(row["settings"]).get("penalties", ())
    ends = {min(penalties): "smallest", max(penalties): "largest"} if penalties else {}
    return ends.get(row["penalty"], "")
