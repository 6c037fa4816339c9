"""Rankings: the best arm, and those that are tied with it by paired differences.

Arms are compared within a unit that they share: a seed, whose parameters and data they have in
common, or a user of one evaluation. What units have in common cancels.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping
from typing import Generic, NamedTuple, TypeVar

from ncfbench.statistics.intervals import LOSS_SPREAD, Difference, paired

SHARE = 0.95
"""Share of the best quality; the time to it decides between arms that end near the best one."""
NEAR = 0.995
"""Share of the best quality from which on an arm ends near the best one."""
Name = TypeVar("Name", bound=Hashable)


class Ranking(NamedTuple, Generic[Name]):
    """The best of some arms, and what is known of the others.

    Attributes:
        best: the arm of the largest mean.
        tied: the best, and those that are tied with it. Where differences have the assumed
            distribution, the arm that is truly the best is among them in at least 95 of 100
            rankings.
        unknown: arms that have no difference from the best, such as with one seed.
    """

    best: Name
    tied: set[Name]
    unknown: set[Name]


def rank(
    means: Mapping[Name, float], differ: Callable[[Name, Name], Difference | None]
) -> Ranking[Name]:
    """Find the arm of the largest mean, and those that are tied with it.

    An arm is worse than the best if the paired difference is above zero at 95 % over all
    comparisons with the best (:meth:`Difference.is_real`). The best is chosen by its own value, and
    without that correction the truly best arm would be left out too often.

    Args:
        means: of each arm; at least one.
        differ: returns how much one arm is above another.
    """
    best = max(means, key=lambda name: means[name])
    ranking = Ranking(best, {best}, set())
    for name in means:
        apart = None if name == best else differ(best, name)
        if name != best and apart is None:
            ranking.unknown.add(name)
        elif apart is not None and not apart.is_real(len(means) - 1):
            ranking.tied.add(name)
    return ranking


def tied_ratios(logs: Mapping[Name, Mapping[int, float]]) -> Ranking[Name]:
    """Rank arms by the mean logarithm of a ratio of times, over the seeds that two of them share.

    With one common seed, or none, arms are unknown; those that are less than the factor of
    :data:`LOSS_SPREAD` behind the best there (without one: by their means) are tied.

    Args:
        logs: logarithms by arm and seed; each arm has at least one.
    """

    def on_common(first: Name, second: Name) -> list[list[float]]:
        seeds = [seed for seed in logs[first] if seed in logs[second]]
        return [[logs[name][seed] for seed in seeds] for name in (first, second)]

    def differ(first: Name, second: Name) -> Difference | None:
        return paired(*on_common(first, second))

    def behind(name: Name) -> float:
        of_best, of_arm = on_common(ranking.best, name)
        return of_best[0] - of_arm[0] if of_arm else means[ranking.best] - means[name]

    means = {name: math.fsum(by_seed.values()) / len(by_seed) for name, by_seed in logs.items()}
    ranking = rank(means, differ)
    ranking.tied.update(
        name for name in ranking.unknown if behind(name) < math.log(LOSS_SPREAD.factor)
    )
    return ranking


def soonest(tops: Mapping[Name, float], seconds: Mapping[Name, float]) -> Name:
    """Return the soonest of the arms whose quality is within :data:`NEAR` of the best; of equal
    ones the best.

    Args:
        tops: the best quality of each arm, one arm at least.
        seconds: of each to :data:`SHARE` of the best quality of all.
    """
    near = [name for name in tops if tops[name] >= NEAR * max(tops.values())]
    return min(near, key=lambda name: (seconds[name], -tops[name]))
