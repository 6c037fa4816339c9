"""Interval methods, all of 95 %. Pure NumPy and SciPy: no clock, no file.

==============================  ================================  =================================
function                        method                            applies to
==============================  ================================  =================================
:func:`mean`                    Student's t                       one value a seed, about normal:
                                                                  recall
:func:`geometric`               Student's t of the logarithms     one ratio a seed: speedups
:func:`product`                 errors of logarithms added in     independent ratios: of runs, and
                                quadrature                        of a profile
:func:`with_assumed_spread`     t, with an assumed spread         ratios of one or two seeds: a race
:func:`paired`                  t of paired differences,          arms and the best of them, over
                                Bonferroni                        common seeds
:func:`crossed`                 variances over users and over     recalls of two models, where only
                                items added                       one seed is common
:func:`ratio_of_medians`        bootstrap of rounds               seconds of two programs that took
                                                                  turns
:func:`jackknife_error`,        jackknife, t, Bonferroni          biases of mean gradients
:func:`family_quantile`
==============================  ================================  =================================

The seed is the unit of results: an arm and its baseline of one seed share parameters and data, so
their ratio is taken within the seed before seeds are combined.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = Sequence[float] | NDArray[np.floating]

CONFIDENCE = 0.95
FAMILY_ERROR = 0.05
"""Probability of one error or more among all of some comparisons."""


class Spread(NamedTuple):
    """How much the times differ at which seeds of one arm reach a level.

    Attributes:
        deviation: standard deviation of their logarithms.
        degrees: of freedom.
    """

    deviation: float
    degrees: int

    @property
    def text(self) -> str:
        """The assumption in words."""
        deviation = f"{100 * math.expm1(self.deviation):.0f} %"
        return (
            f"times of seeds have a standard deviation of {deviation}: with one seed each, arms"
            f" within a factor of {self.factor:.1f} cannot be told apart"
        )

    @property
    def factor(self) -> float:
        """Two arms with one seed each cannot be told apart if their times differ by less."""
        return math.exp(t_quantile(self.degrees) * math.sqrt(2) * self.deviation)


LOSS_SPREAD = Spread(0.1, 8)
"""Assumed of times to a loss, as if it had been measured."""
QUALITY_SPREAD = Spread(0.28, 4)
"""Assumed of times to a recall, or another measure of ranking. It differs between data sets
by a factor of five, so that it is known to few degrees (benchmarks/seed_spread.py).
"""


@dataclass(frozen=True)
class Estimate:
    """A value over seeds, and its 95 % interval; None with a single seed."""

    value: float
    lower: float | None
    upper: float | None
    seeds: int


@dataclass(frozen=True)
class Difference:
    """Mean paired difference of two arms, its standard error, and the error's degrees of
    freedom.
    """

    value: float
    error: float
    degrees: int

    @property
    def half_width(self) -> float:
        """Distance of the interval's ends from the value."""
        return t_quantile(self.degrees) * self.error

    def is_real(self, comparisons: int = 1) -> bool:
        """Return whether the first arm is above the second, over all of some comparisons."""
        return self.value > family_quantile(self.degrees, comparisons, sides=1) * self.error


def interval_columns(name: str, estimate: Estimate | None) -> dict[str, float | None]:
    """Return the three columns of an estimate: its value, and the ends of its interval."""
    value, lower, upper = (
        (None, None, None) if estimate is None else (estimate.value, estimate.lower, estimate.upper)
    )
    return {name: value, f"{name}_lower": lower, f"{name}_upper": upper}


def estimate_of(row: Mapping[str, Any], name: str) -> Estimate | None:
    """Return the estimate of three columns of a row over seeds; None where it has none."""
    if row.get(name) is None:
        return None
    return Estimate(row[name], row[f"{name}_lower"], row[f"{name}_upper"], row["seeds"])


def t_quantile(degrees: int, probability: float = (1 + CONFIDENCE) / 2) -> float:
    """Return a quantile of Student's t, the 97.5 % point by default."""
    from scipy.special import stdtrit  # the import takes 0.2 s, which most commands can save

    return float(stdtrit(degrees, probability))


def family_quantile(degrees: int, comparisons: int, sides: int = 2) -> float:
    """Return Student's quantile beyond which none of some comparisons comes by chance, at 95 % over
    all of them (Bonferroni).
    """
    return t_quantile(degrees, 1 - FAMILY_ERROR / (sides * comparisons))


def mean(values: Sequence[float]) -> Estimate:
    """Return the mean of one value per seed, with Student's t interval.

    Args:
        values: at least one.
    """
    n, centre = len(values), math.fsum(values) / len(values)
    if n == 1:
        return Estimate(centre, None, None, 1)
    half = t_quantile(n - 1) * float(np.std(values, ddof=1)) / math.sqrt(n)
    return Estimate(centre, centre - half, centre + half, n)


