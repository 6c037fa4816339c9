"""The paper's figures of merit from curves and raw samples, and their censoring. Pure: no clock, no
file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import geometric_mean
from typing import Any

import numpy as np

from ncfbench.statistics.curves import Curve, iterations_to
from ncfbench.statistics.intervals import Estimate, geometric

BUSY_SPREAD = 0.2
"""A larger :func:`spread` means that the machine was busy. CiteULike's CNN on two cores:
0.03 to 0.13 alone, 0.24 to 0.55 with other programs at work (2026-11-21).
"""
ROUNDS_OF_INTERVALS = 7
"""Fewer rounds of a profile make a bootstrap's interval much too narrow."""
LEVELS = 40
"""Number of targets of a sensitivity curve."""


@dataclass(frozen=True)
class AtTarget:
    """Speedup of an arm over its baseline at a target, over seeds; above 1 is faster.

    ``iterations`` and ``total`` are None if some seed is censored: its ratio is then only bounded.
    It is bounded from above (``at_most``) where the arm never reached the target, so it needs more
    than its last iteration, or where the baseline had reached it at its first evaluation, perhaps
    before. It is bounded from below (``at_least``) in the opposite cases. ``*_at_most`` and
    ``*_at_least`` are geometric means that use the bounds of these seeds, if all are of one kind.
    """

    reached: int
    """Seeds whose arm reached the target."""
    iterations: Estimate | None = None
    total: Estimate | None = None
    iterations_at_most: float | None = None
    total_at_most: float | None = None
    total_at_least: float | None = None


def seconds_per_iteration(samples: Sequence[Mapping[str, Any]], kind: str) -> float | None:
    """Return the median of seconds / iterations over the raw blocks of a kind.

    It leaves out blocks of an epoch that an interruption cut, unless there are no others, and
    blocks of less than half the iterations of the longest, in which synchronisation weighs more.
    """
    values = _of_blocks(samples, kind)
    return float(np.median(values)) if values else None


def spread(samples: Sequence[Mapping[str, Any]], kind: str) -> float | None:
    """Return the interquartile range of the blocks of :func:`seconds_per_iteration`, as a share of
    their median.

    A few hundredths on a quiet machine; see :data:`BUSY_SPREAD`.
    """
    values = _of_blocks(samples, kind)
    if not values:
        return None
    low, middle, high = np.quantile(values, (0.25, 0.5, 0.75))
    return float((high - low) / middle)


def _of_blocks(samples: Sequence[Mapping[str, Any]], kind: str) -> list[float]:
    blocks = [row for row in samples if row["kind"] == kind]
    whole = [row for row in blocks if not row["resumed"]] or blocks
    longest = max((row["iterations"] for row in whole), default=0)
    return [row["seconds"] / row["iterations"] for row in whole if 2 * row["iterations"] >= longest]


def weighted_mean(samples: Sequence[Mapping[str, Any]], column: str) -> float | None:
    """Return the mean of a column of the full blocks, weighted by their iterations."""
    rows = [row for row in samples if row["kind"] == "full" and row[column] is not None]
    total = sum(row["iterations"] for row in rows)
    return sum(row[column] * row["iterations"] for row in rows) / total if total else None


def speedup_at(targets: Sequence[float], pairs: Sequence[tuple[Curve, Curve]]) -> AtTarget:
    """Return the speedup of an arm over its baseline at a target of each seed.

    The total is the product of the two ratios within a seed (table 3 of the paper).

    Args:
        targets: a loss for each seed, to be reached from above.
        pairs: arm and baseline of each seed, in the same order.
    """
    ratios: list[float] = []
    reached, sides = 0, set[int]()
    for target, (arm, base) in zip(targets, pairs, strict=True):
        (own, own_side), (theirs, their_side) = _arrival(target, arm), _arrival(target, base)
        reached += own_side <= 0
        # A censored baseline makes the true ratio larger, a censored arm smaller; where both are
        # censored alike it is unknown.
        sides |= {their_side, -own_side} - {0}
        # There is no ratio at a target that one of them had from the start.
        if own > 0 and theirs > 0:
            ratios.append(theirs / own)
    if len(ratios) < len(pairs) or len(sides) > 1:
        return AtTarget(reached)
    totals = [
        ratio * base.full_iteration_seconds / arm.full_iteration_seconds
        for ratio, (arm, base) in zip(ratios, pairs, strict=True)
    ]
    if not sides:
        return AtTarget(reached, iterations=geometric(ratios), total=geometric(totals))
    bounds = geometric_mean(ratios), geometric_mean(totals)
    if sides == {-1}:
        return AtTarget(reached, iterations_at_most=bounds[0], total_at_most=bounds[1])
    return AtTarget(reached, total_at_least=bounds[1])


def _arrival(target: float, arm: Curve) -> tuple[float, int]:
    """Return the iterations until a target, and how they are censored: 1, it took more than these;
    -1, it took no more than these; else 0.

    It took more if the target was never reached. It took no more if the first evaluation had
    reached it and was not the one before training: recall is first measured after an epoch.
    """
    reached = iterations_to(target, arm.iterations, arm.losses)
    if reached is None:
        return float(arm.iterations[-1]), 1
    return reached, -1 if arm.losses[0] <= target and arm.iterations[0] > 0 else 0


def levels(curves: Sequence[Curve]) -> list[float]:
    """Return targets from easy to hard: quantiles of the smallest values so far of all curves.

    The value at iteration 0, before training, is left out where a curve has others.
    """
    lowest = [
        np.minimum.accumulate(np.asarray(curve.losses, float))[
            1 if len(curve.losses) > 1 and curve.iterations[0] == 0 else 0 :
        ]
        for curve in curves
    ]
    seen = np.unique(np.concatenate(lowest)) if lowest else np.empty(0)
    if len(seen) == 0:
        return []
    return [float(value) for value in np.quantile(seen, np.linspace(1, 0, min(LEVELS, len(seen))))]
