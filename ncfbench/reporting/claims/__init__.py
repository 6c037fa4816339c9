"""Claims: what the paper says of its samplers on any hardware, each judged by runs of ours.

A claim is about one data set, encoder and loss. It is judged by an interval, never by a printed
figure: ``reproduced`` where the whole 95 % interval agrees with it, ``not reproduced`` where the
whole interval contradicts it, else ``undecided``. So is what one seed alone cannot tell.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from ncfbench.reporting.claims.case import (
    NOT_REPRODUCED,
    SHORTER,
    SOONEST,
    Case,
    Judge,
    Judged,
    Row,
    as_judged,
)
from ncfbench.reporting.claims.samplers import (
    fewer_iterations,
    kept_recall,
    lower_variance,
    shorter_iterations,
    slower_regularised,
    soonest,
)
from ncfbench.reporting.claims.sizes import larger_strata, more_negatives
from ncfbench.reporting.comparison import Comparison

__all__ = ["CLAIMS", "NOT_REPRODUCED", "Judged", "as_rows", "judge_claims"]

CLAIMS: Mapping[str, tuple[str, Judge]] = {
    "fewer-iterations": ("Sharing negatives needs fewer iterations", fewer_iterations),
    "lower-variance": ("Sharing negatives lowers the gradient's variance", lower_variance),
    SHORTER[0]: (SHORTER[1], shorter_iterations),
    SOONEST[0]: (SOONEST[1], soonest),
    "kept-recall": ("Strata with sharing keep the recall", kept_recall),
    "more-negatives": ("More negatives raise the recall", more_negatives),
    "larger-strata": ("Larger strata cost loss and save items", larger_strata),
    "slower-regularised": ("Functional regularisation slows training", slower_regularised),
}
"""Claims by name: what the paper says, and what judges it."""


def judge_claims(
    comparisons: Sequence[Comparison], speedups: Sequence[Sequence[Row]], audits: Sequence[Row]
) -> list[Judged]:
    """Return the verdicts on all claims that some run bears on, by comparison.

    Args:
        speedups: rows of each comparison.
        audits: rows of the audits beside the runs.
    """
    judged = []
    for comparison, own in zip(comparisons, speedups, strict=True):
        case = Case(comparison, own, comparisons, audits)
        for name, (says, judge) in CLAIMS.items():
            if (found := judge(case)) is not None:
                judged.append(as_judged((name, says), comparison, found))
    return judged


def as_rows(found: Sequence[Judged]) -> list[dict[str, Any]]:
    """Return verdicts as plain rows."""
    return [asdict(each) for each in found]
