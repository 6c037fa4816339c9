"""Statistics over seeds: means and ratios with 95 % intervals, and runs censored before a target.

The seed is the unit: an arm and its baseline of one seed share parameters and data, so their ratio
is taken within the seed before seeds are combined. Pure NumPy: no clock, no file.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ncfbench.timing.statistics import Arm, compare, geometric_mean, iterations_to

CONFIDENCE = 0.95
NORMAL_QUANTILE = 1.959963984540054
"""The normal distribution's quantile of (1 + CONFIDENCE) / 2."""
EXACT_SEEDS = 8
"""Up to this many seeds all resamples count (6,435 for eight); beyond, RESAMPLES are drawn."""
RESAMPLES = 20_000
SEED_SPREAD = 0.1
"""Standard deviation of the logarithm of the time at which one seed of an arm reaches a loss.

CiteULike, CNN, skip-gram, three seeds: 0.05 to 0.1 by arm.
"""
LEVELS = 40
"""Number of targets of a sensitivity curve."""


@dataclass(frozen=True)
class Estimate:
    """A value over seeds, and its 95 % interval; None with a single seed."""

    value: float
    lower: float | None
    upper: float | None
    seeds: int


def mean(values: Sequence[float]) -> Estimate:
    """Return the mean of one value per seed, with Student's t interval; for recall, which is about
    normal over seeds.

    Args:
        values: at least one.
    """
    n, centre = len(values), math.fsum(values) / len(values)
    if n == 1:
        return Estimate(centre, None, None, 1)
    half = t_quantile(n - 1) * float(np.std(values, ddof=1)) / math.sqrt(n)
    return Estimate(centre, centre - half, centre + half, n)


def geometric(ratios: Sequence[float]) -> Estimate:
    """Return the geometric mean of one ratio per seed, with a bootstrap interval over seeds.

    The interval's ends are the 2.5 and 97.5 % points of the resampled mean logarithm, with their
    distance from the centre stretched by t sqrt(n / (n - 1)) / 1.96. Without the stretch, a
    bootstrap of three seeds covers the true ratio only 3 times in 4; with it, 93 to 95 times in 100
    from two seeds on, for log-normal ratios (``tests/timing/test_seeds.py`` simulates it).

    All quantities of the same number of seeds share their resamples, which keeps the correlation
    between arm and baseline and between the factors of a product.

    Args:
        ratios: at least one, all above 0.
    """
    logs = np.log(np.asarray(ratios, float))
    n, centre = len(logs), float(np.mean(logs))
    if n == 1:
        return Estimate(math.exp(centre), None, None, 1)
    shares_RxN, probability_R = _resamples(n)
    means_R = shares_RxN @ logs
    order = np.argsort(means_R, kind="stable")
    reached = np.cumsum(probability_R[order])
    tail = (1 - CONFIDENCE) / 2
    low, high = (
        float(means_R[order[np.searchsorted(reached, share - 1e-12)]]) for share in (tail, 1 - tail)
    )
    stretch = t_quantile(n - 1) * math.sqrt(n / (n - 1)) / NORMAL_QUANTILE
    return Estimate(
        math.exp(centre),
        math.exp(centre + stretch * (low - centre)),
        math.exp(centre + stretch * (high - centre)),
        n,
    )


def product(one: Estimate, other: Estimate) -> Estimate:
    """Return the product of two independent ratios; of the first's seeds.

    The distances of the interval's ends from the centre, in logarithms, add up as errors do. There
    is no interval where one factor has none.
    """
    value = one.value * other.value
    if one.lower is None or one.upper is None or other.lower is None or other.upper is None:
        return Estimate(value, None, None, one.seeds)
    below = math.hypot(math.log(one.lower / one.value), math.log(other.lower / other.value))
    above = math.hypot(math.log(one.upper / one.value), math.log(other.upper / other.value))
    return Estimate(value, value * math.exp(-below), value * math.exp(above), one.seeds)


def quotient(one: Estimate, other: Estimate) -> Estimate:
    """Return the quotient of two independent ratios; see :func:`product`."""
    lower, upper = (None if end is None else 1 / end for end in (other.upper, other.lower))
    return product(one, Estimate(1 / other.value, lower, upper, other.seeds))


def t_quantile(degrees: int, probability: float = (1 + CONFIDENCE) / 2) -> float:
    """Return a quantile of Student's t, the 97.5 % point by default."""
    from scipy.special import stdtrit  # the import takes 0.2 s, which most commands can save

    return float(stdtrit(degrees, probability))


