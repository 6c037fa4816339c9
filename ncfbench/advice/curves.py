"""Curves of a race: chance, and how much sooner one entrant comes down to a loss.

Within a seed two entrants share parameters and data. The ratio of their times is taken at the
latest level that both have reached (:func:`ncfbench.reporting.frames.latest_common_level`). Nothing
is extrapolated, and what happened at easier levels does not count.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from ncfbench.data import Dataset
from ncfbench.data.content import Split
from ncfbench.reporting.frames import latest_common_level
from ncfbench.reporting.ranked import Ratio, above_chance_at
from ncfbench.reporting.ranked import Runs as Runs
from ncfbench.reporting.ranked import curve_of as curve_of
from ncfbench.runs.folder import RunRecord
from ncfbench.runs.quality import COMPARED
from ncfbench.timing.curves import Curve
from ncfbench.timing.ranking import most_wins


def chance(dataset: Dataset, split: Split) -> float:
    """Return the expected recall@50 of a random order of the items that are ranked for a split's
    links, on average over users.
    """
    n_ranked = np.full(1, len(dataset.candidates(split)))
    if dataset.ranks_known_items:
        n_ranked = n_ranked - dataset.graph.user_degrees[np.unique(dataset.links(split)[0])]
    return float(np.mean(np.minimum(COMPARED / np.maximum(n_ranked, 1), 1.0)))


def learned_at(record: RunRecord, dataset: Dataset) -> float | None:
    """Return :func:`ncfbench.reporting.ranked.above_chance_at`, on validation links if there are
    any.
    """
    split: Split = "validation" if dataset.holds_out("validation") else "test"
    return above_chance_at(record, split, chance(dataset, split))


def times_sooner(one: Runs, other: Runs) -> Ratio | None:
    """Return how many times sooner one entrant reaches the latest common level than the other.

    None where no seed has a level that both reached after the start.
    """
    logs = []
    for own, theirs in _pairs(one, other):
        level = latest_common_level(own, theirs)
        time, their_time = own.time_to(level), theirs.time_to(level)
        if time and their_time:
            logs.append(math.log(their_time / time))
    return one.ratio(other, logs)


def is_ahead(one: Runs, other: Runs) -> bool:
    """Return whether one entrant can be told to be sooner than another.

    Not so if :func:`times_sooner` ties, unless the other one has stood still since: its whole clock
    counts as the time to come below its level, and it must be longer than what one took by more
    than a tie allows, in all seeds together.
    """
    ratio = times_sooner(one, other)
    if ratio is not None and not ratio.is_tie:
        return ratio.value > 1
    logs = []
    for own, theirs in _pairs(one, other):
        passed = own.time_to(theirs.level)
        if own.level < theirs.level and passed:
            logs.append(math.log(theirs.clock / passed))
    found = one.ratio(other, logs)
    return found is not None and found.lower > 1


def best_of(entrants: Mapping[str, Runs]) -> str | None:
    """Return the name of the entrant that is sooner than most others; of equal ones the lowest.

    None where there is none.
    """

    def ahead(name: str, other: str) -> float | None:
        ratio = times_sooner(entrants[name], entrants[other])
        return None if ratio is None else math.log(ratio.value)

    def level(name: str) -> float:
        return min(curve.level for curve in entrants[name].curves.values())

    return most_wins(list(entrants), ahead, level) if entrants else None


def _pairs(one: Runs, other: Runs) -> list[tuple[Curve, Curve]]:
    common = sorted(one.curves.keys() & other.curves.keys())
    return [(one.curves[seed], other.curves[seed]) for seed in common]
