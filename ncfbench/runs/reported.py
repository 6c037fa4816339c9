"""Results of a run's curve and raw samples: its times, and the epoch that validation chose.

The epoch is chosen from the curve wherever a run is read.
"""

from __future__ import annotations

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
    best, _ = _search(curve, patience)
    if best is not None:
        return best, BY_VALIDATION
    return next(reversed(evaluations_of(curve)), None), NO_VALIDATION


def is_chosen(curve: Sequence[Row], patience: int) -> bool:
    """Return whether validation has chosen the epoch, whatever epochs follow."""
    return _search(curve, patience)[1] >= patience


def _search(curve: Sequence[Row], patience: int) -> tuple[Row | None, int]:
    """Return the row of the largest validation recall, and the evaluations that have passed since;
    None where no recall chooses.
    """
    best, waited = None, 0
    for row in curve:
        if validation_recall(row) is not None and waited < patience:
            is_larger = best is None or row[MEASURE] > best[MEASURE]
            best, waited = (row, 0) if is_larger else (best, waited + 1)
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
    best, _ = _search(curve, patience)
    last = evaluations_of(curve)[-1] if best else {}
    if best is None or last[MEASURE] is None or last[MEASURE] >= best[MEASURE]:
        return None
    return (
        f"Validation recall@50 fell from {best[MEASURE]:.4f} at epoch {best['epoch']:g} to"
        f" {last[MEASURE]:.4f} at epoch {last['epoch']:g}: fewer epochs would do. Epoch"
        f" {best['epoch']:g} is reported, exported and recommended from."
    )


def reported_row(run: RunRecord) -> Row | None:
    """Return the row of a run's curve whose quality it reports; None where it has no recall of test
    links.
    """
    row, _ = choose_epoch(run.curve, run.config.patience)
    return None if row is None or row.get(TEST) is None else row


def validation_recall(row: Row) -> float | None:
    """Return the recall@50 of validation links in a row; None where it was not evaluated, or is 1
    by construction, which chooses nothing.
    """
    return None if (row.get(f"{MEASURE}_chance") or 0.0) >= 1 else row.get(MEASURE)
