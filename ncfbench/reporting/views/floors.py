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
        readers = ", ".join(row["floor"] for row in rows if row["content"] == content)
        notes.append(f"Content of {readers}: {content.replace('features', 'dense features')}.")
    parts = {"new_items": "Links to new items", "known_items": "Links to known items"}
    if users := rows[0]["test_cold_users"]:
        parts["cold_users"] = f"{users:,.0f} users without training links stand apart"
    for part, words in parts.items():
        column = f"test_recall_at_{COMPARED}_{part}"
        if rows[0][column] is not None:
            recalls = ", ".join(f"{row['floor']} {row[column]:.3f}" for row in rows)
            notes.append(f"{words}: recall@{COMPARED} {recalls}.")
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


def _end(row: Row) -> str:
    """Return which end of its range a chosen penalty is at; empty within it."""
    penalties = json.loads(row["settings"]).get("penalties", ())
    ends = {min(penalties): "smallest", max(penalties): "largest"} if penalties else {}
    return ends.get(row["penalty"], "")
