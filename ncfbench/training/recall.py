"""Evaluation: the ranks of each user's held-out items among the candidates.

Where items are held out, the candidates are all items of the split, which training never saw. Where
links are, they are all items but those that the user has a training link with. Ranks are exact;
ties are broken by item id, the smaller first, so that results repeat. :mod:`ncfbench.runs.quality`
makes recall@M (KDD 2017, section 5.2), NDCG@M and MRR of the ranks.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
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
BLOCK_ITEMS = 2**12
BLOCK_LINKS = 512
"""Items and links of a block, whose 8 MB of scores fit the caches."""
BLOCK_USERS = 256
"""Users of a block where all items are one block: each one's scores serve all her links."""


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

    One block of links and items is in memory. Equal scores must be equal to the last bit, so a
    link's own score comes from the product that counts it: the same program, rows and block. Where
    there are several blocks of items, its block is multiplied beforehand; links are in the order of
    their items, so that these are few. Where there is one, each user's scores are computed once.

    Args:
        users: the user of each link.
        index: the index of its item in ``items_VxD``.
        known: links whose items are not ranked for their user; its items are the indices.
    """
    n_items = len(items_VxD)
    # Blocks of about one size, so that the last one is not mostly padding.
    size = -(-n_items // -(-n_items // BLOCK_ITEMS))
    starts = np.arange(0, n_items, size, dtype=np.int32)
    if len(starts) == 1:
        return _ranks_by_user(interaction, users_UxD, items_VxD, users, index, known)
    items_VxD = jnp.pad(items_VxD, ((0, len(starts) * size - n_items), (0, 0)))
    order, rows = np.argsort(index, kind="stable"), min(BLOCK_LINKS, len(index))
    result = np.zeros(len(index), np.int64)
    for block in row_blocks(len(index), rows):
        links = order[block]
        user, item, score = users[links], index[links], np.zeros(rows, np.float32)
        within = partial(_ranks_in_block, interaction, users_UxD, items_VxD, user, item)
        left_out = _left_out(known, user, starts, size)
        for number in range(item[0] // size, item[-1] // size + 1):
            score, _ = within(score, starts[number], n_items, left_out[number], size)
        count = np.zeros(rows, np.int64)
        for start, pairs in zip(starts, left_out, strict=True):
            # Waits for the block, so that only one is in memory.
            count += np.asarray(within(score, start, n_items, pairs, size)[1])
        result[links] = count
    return result


def _ranks_by_user(
    interaction: Interaction,
    users_UxD: jax.Array,
    items_VxD: jax.Array,
    users: NDArray[np.int32],
    index: NDArray[np.int32],
    known: BipartiteGraph | None,
) -> NDArray[np.int64]:
    """Return the ranks where all items are one block."""
    who, row = np.unique(users, return_inverse=True)
    order = np.argsort(row, kind="stable")
    result = np.zeros(len(index), np.int64)
    rows, block_links = min(BLOCK_USERS, len(who)), min(BLOCK_LINKS, len(index))
    for begin in range(0, len(who), rows):
        block = np.resize(who[begin : begin + rows], rows)
        first, last = np.searchsorted(row, [begin, begin + rows], sorter=order)
        (pairs,) = _left_out(known, block, np.zeros(1, np.int32), len(items_VxD))
        scores = _scores_of(interaction, users_UxD, items_VxD, block, pairs)
        for take in row_blocks(last - first, block_links):
            links = order[first:last][take]
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


def _left_out(
    known: BipartiteGraph | None, users: NDArray[np.int32], starts: NDArray[np.int32], size: int
) -> Sequence[Pairs | None]:
    """Return, for each block of items, the row and the column in the block of each item that is not
    ranked: int32[2, n], padded with a row that there is not. None where all are ranked.
    """
    if known is None:
        return [None] * len(starts)
    items, rows = known.items_of(users)
    order = np.argsort(items, kind="stable")
    rows, items = rows[order], items[order]
    bounds = np.searchsorted(items, [*starts, starts[-1] + size])
    # Powers of two, so that few programs are compiled.
    room = 2 ** max(int(np.max(np.diff(bounds))) - 1, 2**10).bit_length()
    blocks = []
    for start, first, last in zip(starts, bounds[:-1], bounds[1:], strict=True):
        pairs = np.full((2, room), len(users), np.int32)
        pairs[:, : last - first] = rows[first:last], items[first:last] - start
        blocks.append(pairs)
    return blocks


@partial(jax.jit, static_argnames="size")
@full
def _ranks_in_block(
    interaction: Interaction,
    users_UxD: jax.Array,
    items_VxD: jax.Array,
    users: jax.Array,
    index: jax.Array,
    own: jax.Array,
    start: jax.Array,
    n_items: jax.Array,
    left_out: jax.Array | None,
    size: int,
) -> tuple[jax.Array, jax.Array]:
    """Return each link's own score, new if its item is in this block, and its rank in the block."""
    block_VxD = jax.lax.dynamic_slice_in_dim(items_VxD, start, size)
    scores = interaction.matrix(users_UxD[users], block_VxD)
    column = index - start
    here = jnp.take_along_axis(scores, jnp.clip(column, 0, size - 1)[:, None], axis=1)
    own = jnp.where((column >= 0) & (column < size), here[:, 0], own)
    position = jnp.arange(size, dtype=jnp.int32)[None, :]
    before = ~(scores <= own[:, None]) | ((scores == own[:, None]) & (position < column[:, None]))
    if left_out is not None:
        before = before.at[left_out[0], left_out[1]].set(False, mode="drop")
    return own, jnp.sum(before & (position < n_items - start), axis=1, dtype=jnp.int32)
