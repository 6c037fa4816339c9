"""Quality of an arm at the epoch that it reports."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ncfbench.reporting.frames import Run
from ncfbench.runs.folder import RunRecord
from ncfbench.runs.reported import choose_epoch
from ncfbench.storage.schemas import MEASURES, PARTS, QUALITY

Row = Mapping[str, Any]
RECALL = "recall_at_50"
COLD_USERS, NEW_ITEMS, KNOWN_ITEMS = (f"{RECALL}_{part}" for part in PARTS)
MEASURED = (*MEASURES, COLD_USERS, NEW_ITEMS, KNOWN_ITEMS)
ERROR = "±: standard error over users and items, and over seeds where there are several"
"""Meaning of ± in every table and sentence (:func:`standard_error`)."""
CLEAR_ERRORS = 2.0
"""Standard errors of a difference by which one recall must be above another, or above chance, to
count as higher. Nearer ones are level; without an error nothing is known.
"""
EPOCH_NOTE = "recall@50: of test links, at the epoch that validation chose, else the last one"
"""Meaning of the recall of an arm in every table and sentence."""


@dataclass(frozen=True)
class Quality:
    """Measures of test links at the reported epoch, on average over seeds.

    Attributes:
        epoch: that of each seed, on average over seeds.
        values: measures, their standard errors (:func:`standard_error`) and chance levels, by the
            names of :data:`ncfbench.storage.schemas.QUALITY`; None where a run has none.
    """

    epoch: float
    values: Mapping[str, float | None]

    def error(self, measure: str) -> float | None:
        """Return a measure's standard error; None where it is not known."""
        return self.values.get(f"{measure}_error")

    def text(self, measure: str) -> str:
        """Return a measure with its error, such as ``0.414 ± 0.006``."""
        value, error = self.values[measure], self.error(measure)
        if value is None:
            return "-"
        return f"{value:.3f}" if error is None else f"{value:.3f} ± {error:.3f}"

    @property
    def kinds(self) -> str:
        """Recall@50 of links to new items and to known ones, in words; empty where all links are of
        one kind.
        """
        if self.values.get(NEW_ITEMS) is None:
            return ""
        text = f"new items {self.text(NEW_ITEMS)}, known items {self.text(KNOWN_ITEMS)}"
        return text if self.error(KNOWN_ITEMS) is None else f"{text}, with errors over users alone"


def reported_row(run: RunRecord) -> Row | None:
    """Return the row of a run's curve whose quality it reports; None where it has no recall of test
    links.
    """
    row, _ = choose_epoch(run.curve, run.config.patience)
    return None if row is None or row.get(f"test_{RECALL}") is None else row


def quality_of(runs: Iterable[Run]) -> Quality | None:
    """Return the quality of an arm's runs; None where some run was not evaluated."""
    rows = [reported_row(run) for run in runs]
    known = [row for row in rows if row is not None]
    if not known or len(known) < len(rows):
        return None
    return quality_of_rows(known, math.fsum(row["epoch"] for row in known) / len(known))


def quality_of_rows(rows: Sequence[Row], epoch: float) -> Quality:
    """Return the quality of some rows of test links, one of each seed."""
    means = {name: mean_of(rows, f"test_{name}") for name in QUALITY}
    errors = {f"{name}_error": standard_error(rows, f"test_{name}") for name in MEASURED}
    return Quality(epoch, means | errors)


def standard_error(rows: Sequence[Row], measure: str) -> float | None:
    """Return the standard error of a measure's mean over seeds; None where some run kept no error.

    It has a part of the users, for recall@50 one of the items, and one of the seeds where there are
    several. All seeds rank the same users and items, so only the part of the seeds falls with their
    number.

    Args:
        rows: a row of each seed, of a curve or a summary.
    """
    ends = ("_error", "_item_error") if measure.endswith(RECALL) else ("_error",)
    parts = [row.get(f"{measure}{end}") for row in rows for end in ends]
    if None in parts:
        return None
    shared = math.fsum(part**2 for part in parts if part is not None)
    values = [row[measure] for row in rows]
    of_seeds = statistics.variance(values) if len(values) > 1 else 0.0
    return math.sqrt((shared + of_seeds) / len(rows))


def validation_recall(row: Row) -> float | None:
    """Return the recall@50 of validation links in a row; None where it was not evaluated, or is 1
    by construction, which chooses nothing.
    """
    name = f"validation_{RECALL}"
    is_certain = (row.get(f"{name}_chance") or 0.0) >= 1
    return None if is_certain else row.get(name)


def mean_of(rows: Sequence[Row], column: str) -> float | None:
    """Return the mean of a column; None where some row lacks it."""
    values = [row.get(column) for row in rows]
    known = [value for value in values if value is not None]
    return math.fsum(known) / len(known) if len(known) == len(values) else None
