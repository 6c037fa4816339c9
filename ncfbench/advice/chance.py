"""Chance: what a random order of the items reaches, and when a run was first seen above it."""

from __future__ import annotations

import numpy as np

from ncfbench.data import Dataset
from ncfbench.data.content import Split
from ncfbench.reporting.ranked import above_chance_at
from ncfbench.runs.folder import RunRecord
from ncfbench.runs.quality import COMPARED, n_ranked


def chance(dataset: Dataset, split: Split) -> float:
    """Return the expected recall@50 of a random order of the items that are ranked for a split's
    links, on average over users.
    """
    return float(np.mean(np.minimum(COMPARED / n_ranked(dataset, split), 1.0)))


def learned_at(record: RunRecord, dataset: Dataset) -> float | None:
    """Return :func:`ncfbench.reporting.ranked.above_chance_at` on validation links."""
    return above_chance_at(record, "validation", chance(dataset, "validation"))
