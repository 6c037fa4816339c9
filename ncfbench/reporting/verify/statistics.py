"""Means and intervals over seeds: the second computation's own. NaN stands for what is missing."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri, stdtrit

Floats: TypeAlias = NDArray[np.float64]
COUNTED_SEEDS = 6
"""Up to here all n^n resamples are counted one by one; beyond they are drawn."""


def mean(values: Iterable[float | None]) -> float:
    """Return the mean of one value or more; NaN where one is missing."""
    return float(np.mean(np.array([*values], float)))


def t_interval(values: Floats) -> tuple[float, float]:
    """Return the 95 % interval of a mean by Student's t."""
    half = stdtrit(len(values) - 1, 0.975) * np.std(values, ddof=1) / math.sqrt(len(values))
    return float(np.mean(values) - half), float(np.mean(values) + half)


def ratio_interval(ratios: Floats) -> tuple[float, float]:
    """Return the 95 % interval of a geometric mean by the bootstrap: between the 2.5 and the 97.5 %
    point of a resample's mean logarithm, stretched by t sqrt(n / (n - 1)) / 1.96 about the centre.
    """
    logs, n = np.log(ratios), len(ratios)
    if np.isnan(logs).any():
        return math.nan, math.nan
    resamples = (
        np.array(list(itertools.product(logs, repeat=n)))
        if n <= COUNTED_SEEDS
        else np.random.default_rng(1).choice(logs, (20_000, n))
    )
    ends = np.quantile(resamples.mean(axis=1), (0.025, 0.975), method="inverted_cdf")
    stretch = stdtrit(n - 1, 0.975) * math.sqrt(n / (n - 1)) / ndtri(0.975)
    low, high = np.exp(logs.mean() + stretch * (ends - logs.mean())).tolist()
    return low, high


def is_worse(apart: Floats, comparisons: int) -> bool:
    """Return whether paired differences from the best are above zero: a one-sided t test at 5 %
    over some comparisons; of one pair, more than chance where logarithms of times vary by a tenth.
    """
    n = len(apart)
    if n == 1:
        return bool(apart[0] >= ndtri(0.975) * math.sqrt(2) * 0.1)
    quantile = stdtrit(n - 1, 1 - 0.05 / comparisons)
    return bool(apart.mean() > quantile * apart.std(ddof=1) / math.sqrt(n))
