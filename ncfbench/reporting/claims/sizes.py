"""Claims on sizes: of strata, and of the number of negatives, by the order of their results."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ncfbench.catalog import SAMPLERS, find_sampler
from ncfbench.reporting.claims.case import BOTH, NOT_REPRODUCED, Case, Finding, recalls_of
from ncfbench.reporting.comparison import Comparison, arm_of
from ncfbench.reporting.verdicts import REPRODUCED, UNDECIDED
from ncfbench.runs.arms import Variant
from ncfbench.timing.seed_statistics import CONFIDENCE

LEAST_TREND = 4
"""A trend over three sizes has one order of six by chance, too many for 95 %."""


def more_negatives(case: Case) -> Finding | None:
    """Recall rises with k, by the chance of such an order. The baseline decides; where it has too
    few sizes, the first other sampler that has enough.
    """
    for sampler in dict.fromkeys((case.comparison.baseline_sampler, *SAMPLERS)):
        arms = _sizes(case.comparison, sampler, "negatives")
        recalls = {k: recalls_of(case.comparison, arm) for k, arm in arms.items()}
        values = {k: math.fsum(own) / len(own) for k, own in recalls.items() if own}
        if len(values) >= LEAST_TREND:
            listed = ", ".join(f"{value:.3f} (k={k})" for k, value in values.items())
            title = find_sampler(sampler).title
            return _trend(list(values.values()), f"recall@50 of {title}: {listed}")
    return None


def larger_strata(case: Case) -> Finding | None:
    """The smallest loss rises with s while a batch holds ever fewer items."""
    arms = _sizes(case.comparison, BOTH, "stratum_size")
    lowest, slots = [], []
    for arm in arms.values():
        runs = list(case.comparison.arms[arm].values())
        lowest.append(math.fsum(min(arm_of(run).losses) for run in runs) / len(runs))
        slots.append(math.fsum(run.summary["item_slots"] or 0.0 for run in runs) / len(runs))
    if len(arms) < LEAST_TREND:
        return None
    words = ", ".join(
        f"{loss:.3f} with {items:.0f} items (s={s})"
        for s, loss, items in zip(arms, lowest, slots, strict=True)
    )
    if any(later >= earlier for earlier, later in itertools.pairwise(slots)):
        return Finding(NOT_REPRODUCED, f"larger strata do not hold fewer items: {words}")
    return _trend(lowest, f"smallest loss {words}")


def _sizes(comparison: Comparison, sampler: str, setting: str) -> dict[int, Variant]:
    """Return a sampler's arms that differ in one setting alone, by its value, ascending."""
    usual = next((arm for arm in comparison.arms if arm.sampler == sampler), None)
    if usual is None:
        return {}

    def others(arm: Variant) -> dict[str, Any]:
        return asdict(arm) | {setting: None}

    groups: dict[str, dict[int, Variant]] = {}
    for arm in comparison.arms:
        if arm.sampler == sampler:
            groups.setdefault(repr(others(arm)), {})[getattr(arm, setting)] = arm
    largest = max(groups.values(), key=len)
    return dict(sorted(largest.items()))


def _trend(values: Sequence[float], evidence: str) -> Finding:
    """Return the finding that values rise, by a permutation test of their order."""
    pairs = list(itertools.combinations(values, 2))
    orders = falls_by_chance(values)
    rises, falls = (
        float(orders[: sum(opposite) + 1].sum())
        for opposite in (
            [earlier > later for earlier, later in pairs],
            [earlier < later for earlier, later in pairs],
        )
    )
    chance = 1 - CONFIDENCE
    verdict = REPRODUCED if rises <= chance else NOT_REPRODUCED if falls <= chance else UNDECIDED
    return Finding(verdict, f"{evidence}; p = {rises:.3f} by chance")


def falls_by_chance(values: Sequence[float]) -> NDArray[np.floating]:
    """Return the share of all orders of some values that have 0, 1, 2 and so on falling pairs.

    Exact, also where values are equal: the coefficients of the q-multinomial. That of rising pairs
    is the same. It is the distribution of Kendall's test.
    """
    ways: NDArray[np.floating] = np.ones(1)
    placed = 0
    for count in Counter(values).values():
        for own in range(1, count + 1):
            ways = np.polydiv(np.convolve(ways, np.ones(placed + own)), np.ones(own))[0]
        placed += count
    found: NDArray[np.floating] = ways / ways.sum()
    return found
