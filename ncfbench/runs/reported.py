"""Results of a run's curve and raw samples: its times, and the epoch that validation chose.

The epoch is chosen from the curve wherever a run is read.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ncfbench.statistics import speedups
from ncfbench.storage.schemas import QUALITY_COLUMNS

if TYPE_CHECKING:
    from ncfbench.runs.folder import RunRecord

NO_VALIDATION = "last epoch, without validation"
BY_VALIDATION = "validation"
"""Values of ``reported_by``."""
MEASURE = "validation_recall_at_50"
TEST = "test_recall_at_50"
Row = Mapping[str, Any]


def choose_epoch(curve: Sequence[Row], patience: int) -> tuple[Row | None, str]:
    """Return the row of the curve to report, None where nothing was evaluated, and the rule.

    It is the row of the largest validation recall@50 before ``patience`` evaluations have passed
    without a larger one, of equal ones the earlier. Without validation it is the last evaluated
    row; so too where the validation recall is 1 by construction, which chooses nothing.
    """
    evaluated = evaluations_of(curve)
    if not (validated := _validated(evaluated)):
        return evaluated[-1] if evaluated else None, NO_VALIDATION
    return _search(validated, patience)[0], BY_VALIDATION


def is_chosen(curve: Sequence[Row], patience: int) -> bool:
    """Return whether validation has chosen the epoch, whatever epochs follow."""
    validated = _validated(curve)
    return bool(validated) and _search(validated, patience)[1] >= patience


def _validated(curve: Sequence[Row]) -> list[Row]:
    return [row for row in curve if validation_recall(row) is not None]


def _search(validated: Sequence[Row], patience: int) -> tuple[Row, int]:
    """Return the row of the largest recall, and the evaluations that have passed since."""
    best, waited = validated[0], 0
    for row in validated[1:]:
        is_larger = row[MEASURE] > best[MEASURE]
        best, waited = (row, 0) if is_larger else (best, waited + 1)
        if waited >= patience:
            break
    return best, waited


def measured_columns(
    curve: Sequence[Row], timing: Sequence[Row], environment_key: str, patience: int
) -> dict[str, Any]:
    """Return the columns of ``summary.parquet`` that follow from the curve and the raw samples.

    Args:
        environment_key: of the samples whose times count.
    """
    timed = [row for row in timing if row["environment_key"] == environment_key]
    return {
        "smallest_probe_loss": min((row["probe_loss"] for row in curve), default=None),
        "full_iteration_seconds": speedups.seconds_per_iteration(timed, "full"),
        "step_iteration_seconds": speedups.seconds_per_iteration(timed, "step"),
        "item_slots": speedups.weighted_mean(timing, "item_slots"),
        **reported_columns(curve, patience),
    }


def reported_columns(curve: Sequence[Row], patience: int) -> dict[str, Any]:
    """Return the columns of ``summary.parquet`` on the reported epoch and its quality."""
    row, rule = choose_epoch(curve, patience)
    shown = row or {}
    columns = {"reported_epoch": shown.get("epoch"), "reported_by": rule if row else None}
    return columns | {name: shown.get(name) for name in QUALITY_COLUMNS}


def evaluations_of(curve: Sequence[Row]) -> list[Row]:
    """Return the rows of a curve that have recall."""
    return [row for row in curve if any(row.get(name) is not None for name in (TEST, MEASURE))]


def describe_fall(curve: Sequence[Row], patience: int) -> str | None:
    """Return a warning where validation recall has fallen since the reported epoch, else None."""
    reported, rule = choose_epoch(curve, patience)
    last = evaluations_of(curve)[-1:]
    if reported is None or rule != BY_VALIDATION or last[0][MEASURE] is None:
        return None
    best, end = reported[MEASURE], last[0][MEASURE]
    if end >= best:
        return None
    return (
        f"Validation recall@50 fell from {best:.4f} at epoch {reported['epoch']:g} to {end:.4f} at"
        f" epoch {last[0]['epoch']:g}: fewer epochs would do. Epoch {reported['epoch']:g} is"
        " reported, exported and recommended from."
    )


def reported_row(run: RunRecord) -> Row | None:
    """Return the row of a run's curve whose quality it reports; None where it has no recall of test
    links.
    """
    row, _ = choose_epoch(run.curve, run.config.patience)
    return None if row is None or row.get(TEST) is None else row


def standard_error(rows: Sequence[Row], measure: str) -> float | None:
    """Return the standard error of a measure's mean over seeds; None where some run kept no error.

    It has a part of the users, for recall@50 one of the items, and one of the seeds where there are
    several. All seeds rank the same users and items, so only the part of the seeds falls with their
    number.

    Args:
        rows: a row of each seed, of a curve or a summary.
    """
    ends = ("_error", "_item_error") if measure.endswith("recall_at_50") else ("_error",)
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
    return None if (row.get(f"{MEASURE}_chance") or 0.0) >= 1 else row.get(MEASURE)


def mean_of(rows: Sequence[Row], column: str) -> float | None:
    """Return the mean of a column; None where some row lacks it."""
    values = [row.get(column) for row in rows]
    known = [value for value in values if value is not None]
    return math.fsum(known) / len(known) if len(known) == len(values) else None
