"""Convergence check: a run that has not trained is no baseline, and its loss is no target."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

from ncfbench.catalog import find_sampler
from ncfbench.data.content import Split
from ncfbench.runs.folder import RunRecord, clock_at
from ncfbench.runs.quality import CLEAR_ERRORS

Row = Mapping[str, Any]
FIRST_PROBES = 2
"""A smallest loss at one of the first probes is a dip at the start: the time to it is made up by
interpolation from the untrained model, and the later training only went away from it.
"""
FALLING_SHARE = 0.1
"""A loss still falls fast that makes this share of its fall in the last quarter of the run.

Counted from the first probe after the start, which leaves out the plunge from the random
initialisation. A loss that nears its limit exponentially does so before twice its time constant,
with 14 % of its fall ahead. CiteULike, CNN, 30 epochs: 0.00 to 0.05 for every sampler and loss;
LSTM with SG after 8 epochs, recall still rising: 0.099 to 0.23 (results/citeulike-title-tags).
"""
LEAST_PROBES = 4
"""Probes after the start, one epoch of them by default, that the last two checks need."""
LEARNED = 0.25
"""A run has learned something when its recall is above chance by
:data:`ncfbench.runs.quality.CLEAR_ERRORS`, and by this share of chance, or of what is missing
to 1 where that is less.
"""


class Fault(NamedTuple):
    """Why a run has not trained, and what to do about it."""

    kind: Literal["chance", "rise", "dip", "falling"]
    finding: str
    remedy: str


def find_fault(curve: Sequence[Row]) -> Fault | None:
    """Return why a run's curve cannot be a baseline; None where it can, as far as it shows.

    Args:
        curve: rows of ``curve.parquet``, in order. Recall is checked where it has an error and a
            chance level; whether the loss had come down, and still falls, where there are
            :data:`LEAST_PROBES`.
    """
    evaluated = [row for row in curve if row.get("test_recall_at_50_error") is not None]
    if evaluated and (fault := _at_chance(evaluated[-1])):
        return fault
    losses = {row["iteration"]: row["probe_loss"] for row in curve}
    start = losses.get(0, math.inf)
    if losses and not any(loss < start for loss in losses.values()):
        return Fault(
            "rise",
            f"its loss was never below the {start:.4g} before training",
            "Use a smaller learning rate, or train longer.",
        )
    if len(curve) <= LEAST_PROBES:
        return None
    lowest, last = min(losses, key=lambda iteration: losses[iteration]), curve[-1]["iteration"]
    if lowest <= curve[FIRST_PROBES]["iteration"]:
        return Fault(
            "dip",
            f"its smallest loss comes at iteration {lowest:,} of {last:,}, one of the first probes",
            "Use another learning rate or a smaller batch, or train longer.",
        )
    before = min(loss for iteration, loss in losses.items() if iteration <= 0.75 * last)
    fall, late = curve[1]["probe_loss"] - losses[lowest], before - losses[lowest]
    if fall <= 0 or late < FALLING_SHARE * fall:
        return None
    return Fault(
        "falling",
        f"its loss made {100 * late / fall:.0f} % of its fall in the last quarter of the run",
        "Train longer, or use a larger learning rate or a smaller batch.",
    )


def _at_chance(last: Row) -> Fault | None:
    recall, chance = last["test_recall_at_50"], last["test_recall_at_50_chance"]
    error = _error_of(last, "test_recall_at_50")
    if chance >= 1 or recall > chance + CLEAR_ERRORS * error:
        return None
    return Fault(
        "chance",
        f"its recall@50 of {recall:.3f} at the end (error {error:.3f}) is that of chance,"
        f" {chance:.3f}",
        "Train longer, or use another learning rate or a smaller batch.",
    )


def why_no_ratio(runs: Sequence[RunRecord]) -> str | None:
    """Return why the runs of a baseline give no ratio, and what to do: some diverged, have no times
    or a fault; None where they do. One faulty seed is enough, since ratios are means over all.
    """
    title = find_sampler(runs[0].config.sampler).title
    for word, lost in (
        ("diverged", [run for run in runs if run.summary["status"] == "diverged"]),
        ("has no times", [run for run in runs if run.summary["full_iteration_seconds"] is None]),
    ):
        if lost:
            seeds = f" with {len(lost)} of {len(runs)} seeds" if len(runs) > 1 else ""
            return f"{title} {word}{seeds}."
    for run in runs:
        if fault := find_fault(run.curve):
            seed = f" (seed {run.config.seed})" if len(runs) > 1 else ""
            return f"{title}{seed} has not trained: {fault.finding}. {fault.remedy}"
    return None


def above_chance_at(record: RunRecord, split: Split, chance: float) -> float | None:
    """Return the training clock at which the recall@50 of a run's links of a split was first seen
    to be better than chance; None where it never was, 0 where recall cannot tell: there is none, or
    all items are among the first 50.
    """
    if chance >= 1 or record.summary["recall_reason"] is not None:
        return 0.0
    column = f"{split}_recall_at_50"
    least = LEARNED * min(chance, 1 - chance)
    for row in record.curve:
        if row[column] is not None:
            above = max(least, CLEAR_ERRORS * _error_of(row, column))
            if row[column] - chance > above:
                return clock_at(record, row["iteration"])
    return None


def _error_of(row: Row, column: str) -> float:
    """Return the standard error of a recall over users and items, as far as it is known."""
    return math.hypot(*(row[f"{column}{of}_error"] or 0.0 for of in ("", "_item")))
