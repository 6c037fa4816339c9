"""Means and intervals of a few seeds, in plain Python: the second computation's own statistics."""

from __future__ import annotations

import functools
import itertools
import math
import random
import statistics
from collections.abc import Sequence

COUNTED_SEEDS = 6
"""Up to here all n^n resamples are counted one by one; beyond they are drawn."""


def mean_of(values: Sequence[float | None]) -> float | None:
    """Return the mean; None where a value is missing."""
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if len(known) == len(values) else None


def geometric_mean(values: Sequence[float | None]) -> float | None:
    """Return the geometric mean; None where a value is missing."""
    known = [value for value in values if value is not None]
    return math.prod(known) ** (1 / len(known)) if known and len(known) == len(values) else None


def t_interval(values: Sequence[float]) -> tuple[float, float]:
    """Return the 95 % interval of a mean by Student's t."""
    centre = statistics.fmean(values)
    half = _t(len(values) - 1) * statistics.stdev(values) / math.sqrt(len(values))
    return centre - half, centre + half


@functools.cache
def bootstrap_interval(logs: tuple[float, ...]) -> tuple[float, float]:
    """Return the 95 % interval of a geometric mean by the bootstrap.

    It lies between the 2.5 and the 97.5 % point of a resample's mean, stretched about the centre by
    t sqrt(n / (n - 1)) / 1.96.

    Args:
        logs: logarithms of the values.
    """
    n = len(logs)
    if n <= COUNTED_SEEDS:
        means = sorted(math.fsum(choice) / n for choice in itertools.product(logs, repeat=n))
    else:
        draw = random.Random(1)
        means = sorted(math.fsum(draw.choices(logs, k=n)) / n for _ in range(20_000))
    centre = math.fsum(logs) / n
    stretch = _t(n - 1) * math.sqrt(n / (n - 1)) / statistics.NormalDist().inv_cdf(0.975)
    ends = [means[math.ceil(share * len(means)) - 1] for share in (0.025, 0.975)]
    return math.exp(centre + stretch * (ends[0] - centre)), math.exp(
        centre + stretch * (ends[1] - centre)
    )


@functools.cache
def _t(degrees: int) -> float:
    """Return the 97.5 % point of Student's t by Simpson's rule over the density and bisection."""
    scale = math.gamma((degrees + 1) / 2) / (math.sqrt(degrees * math.pi) * math.gamma(degrees / 2))

    def below(t: float) -> float:
        # With x = tan(angle) sqrt(degrees) the density becomes a power of a cosine on a bounded
        # interval.
        end, steps = math.atan(t / math.sqrt(degrees)), 400
        heights = [math.cos(end * step / steps) ** (degrees - 1) for step in range(steps + 1)]
        total = heights[0] + heights[-1] + 4 * sum(heights[1:-1:2]) + 2 * sum(heights[2:-1:2])
        return 0.5 + scale * math.sqrt(degrees) * total * end / steps / 3

    low, high = 0.0, 20.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if below(middle) < 0.975 else (low, middle)
    return (low + high) / 2
