"""Ranking quality of held-out links: recall@M, NDCG@M, hit rate at M and MRR, with errors and
chance levels; and what the lists of all users expose.

For each user who has a held-out link of the split, N items are ranked: the held-out items of the
split, or all items but those of his training links, as the data set was split. A user's relevant
items are those of his held-out links, all equally relevant; with n of them, at ranks r = 1, 2, ...,

- recall@M = (relevant items with r <= M) / n, also where n > M;
- NDCG@M = DCG / IDCG, where DCG is the sum of 1 / log2(r + 1) over the relevant items with r <= M,
  and IDCG its largest possible value, the sum over the first min(n, M) ranks (Järvelin and
  Kekäläinen 2002, with binary gains);
- MRR = 1 / r of the user's best relevant item, with no cutoff (Voorhees 1999);
- the hit rate at M is 1 where the best r <= M, else 0.

Each figure is the mean over users, of equal weight. Recall of new items, which have no training
link, and of known ones is the mean over the users who have such a link, each of the share of his
links of that kind that stand within M of the one ranking of all items.

*Standard error.* That of the mean over U users, s / sqrt(U) with s the sample standard deviation.
The mean of a bootstrap resample of the users has a variance of exactly (U - 1) / U times its
square, so the closed form needs no resamples. Users share items: the error of recall@50 over items
stands beside it, since few items make all users err alike.

*Chance* is the exact expectation under a random order of the items, from the numbers N and n of
each user alone. Recall@M with M >= N has a chance of 1: it is 1 by construction, and no result.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ncfbench.catalog import find_encoder
from ncfbench.data.content import Split
from ncfbench.data.store import Dataset
from ncfbench.errors import DataError
from ncfbench.storage.schemas import CUTOFFS
from ncfbench.timing.intervals import Difference, crossed, standard_error

COMPARED = 50
"""M of the recall that chooses epochs and compares runs."""
CERTAIN = (
    f"recall@{COMPARED} is 1 by construction: there are at most {COMPARED} items to rank. Prepare"
    " data with more of them."
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
            A mean over seeds has both as float64.
    """

    figures: Mapping[str, float | None]
    user_recalls: NDArray[np.floating]
    item_shares: NDArray[np.floating]