def geometric(ratios: Sequence[float]) -> Estimate:
    """Return the geometric mean of one ratio per seed, with Student's t interval of the logarithms.

    Args:
        ratios: at least one, all above 0.
    """
    logs = mean([math.log(ratio) for ratio in ratios])
    lower, upper = (None if end is None else math.exp(end) for end in (logs.lower, logs.upper))
    return Estimate(math.exp(logs.value), lower, upper, logs.seeds)


def product(first: Estimate, second: Estimate) -> Estimate:
    """Return the product of two independent ratios; of the first's seeds.

    There is no interval where one factor has none.
    """
    value = first.value * second.value
    ends = first.lower, first.upper, second.lower, second.upper
    if None in ends:
        return Estimate(value, None, None, first.seeds)
    apart = [
        math.log(end / factor.value)
        for end, factor in zip(ends, (first, first, second, second), strict=True)
        if end is not None
    ]
    below, above = math.hypot(apart[0], apart[2]), math.hypot(apart[1], apart[3])
    return Estimate(value, value * math.exp(-below), value * math.exp(above), first.seeds)


def quotient(first: Estimate, second: Estimate) -> Estimate:
    """Return the quotient of two independent ratios; see :func:`product`."""
    lower, upper = (None if end is None else 1 / end for end in (second.upper, second.lower))
    return product(first, Estimate(1 / second.value, lower, upper, second.seeds))


def with_assumed_spread(logs: Sequence[float], noises: Sequence[float], spread: Spread) -> Estimate:
    """Return the ratio of two arms' times from its logarithm in each seed.

    Args:
        spread: of seeds, assumed for each arm: one seed or two cannot show their own.
        noises: standard errors of logarithms that all seeds share: the noise of the machine.
    """
    n, centre = len(logs), math.fsum(logs) / len(logs)
    squares = math.fsum((value - centre) ** 2 for value in logs)
    degrees = spread.degrees + n - 1
    variance = (spread.degrees * 2 * spread.deviation**2 + squares) / degrees
    half = t_quantile(degrees) * math.sqrt(variance / n + math.fsum(noise**2 for noise in noises))
    return Estimate(math.exp(centre), math.exp(centre - half), math.exp(centre + half), n)


def standard_error(values: Floats) -> float | None:
    """Return the standard error of the mean of independent values; None of a single one."""
    if len(values) < 2:
        return None
    return float(np.std(values, ddof=1) / np.sqrt(len(values)))


def paired(first: Sequence[float], second: Sequence[float]) -> Difference | None:
    """Return the difference of two arms over common seeds; None of a single one, whose noise
    nothing shows.

    Args:
        first, second: one value of each seed, in the same order.
    """
    apart = np.asarray(first, float) - np.asarray(second, float)
    error = standard_error(apart)
    return None if error is None else Difference(float(np.mean(apart)), error, len(apart) - 1)


def crossed(by_user: NDArray[np.float64], by_item: NDArray[np.float64]) -> Difference | None:
    """Return a mean difference over users and items that are crossed, with the error of both.

    The error adds the variances that come of users and of items as if each were drawn anew, which
    counts what belongs to single links twice, so it is rather too large than too small (the
    pigeonhole bootstrap, Owen 2007).

    Args:
        by_user: float64[users], the difference of each user.
        by_item: float64[items], what each item that has a link adds to the mean difference.

    Returns:
        None where there is only one user or one item, which shows no error.
    """
    of_users, n_items = standard_error(by_user), len(by_item)
    if of_users is None or n_items < 2:
        return None
    # Not centred: under no difference the mean is 0, and else the error is somewhat too large.
    of_items = n_items / (n_items - 1) * float(np.sum(np.square(by_item)))
    error = math.sqrt(of_users**2 + of_items)
    return Difference(float(np.mean(by_user)), error, min(len(by_user), n_items) - 1)


def ratio_of_medians(baseline: Floats, candidate: Floats) -> tuple[float, float, float]:
    """Return the median of the baseline's seconds over the candidate's, and its interval.

    Medians of each arm instead of ratios of each round, because disturbances only slow a machine
    down and rarely hit both arms of a round. Resamples keep both arms of a round together.

    Args:
        baseline, candidate: seconds of the same rounds of an interleaved measurement; with fewer
            than ten rounds the interval is somewhat too narrow.
    """
    both = np.array([baseline, candidate], float)
    rounds = np.random.default_rng(0).integers(0, both.shape[1], (4000, both.shape[1]))
    medians = np.median(both[:, rounds], axis=2)
    lower, upper = np.quantile(medians[0] / medians[1], [0.025, 0.975])
    return float(np.median(both[0]) / np.median(both[1])), float(lower), float(upper)


def jackknife_error(without: NDArray[np.float64]) -> float:
    """Return the standard error of a statistic from its values without each of n blocks."""
    n = len(without)
    return math.sqrt((n - 1) / n * float(np.sum((without - without.mean()) ** 2)))
