"""Ties of the speedup and recall tables: arms that cannot be told from the best of their column.

Arms are compared over the seeds that both have, from paired differences. With one common seed,
speedups that are nearer than :data:`ncfbench.timing.ties.ONE_SEED_FACTOR` count as tied, and
recalls are compared user by user and item by item, where the runs kept their evaluations.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path

from ncfbench.errors import DataError
from ncfbench.paper.printed import RECALL
from ncfbench.reporting.comparison import Comparison, arm_of
from ncfbench.runs import evaluations
from ncfbench.runs.arms import Variant
from ncfbench.runs.folder import RunRecord
from ncfbench.runs.quality import Evaluation, difference
from ncfbench.timing import ties
from ncfbench.timing.statistics import Speedup, compare

RATIOS: Mapping[str, Callable[[Speedup], float | None]] = {
    "iterations_speedup": lambda found: found.iterations,
    "total_speedup": lambda found: found.total,
}
"""Columns of the speedup table that the seed decides; the time of an iteration is the machine's."""


def tied_speedups(comparison: Comparison) -> dict[Variant, list[str]]:
    """Return the columns of :data:`RATIOS` in which each variant is tied with the best of those
    that have its baseline, the best included.
    """
    groups: dict[Variant | None, list[Variant]] = {}
    for variant in comparison.arms:
        groups.setdefault(comparison.baseline(variant), []).append(variant)
    found: dict[Variant, list[str]] = {}
    for variants in groups.values():
        for column in RATIOS:
            logs = {variant: log_ratios(comparison, variant, column) for variant in variants}
            known = {variant: own for variant, own in logs.items() if own}
            for variant in ties.tied_ratios(known)[1] if known else ():
                found.setdefault(variant, []).append(column)
    return found


def tied_recalls(comparison: Comparison) -> set[Variant]:
    """Return the variants whose reported recall@50 cannot be told from the largest, with that."""
    values = {
        variant: {seed: run.summary[RECALL] for seed, run in runs.items()}
        for variant, runs in comparison.arms.items()
        if all(run.summary[RECALL] is not None for run in runs.values())
    }
    if not values:
        return set()

    def differ(one: Variant, other: Variant) -> ties.Difference | None:
        return recall_difference(comparison, one, other)

    means = {variant: math.fsum(own.values()) / len(own) for variant, own in values.items()}
    return set(ties.rank(means, differ).tied)


def recall_difference(
    comparison: Comparison, one: Variant, other: Variant
) -> ties.Difference | None:
    """Return how much the reported recall@50 of a variant is above another's, from the seeds that
    both have, and over users and items where they have one in common; None where neither tells.
    """
    runs, others = comparison.arms[one], comparison.arms[other]
    seeds = sorted(runs.keys() & others.keys())
    own, theirs = ([each[seed].summary[RECALL] for seed in seeds] for each in (runs, others))
    if None in own or None in theirs:
        return None
    apart = ties.paired(own, theirs) if seeds else None
    if apart is not None or not seeds:
        return apart
    return _by_users(runs[seeds[0]], others[seeds[0]])


def log_ratios(comparison: Comparison, variant: Variant, column: str) -> dict[int, float]:
    """Return the logarithm of a ratio of :data:`RATIOS` by seed; none if some seed has no ratio."""
    found = {}
    for run, base in comparison.pairs(variant):
        times = [each.summary["full_iteration_seconds"] for each in (run, base)]
        ratio = RATIOS[column](compare(arm_of(run), arm_of(base))) if all(times) else None
        if ratio is None or run.summary["status"] == "diverged":
            return {}
        found[run.config.seed] = math.log(ratio)
    return found


def _by_users(one: RunRecord, other: RunRecord) -> ties.Difference | None:
    """Return the difference of two runs' reported recalls over users and items; None where a run
    kept no evaluation of that epoch.
    """
    both = [_reported(run) for run in (one, other)]
    known = [each for each in both if each is not None]
    return difference(*known) if len(known) == len(both) else None


def _reported(run: RunRecord) -> Evaluation | None:
    iteration = run.reported_iteration
    return None if iteration is None else _evaluations(run.folder).get((iteration, "test"))


def _evaluations(folder: Path) -> evaluations.Evaluations:
    """Return a run's evaluations; none where they are damaged: then nothing is known of a tie."""
    try:
        return evaluations.read(folder)
    except DataError:
        return {}