@functools.cache
def _resamples(n: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the share of each of n seeds in each resample with replacement (R x N), and the
    resamples' probabilities (R).
    """
    if n > EXACT_SEEDS:
        counts = np.random.default_rng(0).multinomial(n, np.full(n, 1 / n), RESAMPLES)
        return counts / n, np.full(RESAMPLES, 1 / RESAMPLES)
    chosen = np.array(list(itertools.combinations_with_replacement(range(n), n)))
    counts = (chosen[:, :, None] == np.arange(n)).sum(axis=1)
    ways = [
        math.factorial(n) / math.prod(math.factorial(int(count)) for count in row) for row in counts
    ]
    return counts / n, np.array(ways) / float(n) ** n


@dataclass(frozen=True)
class AtTarget:
    """Speedup of an arm over its baseline at a target, over seeds; above 1 is faster.

    ``iterations`` and ``total`` are None if some seed is censored: its ratio is then only bounded.
    It is bounded from above (``at_most``) where the arm never reached the target, so it needs more
    than its last iteration, or where the baseline had reached it at its first evaluation, perhaps
    before. It is bounded from below (``at_least``) in the opposite cases. ``*_at_most`` and
    ``*_at_least`` are geometric means that use the bounds of these seeds, if all are of one kind.
    """

    seeds: int
    reached: int
    """Seeds whose arm reached the target."""
    baseline_reached: int
    iterations: Estimate | None = None
    total: Estimate | None = None
    iterations_at_most: float | None = None
    iterations_at_least: float | None = None
    total_at_most: float | None = None
    total_at_least: float | None = None


def speedup_at(targets: Sequence[float], pairs: Sequence[tuple[Arm, Arm]]) -> AtTarget:
    """Return the speedup of an arm over its baseline at a target of each seed.

    The total is the product of the two ratios within a seed (table 3 of the paper).

    Args:
        targets: a loss for each seed, to be reached from above.
        pairs: arm and baseline of each seed, in the same order.
    """
    ratios: list[float] = []
    own_reached, base_reached = 0, 0
    sides: set[int] = set()
    for target, (arm, base) in zip(targets, pairs, strict=True):
        (own, own_side), (theirs, their_side) = (_arrival(target, one) for one in (arm, base))
        own_reached += own_side <= 0
        base_reached += their_side <= 0
        # A censored baseline makes the true ratio larger, a censored arm smaller; where both are
        # censored alike it is unknown.
        sides |= {their_side, -own_side} - {0}
        # There is no ratio at a target that one of them had from the start.
        if own > 0 and theirs > 0:
            ratios.append(theirs / own)
    counts = (len(pairs), own_reached, base_reached)
    if len(ratios) < len(pairs) or len(sides) > 1:
        return AtTarget(*counts)
    totals = [
        ratio * base.full_iteration_seconds / arm.full_iteration_seconds
        for ratio, (arm, base) in zip(ratios, pairs, strict=True)
    ]
    if not sides:
        return AtTarget(*counts, iterations=geometric(ratios), total=geometric(totals))
    bounds = geometric_mean(ratios), geometric_mean(totals)
    if sides == {-1}:
        return AtTarget(*counts, iterations_at_most=bounds[0], total_at_most=bounds[1])
    return AtTarget(*counts, iterations_at_least=bounds[0], total_at_least=bounds[1])


def _arrival(target: float, arm: Arm) -> tuple[float, int]:
    """Return the iterations until a target, and how they are censored: 1, it took more than these;
    -1, it took no more than these; else 0.

    It took more if the target was never reached. It took no more if the first evaluation had
    reached it and was not the one before training: recall is first measured after an epoch.
    """
    reached = iterations_to(target, arm.iterations, arm.losses)
    if reached is None:
        return float(arm.iterations[-1]), 1
    return reached, -1 if arm.losses[0] <= target and arm.iterations[0] > 0 else 0


@dataclass(frozen=True)
class SeedSpeedup:
    """The paper's three speedups over seeds, each seed with its own reference loss."""

    reference_losses: tuple[float, ...]
    """Smallest probe of each seed's baseline."""
    iterations_to_reference: tuple[float | None, ...]
    per_iteration: Estimate
    step_per_iteration: Estimate | None
    at_reference: AtTarget


def over_seeds(pairs: Sequence[tuple[Arm, Arm]]) -> SeedSpeedup:
    """Compare arm and baseline within each seed (:func:`ncfbench.timing.statistics.compare`), and
    combine the seeds.
    """
    single = [compare(arm, base) for arm, base in pairs]
    references = tuple(result.reference_loss for result in single)
    steps = [
        result.step_per_iteration for result in single if result.step_per_iteration is not None
    ]
    return SeedSpeedup(
        reference_losses=references,
        iterations_to_reference=tuple(result.iterations_to_reference for result in single),
        per_iteration=geometric([result.per_iteration for result in single]),
        step_per_iteration=geometric(steps) if len(steps) == len(single) else None,
        at_reference=speedup_at(references, pairs),
    )


def levels(arms: Sequence[Arm]) -> list[float]:
    """Return targets from easy to hard: quantiles of the smallest values so far of all curves.

    The value at iteration 0, before training, is left out where a curve has others.
    """
    lowest = [
        np.minimum.accumulate(np.asarray(arm.losses, float))[
            1 if len(arm.losses) > 1 and arm.iterations[0] == 0 else 0 :
        ]
        for arm in arms
    ]
    seen = np.unique(np.concatenate(lowest)) if lowest else np.empty(0)
    if len(seen) == 0:
        return []
    return [float(value) for value in np.quantile(seen, np.linspace(1, 0, min(LEVELS, len(seen))))]
