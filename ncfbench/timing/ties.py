"""Ties: the arms of a ranking that cannot be told from the best, from paired differences.

Arms are compared within a unit that they share: a seed, whose parameters and data they have in
common, or a user of one evaluation. What units have in common cancels. Pure: no clock, no file.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np

from ncfbench.timing.seed_statistics import (
    CONFIDENCE,
    NORMAL_QUANTILE,
    SEED_SPREAD,
    t_quantile,
)

ONE_SEED_FACTOR = math.exp(NORMAL_QUANTILE * math.sqrt(2) * SEED_SPREAD)
"""Two arms with one seed each cannot be told apart if their times differ by less than this."""
Name = TypeVar("Name", bound=Hashable)


@dataclass(frozen=True)
class Difference:
    """Mean paired difference of two arms, its standard error, and the error's degrees of
    freedom.
    """

    value: float
    error: float
    degrees: int

    def is_above(self, errors: float) -> bool:
        """Return whether the difference is larger than a number of standard errors."""
        return self.value > errors * self.error

    def is_real(self, comparisons: int = 1) -> bool:
        """Return whether the first arm is above the second, at 95 % over all of some comparisons
        (Student's t, one-sided, Bonferroni).
        """
        return self.is_above(t_quantile(self.degrees, 1 - (1 - CONFIDENCE) / comparisons))


def paired(first: Sequence[float], second: Sequence[float]) -> Difference | None:
    """Return the difference of two arms over common units; None of a single unit, whose noise
    nothing shows.

    Args:
        first, second: one value of each unit, in the same order.
    """
    apart = np.asarray(first, float) - np.asarray(second, float)
    if len(apart) < 2:
        return None
    error = float(np.std(apart, ddof=1)) / math.sqrt(len(apart))
    return Difference(float(np.mean(apart)), error, len(apart) - 1)


@dataclass(frozen=True)
class Standings(Generic[Name]):
    """Arms from the best to the worst, and what is known of their order.

    Attributes:
        order: all arms, the best first.
        tied: the best, and those that cannot be told from it. Where differences have the assumed
            distribution, the arm that is truly the best is among them in at least 95 of 100
            rankings.
        unknown: arms that have no difference from the best, such as with one seed.
        differences: of the best from each other arm, where there is one.
    """

    order: tuple[Name, ...]
    tied: tuple[Name, ...]
    unknown: tuple[Name, ...]
    differences: Mapping[Name, Difference]

    @property
    def best(self) -> Name:
        """The arm of the largest mean."""
        return self.order[0]

    @property
    def is_certain(self) -> bool:
        """True if every other arm is known to be worse than the best."""
        return len(self.tied) == 1 and not self.unknown


def rank(
    means: Mapping[Name, float], differ: Callable[[Name, Name], Difference | None]
) -> Standings[Name]:
    """Rank arms by their means, the largest first, and find those that are tied with the best.

    An arm is worse than the best if the paired difference is above zero at 95 % over all
    comparisons with the best (:meth:`Difference.is_real`). The best is chosen by its own value, and
    without that correction the truly best arm would be left out too often.

    Args:
        means: of each arm; at least one.
        differ: returns how much one arm is above another.
    """
    order = tuple(sorted(means, key=lambda name: -means[name]))
    best, others = order[0], order[1:]
    found = {name: differ(best, name) for name in others}
    known = {name: one for name, one in found.items() if one is not None}
    tied = [name for name, one in known.items() if not one.is_real(len(others))]
    unknown = tuple(name for name in others if name not in known)
    return Standings(order, (best, *tied), unknown, known)


def rank_over_units(values: Mapping[Name, Mapping[int, float]]) -> Standings[Name]:
    """Rank arms by one value of each unit (:func:`rank`), the largest first.

    Two arms are compared over the units that both have; arms without a second common unit are
    unknown. Give logarithms of times with their sign changed, so that differences are ratios.

    Args:
        values: by arm, then by unit, such as a seed; each arm has at least one.
    """

    def differ(first: Name, second: Name) -> Difference | None:
        own, other = values[first], values[second]
        common = [unit for unit in own if unit in other]
        return paired([own[unit] for unit in common], [other[unit] for unit in common])

    means = {name: math.fsum(own.values()) / len(own) for name, own in values.items()}
    return rank(means, differ)


def tied_ratios(logs: Mapping[Name, Mapping[int, float]]) -> tuple[Name, set[Name], bool]:
    """Return the arm of the largest ratio, those tied with it, and whether all ties are known.

    With two common seeds or more, paired differences decide (:func:`rank_over_units`); with fewer,
    ratios are tied that are nearer than :data:`ONE_SEED_FACTOR`.

    Args:
        logs: logarithms of ratios of times, by arm and seed; each arm has at least one.
    """
    ranking = rank_over_units(logs)
    means = {name: math.fsum(own.values()) / len(own) for name, own in logs.items()}
    near = [
        name
        for name in ranking.unknown
        if means[ranking.best] - means[name] < math.log(ONE_SEED_FACTOR)
    ]
    return ranking.best, {*ranking.tied, *near}, not ranking.unknown


def most_wins(
    names: Sequence[Name],
    ahead: Callable[[Name, Name], float | None],
    level: Callable[[Name], float],
) -> Name:
    """Return the arm that is ahead of most others; of equal ones that of the lowest level.

    Args:
        ahead: returns a number above 0 where the first arm is sooner; None where nothing tells.
    """

    def wins(name: Name) -> int:
        found = (ahead(name, other) for other in names if other != name)
        return sum(each is not None and each > 0 for each in found)

    return max(names, key=lambda name: (wins(name), -level(name)))
