"""The epoch whose quality a run reports, and the rule that chose it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ncfbench.runs.quality import Evaluation, difference

NO_VALIDATION = "last epoch, without validation"
BY_VALIDATION = "validation"
UNSUPPORTED = "last epoch, validation cannot tell"
"""Values of ``reported_by``; runs of schema versions 1 and 2 have none, and their epoch is that of
the largest validation recall, whether the difference meant anything or not.
"""
ERRORS = 3.0
"""Standard errors by which the best epoch must be above the last one in validation recall.

The best is chosen among all epochs: of 30 that are equally good, independent normal noise puts one
three errors above the last in 3 runs of 100, and two errors in 23.
"""
MEASURE = "validation_recall_at_50"


def choose_epoch(
    curve: Sequence[Mapping[str, Any]], patience: int, validation: Mapping[int, Evaluation]
) -> tuple[Mapping[str, Any] | None, str]:
    """Return the row of the curve to report, None where nothing was evaluated, and the rule.

    The candidate (:func:`find_candidate`) is reported if its recall is above that of the last epoch
    by more than :data:`ERRORS` standard errors of the paired difference. If it is not, the
    validation users and items are too few to see a difference, and the last epoch is reported.

    Args:
        validation: evaluations of the validation items by iteration.
    """
    evaluated = [
        row for row in curve if row["test_recall_at_50"] is not None or row[MEASURE] is not None
    ]
    best = find_candidate(curve, patience)
    if best is None:
        return evaluated[-1] if evaluated else None, NO_VALIDATION
    last = [row for row in evaluated if row[MEASURE] is not None][-1]
    if best is last:
        return best, BY_VALIDATION
    if all(row["iteration"] in validation for row in (best, last)):
        apart = difference(*(validation[row["iteration"]] for row in (best, last)))
        if apart is not None and apart.is_above(ERRORS):
            return best, BY_VALIDATION
    return last, UNSUPPORTED


def find_candidate(curve: Sequence[Mapping[str, Any]], patience: int) -> Mapping[str, Any] | None:
    """Return the row of the largest validation recall@50 before ``patience`` epochs have passed
    without a larger one, of equal ones the later; None where nothing was validated.
    """
    validated = [row for row in curve if row[MEASURE] is not None]
    if not validated:
        return None
    best, waited = validated[0], 0
    for row in validated[1:]:
        waited = 0 if row[MEASURE] > best[MEASURE] else waited + 1
        best = row if row[MEASURE] >= best[MEASURE] else best
        if waited >= patience:
            break
    return best
