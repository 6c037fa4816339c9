"""Cold-start evaluation: the ranks of each user's held-out items among all held-out items.

Exact, over every user who has a held-out item and every held-out item of the split. Ties are broken
by item id, the smaller first, so that results repeat. :mod:`ncfbench.runs.quality` makes recall@M
(KDD 2017, section 5.2), NDCG@M and MRR of the ranks.
"""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from ncfbench.data.content import Split
from ncfbench.data.store import Dataset
from ncfbench.models.interaction import Interaction
from ncfbench.models.precision import full
from ncfbench.runs.quality import Evaluation, Ranking
from ncfbench.training.inference import Embedder, row_blocks
from ncfbench.training.state import Parameters

BLOCK_ITEMS = 2**12
BLOCK_LINKS = 512
"""Items and links of a block, whose 8 MB of scores fit the caches."""


class RecallEvaluator:
    """Evaluates one split of a data set, in which some user has an item."""

    def __init__(self, dataset: Dataset, split: Split, embedder: Embedder) -> None:
        self.embedder = embedder
        self.items = dataset.items_of(split)
        users, items = dataset.links(split)
        order = np.lexsort((items, users))
        self.users = users[order]
        self.index = np.searchsorted(self.items, items[order]).astype(np.int32)
        self._ranking = Ranking(self.users, self.index, len(self.items), dataset.has_links)

    def __call__(self, parameters: Parameters) -> Evaluation:
        """Return the quality of the ranking by these parameters."""
        return self._ranking(self.ranks(parameters))

    def ranks(self, parameters: Parameters) -> NDArray[np.int64]:
        """Return the rank of each held-out link's item for its user, int64[links]; best is 0."""
        users_UxD = self.embedder.users(parameters).scored
        items_VxD = self.embedder.cold_items(parameters, self.items)
        interaction = self.embedder.interaction(parameters)
        return link_ranks(interaction, users_UxD, items_VxD, self.users, self.index)


def link_ranks(
    interaction: Interaction,
    users_UxD: jax.Array,
    items_VxD: jax.Array,
    users: NDArray[np.int32],
    index: NDArray[np.int32],
) -> NDArray[np.int64]:
    """Return the rank of each link's item for its user, int64[links].

    Items of a higher score rank before it, and those of an equal score with a smaller index. A NaN
    ranks before every other score, so that broken parameters never look good.

    One block of links and items is in memory. Equal scores must be equal to the last bit, so a
    link's own score comes from the product that counts it: the same program, rows and block. Where
    there are several blocks of items, its block is multiplied beforehand; links are in the order of
    their items, so that these are few.

    Args:
        users: the user of each link.
        index: the index of its item in ``items_VxD``.
    """
    n_items = len(items_VxD)
    # Blocks of about one size, so that the last one is not mostly padding.
    size = -(-n_items // -(-n_items // BLOCK_ITEMS))
    starts = np.arange(0, n_items, size, dtype=np.int32)
    items_VxD = jnp.pad(items_VxD, ((0, len(starts) * size - n_items), (0, 0)))
    order, rows = np.argsort(index, kind="stable"), min(BLOCK_LINKS, len(index))
    result = np.zeros(len(index), np.int64)
    for block in row_blocks(len(index), rows):
        links = order[block]
        user, item, score = users[links], index[links], np.zeros(rows, np.float32)
        within = partial(_ranks_in_block, interaction, users_UxD, items_VxD, user, item)
        if len(starts) > 1:
            for start in starts[item[0] // size : item[-1] // size + 1]:
                score, _ = within(score, start, n_items, size)
        count = np.zeros(rows, np.int64)
        for start in starts:
            # Waits for the block, so that only one is in memory.
            count += np.asarray(within(score, start, n_items, size)[1])
        result[links] = count
    return result


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
    return own, jnp.sum(before & (position < n_items - start), axis=1, dtype=jnp.int32)
