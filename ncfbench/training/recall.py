"""Evaluation: the ranks of each user's held-out items among the candidates.

Where items are held out, the candidates are all items of the split, which training never saw. Where
links are, they are all items but those that the user has a training link with.
:mod:`ncfbench.runs.quality` makes recall@M (KDD 2017, section 5.2), NDCG@M and MRR of the ranks.
"""

from __future__ import annotations

import jax
import numpy as np
from numpy.typing import NDArray

from ncfbench.data.content import Split
from ncfbench.data.graph import BipartiteGraph
from ncfbench.data.store import Dataset
from ncfbench.models.scores import score_matrix
from ncfbench.runs.quality import Evaluation, Ranking, most_ranked
from ncfbench.runs.ranks import Ranks, Scores, by_user, rank_links
from ncfbench.training.inference import BLOCK_SCORES, Embedder
from ncfbench.training.state import Parameters

BLOCK_USERS = 256
"""Most users of a block: with few items, its scores fit the caches."""


class RecallEvaluator:
    """Evaluates one split of a data set, in which some user has a link."""

    def __init__(self, dataset: Dataset, split: Split, embedder: Embedder) -> None:
        self.embedder = embedder
        self.items, self.most_ranked = dataset.candidates(split), most_ranked(dataset, split)
        self.is_new = dataset.graph.item_degrees[self.items] == 0
        users, items = dataset.links(split)
        order = np.lexsort((items, users))
        self.users = users[order]
        self.index = np.searchsorted(self.items, items[order]).astype(np.int32)
        # All items are candidates, each at the index that is its id.
        self._known = dataset.graph if dataset.ranks_known_items else None
        self.ranking = Ranking(
            self.users,
            self.index,
            len(self.items),
            dataset.has_links,
            n_excluded=None if self._known is None else self._known.user_degrees,
            is_new=self.is_new,
        )

    @property
    def share_of_new(self) -> float:
        """Share of the links whose item has no training link."""
        return float(np.mean(self.is_new[self.index]))

    def __call__(
        self,
        parameters: Parameters,
        items_VxD: jax.Array | None = None,
        users_UxD: jax.Array | None = None,
    ) -> Evaluation:
        """Return the quality of the ranking by these parameters.

        Args:
            items_VxD, users_UxD: vectors of the candidates and of all users, where they are there
                already.
        """
        return self.ranking(self.ranks(parameters, items_VxD, users_UxD))

    def embed(self, parameters: Parameters) -> jax.Array:
        """Return the candidates' vectors, float32[V, D]."""
        return self.embedder.candidates(parameters, self.items, self.is_new)

    def ranks(
        self,
        parameters: Parameters,
        items_VxD: jax.Array | None = None,
        users_UxD: jax.Array | None = None,
    ) -> Ranks:
        """Return the rank of each held-out link's item for its user."""
        if users_UxD is None:
            users_UxD = self.embedder.users(parameters).scored
        if items_VxD is None:
            items_VxD = self.embed(parameters)
        return link_ranks(users_UxD, items_VxD, self.users, self.index, self._known)


def link_ranks(
    users_UxD: jax.Array,
    items_VxD: jax.Array,
    users: NDArray[np.int32],
    index: NDArray[np.int32],
    known: BipartiteGraph | None = None,
) -> Ranks:
    """Return the rank of each link's item for its user.

    Equal items have equal scores, to the last bit: one product scores all items of a user.

    Args:
        users: the user of each link.
        index: the index of its item in ``items_VxD``.
        known: links whose items are not ranked for their user; its items are the indices.
    """
    size = int(np.clip(BLOCK_SCORES // len(items_VxD), 1, min(BLOCK_USERS, len(np.unique(users)))))
    scores = scores_of(users_UxD, items_VxD, size)
    left_out = None if known is None else by_user(known.user_offsets, known.link_item)
    return rank_links(scores, users, index, size, left_out)


def scores_of(users_UxD: jax.Array, items_VxD: jax.Array, size: int = BLOCK_USERS) -> Scores:
    """Return the scores of all items for some users, ``size`` users at a time."""

    def scores(users: NDArray[np.integer]) -> NDArray[np.float32]:
        blocks = (users[start : start + size] for start in range(0, len(users), size))
        return np.concatenate(
            [
                # Of one size, so that one program serves.
                np.asarray(_scores(users_UxD, items_VxD, np.resize(block, size)))[: len(block)]
                for block in blocks
            ]
        )

    return scores


@jax.jit
def _scores(users_UxD: jax.Array, items_VxD: jax.Array, users: jax.Array) -> jax.Array:
    """Return the scores of some users and all items."""
    return score_matrix(users_UxD[users], items_VxD)
