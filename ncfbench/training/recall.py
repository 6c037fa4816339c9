"""Evaluation: the ranks of each user's held-out items among the candidates.

Where items are held out, the candidates are all items of the split, which training never saw. Where
links are, they are all items but those that the user has a training link with. Ranks are exact;
ties are broken by item id, the smaller first, so that results repeat. :mod:`ncfbench.runs.quality`
makes recall@M (KDD 2017, section 5.2), NDCG@M and MRR of the ranks.
"""

from __future__ import annotations

from typing import TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from ncfbench.data.content import Split
from ncfbench.data.graph import BipartiteGraph
from ncfbench.data.store import Dataset
from ncfbench.models.interaction import Interaction
from ncfbench.models.precision import full
from ncfbench.runs.quality import Evaluation, Ranking, most_ranked
from ncfbench.training.inference import Embedder, row_blocks
from ncfbench.training.state import Parameters

Pairs: TypeAlias = NDArray[np.int32]
BLOCK_USERS = 256
"""Users whose scores are computed at once, where items are few."""
BLOCK_SCORES = 2**22
"""Their scores, where items are many: 16 MB."""
LINK_SCORES = 2**20
"""Scores that links are compared with at once, 4 MB, which fit the caches."""


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
    ) -> NDArray[np.int64]:
        """Return the rank of each held-out link's item for its user, int64[links]; best is 0."""
        if users_UxD is None:
            users_UxD = self.embedder.users(parameters).scored
        if items_VxD is None:
            items_VxD = self.embed(parameters)
        interaction = self.embedder.interaction(parameters)
        return link_ranks(interaction, users_UxD, items_VxD, self.users, self.index, self._known)


def link_ranks(
    interaction: Interaction,
    users_UxD: jax.Array,
    items_VxD: jax.Array,
    users: NDArray[np.int32],
    index: NDArray[np.int32],
    known: BipartiteGraph | None = None,
) -> NDArray[np.int64]:
    """Return the rank of each link's item for its user, int64[links].

    Items of a higher score rank before it, and those of an equal score with a smaller index. A NaN
    ranks before every other score, so that broken parameters never look good.

    The scores of a block of users with all items are in memory. Equal scores must be equal to the
    last bit, so a link's own score is one of those that it is compared with.

    Args:
        users: the user of each link.
        index: the index of its item in ``items_VxD``.
        known: links whose items are not ranked for their user; its items are the indices.
    """
    who, row = np.unique(users, return_inverse=True)
    order = np.argsort(row, kind="stable")
    result = np.zeros(len(index), np.int64)
    at_once, links_at_once = (
        max(scores // len(items_VxD), 1) for scores in (BLOCK_SCORES, LINK_SCORES)
    )
    rows, block_links = min(BLOCK_USERS, at_once, len(who)), min(links_at_once, len(index))
    for begin in range(0, len(who), rows):
        block = np.resize(who[begin : begin + rows], rows)
        first, last = np.searchsorted(row, [begin, begin + rows], sorter=order)
        left_out = None if known is None else _left_out(known, block)
        scores = _scores_of(interaction, users_UxD, items_VxD, block, left_out)
        for take in row_blocks(last - first, block_links):
            links = order[first:last][take]
            # Waits for the ranks, so that few blocks are in memory.
            result[links] = np.asarray(_ranks_in_rows(*scores, row[links] - begin, index[links]))
    return result


@jax.jit
@full
def _scores_of(
    interaction: Interaction,
    users_UxD: jax.Array,
    items_VxD: jax.Array,
    users: jax.Array,
    left_out: jax.Array | None,
) -> tuple[jax.Array, jax.Array | None]:
    """Return the scores of users and items, and which of them are ranked; None for all."""
    scores = interaction.matrix(users_UxD[users], items_VxD)
    if left_out is None:
        return scores, None
    return scores, jnp.ones(scores.shape, bool).at[left_out[0], left_out[1]].set(False, mode="drop")


@jax.jit
def _ranks_in_rows(
    scores: jax.Array, ranked: jax.Array | None, row: jax.Array, column: jax.Array
) -> jax.Array:
    """Return the rank of each link's item in its user's row of scores."""
    own = scores[row, column][:, None]
    score, position = scores[row], jnp.arange(scores.shape[1], dtype=jnp.int32)[None, :]
    before = ~(score <= own) | ((score == own) & (position < column[:, None]))
    if ranked is not None:
        before &= ranked[row]
    return jnp.sum(before, axis=1, dtype=jnp.int32)


def _left_out(known: BipartiteGraph, users: NDArray[np.int32]) -> Pairs:
    """Return the row and the item of each item that is not ranked: int32[2, n], padded with a row
    that there is not.
    """
    items, rows = known.items_of(users)
    # Powers of two, so that few programs are compiled.
    pairs = np.full((2, 2 ** max(len(items) - 1, 2**10).bit_length()), len(users), np.int32)
    pairs[:, : len(items)] = rows, items
    return pairs
