"""Ties of the speedup and recall tables: arms that cannot be told from the best of their column.

Arms are compared over the seeds that both have, from paired differences. With one common seed,
speedups that are nearer than the factor of :data:`ncfbench.statistics.intervals.LOSS_SPREAD` count
as tied, and recalls are compared user by user and item by item, where the runs kept their
evaluations.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from ncfbench.paper.printed import RECALL
from ncfbench.reporting.frames import Arms, Run, grouped, paired
from ncfbench.runs import evaluations
from ncfbench.runs.arms import Variant
from ncfbench.runs.quality import difference
from ncfbench.statistics import intervals, ranking
from ncfbench.statistics.intervals import Difference

RATIOS = {"iterations_speedup": "fewer", "total_speedup": "sooner"}
"""Columns of the speedup table that the seed decides; the time of an iteration is the machine's."""


def tied_speedups(arms: Arms) -> dict[Variant, list[str]]:
    """Return the columns of :data:`RATIOS` in which each arm is tied with the best of those that
    have its baseline, the best included.
    """
    groups = grouped(arms, lambda variant: next(iter(arms[variant].values())).baseline)
    tied: dict[Variant, list[str]] = {}
    for variants in groups.values():
        for column in RATIOS:
            logs = {variant: log_ratios(arms[variant].values(), column) for variant in variants}
            known = {variant: by_seed for variant, by_seed in logs.items() if by_seed}
            for variant in ranking.tied_ratios(known).tied if known else ():
                tied.setdefault(variant, []).append(column)
    return tied


def log_ratios(runs: Iterable[Run], column: str) -> dict[int, float]:
    """Return the logarithm of a ratio of :data:`RATIOS` of an arm by seed; none if some seed has no
    ratio.
    """
    logs = {}
    for run, base in paired(runs):
        ratio = getattr(run, RATIOS[column]) if run.is_timed and base.is_timed else None
        if ratio is None or run.has_diverged or base.has_diverged:
            return {}
        logs[run.config.seed] = math.log(ratio)
    return logs


def tied_recalls(arms: Arms) -> set[Variant]:
    """Return the arms whose reported recall@50 cannot be told from the largest, with that."""
    means = {}
    for variant, runs in arms.items():
        values = [run.summary[RECALL] for run in runs.values()]
        # Of an arm with a diverged seed no recall is shown.
        if None not in values and not any(run.has_diverged for run in runs.values()):
            means[variant] = math.fsum(values) / len(values)
    if not means:
        return set()
    return ranking.rank(means, lambda one, other: recall_difference(arms[one], arms[other])).tied


def recall_difference(runs: Mapping[int, Run], others: Mapping[int, Run]) -> Difference | None:
    """Return how much the reported recall@50 of an arm is above another's, from the seeds that both
    have, and over users and items where they have one in common; None where neither tells.

    Args:
        runs, others: by seed.
    """
    seeds = sorted(runs.keys() & others.keys())
    own, theirs = ([arm[seed].summary[RECALL] for seed in seeds] for arm in (runs, others))
    if not seeds or None in own or None in theirs:
        return None
    apart = intervals.paired(own, theirs)
    if apart is not None:
        return apart
    both = [arm[seeds[0]] for arm in (runs, others)]
    one, other = (evaluations.find(run.folder, run.reported_iteration) for run in both)
    return difference(one, other) if one and other else None