class Ranking:
    """Measures the ranks of a split's held-out links.

    Args:
        users: the user of each link, ascending.
        items: index of the link's item among the ranked ones.
        n_items: number of items that are ranked, the same ones for all users but for those left
            out.
        has_links: bool[all users], which users have training links; the others are cold. All have
            some where it is None.
        n_excluded: int64[all users], number of the ranked items that are left out for each user,
            such as those of his training links; none where it is None.
        is_new: bool[n_items], which ranked items have no training link, where some may have one.
    """

    def __init__(
        self,
        users: NDArray[np.integer],
        items: NDArray[np.integer],
        n_items: int,
        has_links: NDArray[np.bool_] | None = None,
        *,
        n_excluded: NDArray[np.integer] | None = None,
        is_new: NDArray[np.bool_] | None = None,
    ) -> None:
        ranked, self._first, self._counts = np.unique(users, return_index=True, return_counts=True)
        self._cold = np.flatnonzero([] if has_links is None else ~has_links[ranked])
        self._items, self._n_items = items, n_items
        self._weights = np.repeat(1 / (len(self._counts) * self._counts), self._counts)
        self._item_weights = np.bincount(items, self._weights, n_items)
        left = np.full(len(ranked), n_items)
        self._n_ranked = left if n_excluded is None else left - n_excluded[ranked]
        of_new = np.zeros(len(items), bool) if is_new is None else is_new[items]
        self._is_of_kind = {"new_items": of_new, "known_items": ~of_new}
        self._has_kinds = is_new is not None and not of_new.all()
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
        parts = {"cold_users": by_measure[recall][self._cold]}
        for kind, is_of_kind in self._is_of_kind.items():
            parts[kind] = self._recalls(ranks, is_of_kind) if self._has_kinds else np.empty(0)
        for part, values in parts.items():
            figures[f"{recall}_{part}"] = float(np.mean(values)) if len(values) else None
            figures[f"{recall}_{part}_error"] = standard_error(values)
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
            found[f"hit_rate_at_{m}"] = (hits > 0).astype(np.float64)
            dcg = np.add.reduceat(np.where(ranks < m, gains, 0.0), self._first)
            found[f"ndcg_at_{m}"] = dcg / best[np.minimum(self._counts, m)]
        found["mrr"] = 1 / (1.0 + np.minimum.reduceat(ranks, self._first))
        return found

    def _recalls(
        self, ranks: NDArray[np.integer], is_of_kind: NDArray[np.bool_]
    ) -> NDArray[np.float64]:
        """Return recall@50 over links of a kind, of each user who has one."""
        hits, counts = (
            np.add.reduceat(chosen, self._first, dtype=np.int64)
            for chosen in (is_of_kind & (ranks < COMPARED), is_of_kind)
        )
        return np.asarray(hits[counts > 0] / counts[counts > 0], np.float64)

    def _item_error(self, shares: NDArray[np.float64], recall: float) -> float | None:
        """Return the standard error of a mean over links, with items as the independent units."""
        linked = np.count_nonzero(self._item_weights)
        if linked < 2:
            return None
        apart = shares - self._item_weights * recall
        return float(np.sqrt(linked / (linked - 1) * np.sum(np.square(apart))))

    def _chance_levels(self) -> Iterable[tuple[str, float]]:
        sizes, users = np.unique(self._n_ranked, return_counts=True)
        pairs = np.stack([self._counts, self._n_ranked])
        (relevant, ranked), often = np.unique(pairs, axis=1, return_counts=True)
        # The share of orders in which none of the first 1, 2, ... items is relevant.
        drawn = np.arange(max(CUTOFFS))
        others, left = (ranked - relevant)[:, None] - drawn, ranked[:, None] - drawn
        misses = np.cumprod(np.maximum(others, 0) / np.maximum(left, 1), axis=1)
        for m in CUTOFFS:
            # Weights, so that users who rank equally many have exactly their common value.
            yield f"recall_at_{m}", float((users / users.sum()) @ (np.minimum(m, sizes) / sizes))
            sums = np.cumsum(_discounts(m))
            ideal = sums[np.minimum(self._counts, m) - 1]
            within = sums[np.minimum(m, self._n_ranked) - 1]
            yield f"ndcg_at_{m}", float(np.mean(self._counts / self._n_ranked * within / ideal))
            yield f"hit_rate_at_{m}", float(np.average(1 - misses[:, m - 1], weights=often))
        means = [
            reciprocal_rank_by_chance(*map(int, pair))
            for pair in zip(relevant, ranked, strict=True)
        ]
        yield "mrr", float(np.average(means, weights=often))


def exposure(
    lists: NDArray[np.integer], popularity: NDArray[np.integer], n_candidates: int
) -> tuple[float, float]:
    """Return what lists of recommendations expose: the share of all candidates that stand in any of
    them, and the training links of a recommended item, on average over the places of the lists.

    Args:
        lists: int[users, M], ids of the recommended items; -1 where a user has fewer.
        popularity: int[all items], training links of each item.
        n_candidates: number of items that can be recommended.
    """
    items = lists[lists >= 0]
    if not len(items):
        return 0.0, 0.0
    return len(np.unique(items)) / n_candidates, float(np.mean(popularity[items]))


def can_rank(encoder: str, dataset: Dataset) -> bool:
    """Return whether an encoder has vectors of a data set's candidates: one that learns a vector of
    each item has none of held-out items.
    """
    return dataset.ranks_known_items or find_encoder(encoder).scores_cold_items


def require_validation_links(dataset: Dataset, flag: str) -> None:
    """Refuse data without validation links, by whose recall a flag chooses, by a DataError."""
    if not dataset.holds_out("validation"):
        kind = "links" if dataset.ranks_known_items else "items"
        raise DataError(
            f"{flag} chooses by recall on validation {kind}, and {dataset.name} has none."
            f" {dataset.advise_hold_out('validation')}"
        )


def most_ranked(dataset: Dataset, split: Split) -> int:
    """Return the most items that are ranked for a user with links of a split."""
    n_items = len(dataset.candidates(split))
    if not dataset.ranks_known_items:
        return n_items
    return n_items - int(dataset.graph.user_degrees[dataset.links(split)[0]].min())


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
