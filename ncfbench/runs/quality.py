"""Ranking quality of held-out items: recall@M, NDCG@M and MRR, with errors and chance levels.

All held-out items of a split are ranked for each user who has one: *cold* items, which training
never saw. A user's relevant items are those of his held-out links, all equally relevant; with n of
them, at ranks r = 1, 2, ... of N items,

- recall@M = (relevant items with r <= M) / n, also where n > M;
- NDCG@M = DCG / IDCG, where DCG is the sum of 1 / log2(r + 1) over the relevant items with r <= M,
  and IDCG its largest possible value, the sum over the first min(n, M) ranks (Järvelin and
  Kekäläinen 2002, with binary gains);
- MRR = 1 / r of the user's best relevant item, with no cutoff (Voorhees 1999).

Each figure is the mean over users, of equal weight.

*Standard error.* That of the mean over U users, s / sqrt(U) with s the sample standard deviation.
The mean of a bootstrap resample of the users has a variance of exactly (U - 1) / U times its
square, so the closed form needs no resamples. Users share items: the error of recall@50 over items
stands beside it, since few items make all users err alike.

*Chance* is the exact expectation under a random order of the items, from N and the numbers n alone.
Recall@M with M >= N has a chance of 1: it is 1 by construction, and no result.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ncfbench.storage.schemas import CUTOFFS
from ncfbench.timing.intervals import Difference, crossed, standard_error

COMPARED = 50
"""M of the recall that chooses epochs and compares runs."""
CERTAIN = (
    f"recall@{COMPARED} is 1 by construction: there are at most {COMPARED} test items. Prepare the"
    " data with a larger test fraction."
)
"""Note beside a recall whose chance is 1."""
NEGLIGIBLE = 40.0
"""The chance of MRR is summed until the probability of a later rank is below e^-40."""


@dataclass(frozen=True)
class Evaluation:
    """Quality of one split at one iteration.

    Attributes:
        figures: values of :data:`ncfbench.storage.schemas.QUALITY`; an error is None where one user
            or one item cannot give any.
        user_recalls: float32[users], recall@50 of each user with a held-out item, by ascending id.
        item_shares: float32[items], the part of the mean recall@50 that each held-out item brings:
            the sum of 1 / (U n_u) over its links with a rank within 50. They sum to recall@50.
    """

    figures: Mapping[str, float | None]
    user_recalls: NDArray[np.float32]
    item_shares: NDArray[np.float32]


class Ranking:
    """Measures the ranks of a split's held-out links.

    Args:
        users: the user of each link, ascending.
        items: index of the link's item among the split's items.
        n_items: number of items that are ranked.
        has_links: bool[all users], which users have training links; the others are cold. All have
            some where it is None.
    """

    def __init__(
        self,
        users: NDArray[np.integer],
        items: NDArray[np.integer],
        n_items: int,
        has_links: NDArray[np.bool_] | None = None,
    ) -> None:
        ranked, self._first, self._counts = np.unique(users, return_index=True, return_counts=True)
        self._cold = np.flatnonzero([] if has_links is None else ~has_links[ranked])
        self._items, self._n_items = items, n_items
        self._weights = np.repeat(1 / (len(self._counts) * self._counts), self._counts)
        self._item_weights = np.bincount(items, self._weights, n_items)
        self._chances = {f"{name}_chance": value for name, value in self._chance_levels()}

    def __call__(self, ranks: NDArray[np.integer]) -> Evaluation:
        """Return the quality of some ranks, those of the links in order; the best is 0."""
        by_measure = self._values(ranks)
        figures: dict[str, float | None] = {}
        for name, values in by_measure.items():
            figures |= {name: float(np.mean(values)), f"{name}_error": standard_error(values)}
        hits = self._weights * (ranks < COMPARED)
        shares = np.bincount(self._items, hits, self._n_items).astype(np.float64)
        recall = f"recall_at_{COMPARED}"
        figures[f"{recall}_item_error"] = self._item_error(shares, float(np.sum(shares)))
        of_cold = by_measure[recall][self._cold]
        figures |= {f"{recall}_cold_users": None, f"{recall}_cold_users_error": None}
        if len(of_cold):
            figures[f"{recall}_cold_users"] = float(np.mean(of_cold))
            figures[f"{recall}_cold_users_error"] = standard_error(of_cold)
        return Evaluation(
            figures | self._chances,
            by_measure[recall].astype(np.float32),
            shares.astype(np.float32),
        )

    def _values(self, ranks: NDArray[np.integer]) -> dict[str, NDArray[np.float64]]:
        """Return each measure of each user."""
        found = {}
        gains = 1 / np.log2(ranks + 2.0)
        best = np.concatenate([[0.0], np.cumsum(_discounts(max(CUTOFFS)))])
        for m in CUTOFFS:
            hits = np.add.reduceat(ranks < m, self._first, dtype=np.int64)
            found[f"recall_at_{m}"] = hits / self._counts
            dcg = np.add.reduceat(np.where(ranks < m, gains, 0.0), self._first)
            found[f"ndcg_at_{m}"] = dcg / best[np.minimum(self._counts, m)]
        found["mrr"] = 1 / (1.0 + np.minimum.reduceat(ranks, self._first))
        return found

    def _item_error(self, shares: NDArray[np.float64], recall: float) -> float | None:
        """Return the standard error of a mean over links, with items as the independent units."""
        linked = np.count_nonzero(self._item_weights)
        if linked < 2:
            return None
        apart = shares - self._item_weights * recall
        return float(np.sqrt(linked / (linked - 1) * np.sum(np.square(apart))))

    def _chance_levels(self) -> Iterable[tuple[str, float]]:
        for m in CUTOFFS:
            within = min(m, self._n_items)
            yield f"recall_at_{m}", within / self._n_items
            sums = np.cumsum(_discounts(m))
            ideal = sums[np.minimum(self._counts, m) - 1]
            yield (
                f"ndcg_at_{m}",
                float(np.mean(self._counts / self._n_items * sums[within - 1] / ideal)),
            )
        sizes, often = np.unique(self._counts, return_counts=True)
        means = [reciprocal_rank_by_chance(int(n), self._n_items) for n in sizes]
        yield "mrr", float(np.average(means, weights=often))


def reciprocal_rank_by_chance(relevant: int, items: int) -> float:
    """Return the expected 1 / r of the best of some relevant items in a random order of all.

    The best rank is r with probability C(items - r, relevant - 1) / C(items, relevant), which each
    next rank multiplies by (items - r - relevant + 1) / (items - r).
    """
    last = min(items - relevant + 1, int(NEGLIGIBLE * items / relevant) + 1)
    rank = np.arange(1, last, dtype=np.float64)
    factors = (items - rank - relevant + 1) / (items - rank)
    probability = relevant / items * np.concatenate([[1.0], np.cumprod(factors)])
    return float(np.sum(probability / np.arange(1, last + 1)))


def difference(one: Evaluation, other: Evaluation) -> Difference | None:
    """Return by how much recall@50 of one evaluation is above another's.

    Both are of the same split of the same data: differences are taken within each user and within
    each item (:func:`ncfbench.timing.intervals.crossed`).

    Returns:
        None where there is only one user or one item, which shows no error.
    """
    return crossed(
        one.user_recalls.astype(np.float64) - other.user_recalls,
        one.item_shares.astype(np.float64) - other.item_shares,
    )


def _discounts(count: int) -> NDArray[np.float64]:
    """Return the weight of each of the first ranks in DCG."""
    return 1 / np.log2(np.arange(2, count + 2))
