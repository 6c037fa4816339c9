"""Ranking quality of held-out links: recall@M, NDCG@M, hit rate at M and MRR, with errors and
chance levels.

For each user who has a held-out link of the split, N items are ranked: the held-out items of the
split, or all items but those of his training links, as the data set was split. A user's relevant
items are those of his held-out links, all equally relevant; with n of them, at ranks r = 1, 2, ...,

- recall@M = (relevant items with r <= M) / n, also where n > M;
- NDCG@M = DCG / IDCG, where DCG is the sum of 1 / log2(r + 1) over the relevant items with r <= M,
  and IDCG its largest possible value, the sum over the first min(n, M) ranks (Järvelin and
  Kekäläinen 2002, with binary gains);
- MRR = 1 / r of the user's best relevant item, with no cutoff (Voorhees 1999);
- the hit rate at M is 1 where the best r <= M, else 0.

*Equal scores.* Each measure is its expected value over all orders of equal scores, by closed forms.
A model of one score for all items has exactly the figures of chance.

Each figure is the mean over the users who have training links, of equal weight. The other users are
counted, and their recall@50 stands beside it. Where no user has training links, all count. Recall
of new items, which have no training link, and of known ones is the mean over the users who have
such a link, each of the share of his links of that kind that stand within M of the one ranking of
all items.

*Standard error.* That of the mean over U users, s / sqrt(U) with s the sample standard deviation.
The mean of a bootstrap resample of the users has a variance of exactly (U - 1) / U times its
square, so the closed form needs no resamples. Users share items: the error of recall@50 over items
stands beside it, since few items make all users err alike.

*Chance* is the exact expectation under a random order of the items: that of equal scores. Recall@M
with M >= N has a chance of 1: it is 1 by construction, and no result.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ncfbench.catalog import find_encoder
from ncfbench.data.content import Split
from ncfbench.data.store import Dataset
from ncfbench.errors import DataError
from ncfbench.runs.ranks import Ranks
from ncfbench.statistics.intervals import Difference, crossed, standard_error
from ncfbench.storage.schemas import CUTOFFS

COMPARED = 50
"""M of the recall that chooses epochs and compares runs."""
CERTAIN = (
    f"recall@{COMPARED} is 1 by construction: there are at most {COMPARED} items to rank. Prepare"
    " data with more of them."
)
"""Note beside a recall whose chance is 1."""
CLEAR_ERRORS = 2.0
"""Standard errors of a difference by which one recall must be above another, or above chance, to
count as higher. Nearer ones are level; without an error nothing is known.
"""
NEGLIGIBLE = 40.0
"""Ranks of a tie's best item are counted until the probability of later ones is below e^-40."""


