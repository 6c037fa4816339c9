"""Curves of runs, as statistics read them: a measure that falls against iterations and seconds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean as mean

from ncfbench.runs.folder import RunRecord
from ncfbench.statistics import speedups
from ncfbench.statistics.curves import Curve
from ncfbench.statistics.seeds import Curves

QUARTILES_OF_NORMAL = 1.349
"""Interquartile range of a normal distribution, in standard deviations."""
MEDIAN_OVER_MEAN = 1.25
"""Standard error of a median over that of a mean, for normal values."""


def falling(record: RunRecord, measure: str) -> Curve:
    """Return a run's evaluations in a measure that falls: recall has its sign changed."""
    sign = 1 if measure == "probe_loss" else -1
    evaluated = [row for row in record.curve if row.get(measure) is not None]
    return Curve(
        iterations=[row["iteration"] for row in evaluated],
        losses=[sign * row[measure] for row in evaluated],
        full_iteration_seconds=record.summary["full_iteration_seconds"],
    )


def curve_of(record: RunRecord, column: str, chance: float | None = None) -> Curve:
    """Return probe loss, or a metric with its sign changed and its chance before training, against
    iterations times the median seconds of an iteration, or the clock where iterations are not
    alike; one value of infinity where nothing was evaluated.

    Args:
        column: of the curve, ``probe_loss`` or such as ``validation_recall_at_50``.
        chance: of a run that keeps none.
    """
    curve = falling(record, column)
    points = [*zip(curve.iterations, curve.losses, strict=True)]
    if points and points[0][0] and column != "probe_loss":
        evaluated = (row for row in record.curve if row[column] is not None)
        kept = next(evaluated).get(f"{column}_chance")
        known = chance if kept is None else kept
        points[:0] = [] if known is None else [(0, -known)]
    if not curve.full_iteration_seconds:
        points = points[:1]
    iterations, losses = zip(*(points or [(0, math.inf)]), strict=True)
    return Curve(iterations, losses, curve.full_iteration_seconds or 0.0)


def curves_of(runs: Sequence[RunRecord], column: str, chance: float | None = None) -> Curves:
    """Return the curves in a column of the runs that have times and did not diverge.

    Args:
        chance: as for :func:`curve_of`.
    """
    if not runs:
        return Curves({})
    # The spread of the times of blocks over the square root of their number.
    noises = [
        (speedups.spread(run.timing, "full") or 0.0)
        / math.sqrt(max(sum(row["kind"] == "full" for row in run.timing), 1))
        for run in runs
    ]
    able = [run for run in runs if run.summary["full_iteration_seconds"] is not None]
    able = [run for run in able if run.summary["status"] != "diverged"]
    return Curves(
        {run.config.seed: curve_of(run, column, chance) for run in able},
        MEDIAN_OVER_MEAN / QUARTILES_OF_NORMAL * mean(noises),
        mean(run.feature_seconds for run in runs),
    )
