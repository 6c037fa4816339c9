"""Curves of the race, read from the records of its runs."""

from __future__ import annotations

import math

import numpy as np

from ncfbench.advice.question import Target
from ncfbench.advice.rule import Curve
from ncfbench.data import Dataset
from ncfbench.data.content import Split
from ncfbench.runs.folder import RunRecord

CUTOFF = 50
ERRORS = 3.0
LEARNED = 0.25
"""A run has learned something when its recall is above chance by :data:`ERRORS` standard errors,
and by this share of chance, or of what is missing to 1 where that is less.
"""


def chance(dataset: Dataset, split: Split) -> float:
    """Return the expected recall@50 of a random order of the items that are ranked for a split's
    links, on average over users.
    """
    n_ranked = np.full(1, len(dataset.candidates(split)))
    if dataset.ranks_known_items:
        n_ranked = n_ranked - dataset.graph.user_degrees[np.unique(dataset.links(split)[0])]
    return float(np.mean(np.minimum(CUTOFF / np.maximum(n_ranked, 1), 1.0)))


def curve_of(record: RunRecord, target: Target, dataset: Dataset) -> Curve:
    """Return probe loss, or recall on validation items with its sign changed, against iterations
    times the median seconds of an iteration; one value of infinity where nothing was evaluated.
    """
    seconds = record.summary["full_iteration_seconds"] or 0.0
    if target == "loss":
        points = [(row["iteration"] * seconds, row["probe_loss"]) for row in record.curve]
    else:
        points = [(0.0, -chance(dataset, "validation"))]
        points += [
            (row["iteration"] * seconds, -row["validation_recall_at_50"])
            for row in record.curve
            if row["validation_recall_at_50"] is not None
        ]
    if not seconds:
        points = points[:1]
    return Curve(*zip(*points, strict=True)) if points else Curve((0.0,), (math.inf,))


def learned_at(record: RunRecord, dataset: Dataset) -> float | None:
    """Return the training clock at which a run was first seen to be better than chance; None where
    it never was, 0 where recall cannot tell: there is none, or all items are among the first 50.
    """
    split: Split = "validation" if dataset.holds_out("validation") else "test"
    by_chance = chance(dataset, split)
    column = f"{split}_recall_at_{CUTOFF}"
    if by_chance >= 1 or record.summary["recall_reason"] is not None:
        return 0.0
    least = LEARNED * min(by_chance, 1 - by_chance)
    seconds = record.summary["full_iteration_seconds"] or 0.0
    for row in record.curve:
        if row[column] is not None:
            errors = [row[f"{column}{of}_error"] or 0.0 for of in ("", "_item")]
            if row[column] - by_chance > max(least, ERRORS * math.hypot(*errors)):
                return float(row["iteration"] * seconds)
    return None