@dataclass(frozen=True)
class Evaluation:
    """Quality of one split at one iteration.

    Attributes:
        figures: values of :data:`ncfbench.storage.schemas.QUALITY`; an error is None where one user
            or one item cannot give any.
        user_recalls: float32[U], recall@50 of each user that counts, by ascending id.
        item_shares: float32[items], the part of the mean recall@50 that each item with a held-out
            link of these users brings, by ascending id: the sum of 1 / (U n_u) over its links with
            a rank within 50. They sum to recall@50. A mean over seeds has both as float64.
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

    Attributes:
        chances: the chance levels of all figures.
        cold_users: number of cold users.
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
        is_cold = np.zeros(len(users), bool) if has_links is None else ~has_links[users]
        counts = is_cold.all() | ~is_cold
        self.cold_users = len(np.unique(users[is_cold]))
        self._links, self._users = np.flatnonzero(counts), users
        ranked, self._first, self._counts = np.unique(
            users[counts], return_index=True, return_counts=True
        )
        self._items, self._n_items = items[counts], n_items
        self._weights = np.repeat(1 / (len(self._counts) * self._counts), self._counts)
        self._item_weights = np.bincount(self._items, self._weights, n_items)
        of_new = np.ones(len(users), bool) if is_new is None else is_new[items]
        has_kinds = not of_new[counts].all()
        self._parts = {
            "cold_users": is_cold,
            "new_items": counts & of_new & has_kinds,
            "known_items": counts & ~of_new,
        }
        left = np.full(len(ranked), n_items)
        n_ranked = left if n_excluded is None else left - n_excluded[ranked]
        # Chance is what equal scores of all items reach.
        tied = Ranks(np.zeros(len(self._items), np.int64), np.repeat(n_ranked - 1, self._counts))
        chances = self._values(tied)
        self.chances = {f"{name}_chance": float(np.mean(of)) for name, of in chances.items()}

    def __call__(self, ranks: Ranks) -> Evaluation:
        """Return the quality of the links' ranks, in their order."""
        hits = within(ranks, COMPARED)
        by_measure = self._values(Ranks(*(counts[self._links] for counts in ranks)))
        recall = f"recall_at_{COMPARED}"
        shares = np.bincount(self._items, self._weights * hits[self._links], self._n_items)
        is_linked = self._item_weights > 0
        n_linked, apart = int(np.sum(is_linked)), shares - self._item_weights * np.sum(shares)
        # That of a mean over links, with items as the independent units.
        error = np.sqrt(n_linked / max(n_linked - 1, 1) * np.sum(np.square(apart)))
        figures: dict[str, float | None] = {
            f"{recall}_item_error": float(error) if n_linked > 1 else None,
            "cold_users": float(self.cold_users),
        }
        by_part = {
            f"{recall}_{part}": _mean_by(self._users[links], hits[links])
            for part, links in self._parts.items()
        }
        for name, values in (by_measure | by_part).items():
            figures[name] = float(np.mean(values)) if len(values) else None
            figures[f"{name}_error"] = standard_error(values)
        return Evaluation(
            figures | self.chances,
            by_measure[recall].astype(np.float32),
            shares[is_linked].astype(np.float32),
        )

    def _values(self, ranks: Ranks) -> dict[str, NDArray[np.float64]]:
        """Return each measure of each user, the mean over all orders of equal scores."""
        sums = np.concatenate([[0.0], np.cumsum(1 / np.log2(np.arange(2, max(CUTOFFS) + 2)))])
        *hit_rates, mrr = self._best(ranks)
        measures = {"mrr": mrr}
        for m, hit_rate in zip(CUTOFFS, hit_rates, strict=True):
            measures[f"hit_rate_at_{m}"] = hit_rate
            hits = np.add.reduceat(within(ranks, m), self._first)
            measures[f"recall_at_{m}"] = hits / self._counts
            dcg = np.add.reduceat(_gains(ranks, m, sums), self._first)
            measures[f"ndcg_at_{m}"] = dcg / sums[np.minimum(self._counts, m)]
        return measures

    def _best(self, ranks: Ranks) -> NDArray[np.float64]:
        """Return the hit rates and the reciprocal rank of each user's best link, a row each."""
        above = np.minimum.reduceat(ranks.above, self._first)
        is_best = ranks.above == np.repeat(above, self._counts)
        size = np.maximum.reduceat(np.where(is_best, ranks.equal, 0), self._first) + 1
        # Links whose score is NaN are all last, and tied with none.
        relevant = np.minimum(np.add.reduceat(is_best, self._first, dtype=np.int64), size)
        values = np.array([*(above < m for m in CUTOFFS), 1 / (1.0 + above)])
        tied = np.flatnonzero(size > 1)
        ties = np.stack([relevant, size, above])[:, tied]
        ties, which = np.unique(ties, axis=1, return_inverse=True)
        of_ties = [best_of_tie(*map(int, tie)) for tie in ties.T]
        values[:, tied] = np.reshape(of_ties, (-1, len(values)))[which.ravel()].T
        return values


def within(ranks: Ranks, m: int) -> NDArray[np.float64]:
    """Return for each link the share of the orders of equal scores in which it is among the first m
    items.
    """
    return np.clip((m - ranks.above) / (ranks.equal + 1), 0.0, 1.0)


