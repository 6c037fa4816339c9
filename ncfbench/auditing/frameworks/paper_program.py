"""The authors' own program of the paper: shared negatives for the pairwise log loss."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ncfbench.auditing.frameworks.claims import PAPER_GAMMA
from ncfbench.auditing.frameworks.estimator import Drawn, Estimator, Negatives


@dataclass(frozen=True)
class SharedLog(Estimator):
    """Each link against all distinct items of the batch, its own too; each of them counts once.

    Vectors are normalised, and the loss is the mean over all pairs of a link and a distinct item.
    """

    name = "paper"
    title = "paper's program"
    version = "KDD 2017"
    source = "https://doi.org/10.1145/3097983.3098202"
    claim = "paper"
    remedy = (
        "Count an item as often as the batch has it, and leave out a link's own item: --sampler ns"
        " does both."
    )

    gamma: float = PAPER_GAMMA

    def loss(self, users: jax.Array, items: jax.Array, batch: Any) -> jax.Array:
        """See :meth:`Estimator.loss`."""
        scores = users[batch.user] @ items[batch.item].T
        same = batch.item[:, None] == batch.item[None, :]
        is_first = jnp.argmax(same, axis=1) == jnp.arange(len(scores))
        rows = jax.nn.softplus(self.gamma * (scores - jnp.diagonal(scores)[:, None]))
        return jnp.sum(jnp.where(is_first, rows, 0)) / (len(scores) * jnp.sum(is_first))

    def negatives(self, batches: Drawn) -> Negatives:
        """See :meth:`Estimator.negatives`."""
        same = batches.item[:, :, None] == batches.item[:, None, :]
        is_first = np.argmax(same, axis=1) == np.arange(batches.item.shape[1])
        counted = np.broadcast_to(is_first[:, None, :], same.shape)
        return Negatives(batches.user[:, :, None], batches.item[:, None, :], counted)
