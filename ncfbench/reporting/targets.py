"""Speedups at every level of loss and recall, so that no single target decides."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ncfbench.reporting.frames import Run, by_variant, paired
from ncfbench.runs.arms import Variant
from ncfbench.runs.curves import falling
from ncfbench.statistics import speedups
from ncfbench.statistics.speedups import Arm

TARGET_MEASURES = ("probe_loss", "test_recall_at_50")


class Target(NamedTuple):
    """A level of a measure, with the speedup of a variant in reaching it."""

    variant: Variant
    level: float
    speedup: speedups.AtTarget


def sensitivity(runs: Sequence[Run], measure: str) -> list[Target]:
    """Return every arm of a group at every level, from the first to the last that any run
    reached.

    A loss level is reached where the probe first comes down to it, a recall level where test
    recall@50 first rises to it, both linear between evaluations. The levels are common to all
    variants and seeds. A seed is censored at a level that it does not reach, or that it has passed
    at its first evaluation (:class:`ncfbench.statistics.speedups.AtTarget`).
    """
    pairs: dict[Variant, list[tuple[Arm, Arm]]] = {}
    for variant, by_seed in by_variant(runs).items():
        both = paired(by_seed.values())
        is_baseline = variant == next(iter(by_seed.values())).baseline
        if is_baseline or any(run.shorter is None for run, _ in both):
            continue
        curves = [(falling(run, measure), falling(base, measure)) for run, base in both]
        if curves and all(arm.losses for pair in curves for arm in pair):
            pairs[variant] = curves
    sign = -1 if measure == "test_recall_at_50" else 1
    levels = speedups.levels([arm for curves in pairs.values() for pair in curves for arm in pair])
    return [
        Target(variant, sign * level, speedups.speedup_at([level] * len(curves), curves))
        for variant, curves in pairs.items()
        for level in levels
    ]