def _mean_by(users: NDArray[np.integer], values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the mean over each user's links; users are ascending."""
    _, first, counts = np.unique(users, return_index=True, return_counts=True)
    return np.asarray(np.add.reduceat(values, first) / counts if len(users) else values)


def _gains(ranks: Ranks, m: int, sums: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return what each link adds to DCG@m, the mean over the positions that it may take.

    Args:
        sums: of the discounts of the first 0, 1, ... positions.
    """
    gains = np.where(ranks.above < m, 1 / np.log2(ranks.above + 2.0), 0.0)
    tied = np.flatnonzero((ranks.equal > 0) & (ranks.above < m))
    first, equal = ranks.above[tied], ranks.equal[tied]
    gains[tied] = (sums[np.minimum(first + equal + 1, m)] - sums[first]) / (equal + 1)
    return gains


def best_of_tie(relevant: int, items: int, above: int = 0) -> list[float]:
    """Return the expected hit rates at :data:`ncfbench.storage.schemas.CUTOFFS` and 1 / (above + r)
    of a tie, where r is the best rank of its relevant items in a random order of all.

    The probability that none is among the first r is C(items - r, relevant) / C(items, relevant),
    which each next rank multiplies by (items - r - relevant) / (items - r).
    """
    last = min(items - relevant + 1, int(NEGLIGIBLE * items / relevant) + 1)
    left = items - np.arange(last, dtype=np.float64)
    beyond = np.concatenate([[1.0], np.cumprod((left - relevant) / left)])
    reciprocal = np.sum(beyond[:-1] * relevant / left / (above + np.arange(1, last + 1)))
    draws = np.clip(np.subtract(CUTOFFS, above), 0, last)
    return [*(1 - beyond[draws]).tolist(), float(reciprocal)]


def can_rank(encoder: str, dataset: Dataset) -> bool:
    """Return whether an encoder has vectors of a data set's candidates: one that learns a vector of
    each item has none of held-out items.
    """
    return dataset.ranks_known_items or find_encoder(encoder).scores_cold_items


def describe_unranked(encoder: str, dataset: Dataset) -> str | None:
    """Return why an encoder has no recall on a data set's test items; None where it has."""
    if not can_rank(encoder, dataset):
        return f"{encoder} learns a vector for each item, and held-out items have none"
    if len(dataset.links("test")[0]):
        return None
    return f"no user has a held-out test {'link' if dataset.ranks_known_items else 'item'}"


def require_validation_links(dataset: Dataset, flag: str) -> None:
    """Refuse data without validation links, by whose recall a flag chooses, by a DataError."""
    if not dataset.holds_out("validation"):
        kind = "links" if dataset.ranks_known_items else "items"
        raise DataError(
            f"{flag} chooses by recall on validation {kind}, and {dataset.name} has none."
            f" {dataset.advise_hold_out('validation')}"
        )


def n_ranked(dataset: Dataset, split: Split) -> NDArray[np.int64]:
    """Return how many items are ranked for each user whose links of a split count: those who have
    training links, or all where none has any.
    """
    users = np.unique(dataset.links(split)[0])
    is_cold = ~dataset.has_links[users]
    users = users[is_cold.all() | ~is_cold]
    known = dataset.graph.user_degrees[users] * dataset.ranks_known_items
    return np.asarray(len(dataset.candidates(split)) - known, np.int64)


def difference(one: Evaluation, other: Evaluation) -> Difference | None:
    """Return by how much recall@50 of one evaluation is above another's.

    Both are of the same split of the same data: differences are taken within each user and within
    each item (:func:`ncfbench.statistics.intervals.crossed`).

    Returns:
        None where there is only one user or one item, which shows no error, and where they are
        over other users or items.
    """
    if not comparable([one, other]):
        return None
    return crossed(
        one.user_recalls.astype(np.float64) - other.user_recalls,
        one.item_shares.astype(np.float64) - other.item_shares,
    )


def comparable(evaluations: Sequence[Evaluation]) -> bool:
    """Return whether evaluations of a split are over the same users and items: some kept runs have
    users without training links and items without held-out links, too.
    """
    sizes = {(len(one.user_recalls), len(one.item_shares)) for one in evaluations}
    return len(sizes) <= 1


def chance(dataset: Dataset, split: Split) -> float:
    """Return the expected recall@50 of a random order of the items that are ranked for a split's
    links, on average over users.
    """
    return float(np.mean(np.minimum(COMPARED / n_ranked(dataset, split), 1.0)))
