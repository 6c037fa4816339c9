"""The exact objective: L over all pairs of a user and an item, and its gradient.

For data where links x items is not too large; in blocks of bounded memory. No link is sampled:
every training link is a positive one, and every item in use is a negative of each, with its
probability.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from ncfbench.auditing.gradients import Float64, VectorGradient
from ncfbench.auditing.user_rows import Ids, UserRows
from ncfbench.config import RunConfig
from ncfbench.data.graph import BipartiteGraph
from ncfbench.models.losses import make_loss
from ncfbench.models.objective import row_losses
from ncfbench.models.scores import pair_scores, score_matrix
from ncfbench.sampling.noise import Noise
from ncfbench.training.inference import Embedder, row_blocks
from ncfbench.training.state import Parameters

BLOCK_TERMS = 2**20

Scored: TypeAlias = tuple[jax.Array, jax.Array]
"""The vectors of all users and of the items in use."""


@dataclass(frozen=True)
class Exact:
    """L and its gradient at some parameters."""

    value: float
    gradient: VectorGradient


class ExactObjective:
    """L for a graph and a loss, as a function of the parameters."""

    def __init__(self, graph: BipartiteGraph, config: RunConfig, embedder: Embedder) -> None:
        self.graph, self.config, self.embedder = graph, config, embedder
        self.nodes = graph.items_in_use
        noise = Noise(graph, config.noise_exponent).probability[self.nodes]
        self.measure = np.ones(len(self.nodes)) if config.family == "listwise" else noise
        self.loss = make_loss(config)

    def __call__(self, parameters: Parameters) -> Exact:
        """Return L and its gradient; sums over blocks are added in float64."""
        graph, user_l2 = self.graph, self.config.user_l2
        rows = UserRows(graph, self.config.reads_histories)
        users = rows.vectors(self.embedder, parameters)
        scored = users.scored, self.embedder.items(parameters, self.nodes)
        row = rows.of_links(graph.link_user, graph.link_item)
        value, by_users, by_items = self._sum(scored, row)
        shares = np.bincount(row, minlength=rows.count) / graph.n_links
        raw = np.asarray(users.raw, np.float64)
        return Exact(
            value=value + user_l2 * float(np.sum(shares * np.sum(raw**2, axis=1))),
            gradient=VectorGradient(by_users, by_items, 2 * user_l2 * shares[:, None] * raw),
        )

    def _sum(self, scored: Scored, row: Ids) -> tuple[float, Float64, Float64]:
        """Return the mean loss of the links with all their negatives, and its gradients by the
        vectors of users and items, float64[rows, D] and [V, D].

        Args:
            row: int[N], the user's row of each positive link. A pointwise loss's negative links are
                links of their own, of the user.
        """
        from scipy import sparse

        graph, measure_V = self.graph, self.measure.astype(np.float32)
        user, item = graph.link_user, graph.index_in_use[graph.link_item]
        negative_row = user if self.config.family == "pointwise" else row
        size = min(max(BLOCK_TERMS // len(measure_V), 1), graph.n_links)
        linked = sparse.csr_array(
            (np.ones(len(item)), item, graph.user_offsets), shape=(graph.n_users, len(measure_V))
        )
        counts = graph.user_degrees[user] * self.config.mask
        most = max(int(counts[rows].sum()) for rows in row_blocks(graph.n_links, size))
        value, by_users, by_items = 0.0, *(np.zeros(part.shape) for part in scored)
        for rows in row_blocks(graph.n_links, size):
            weight = (np.diff(rows, prepend=-1) > 0).astype(np.float32) / np.float32(graph.n_links)
            pairs = np.full((2, most), size, np.int32)  # outside the block: padding
            if self.config.mask:
                masked = linked[user[rows]].tocoo()
                pairs[:, : masked.nnz] = masked.coords
            block = row[rows], negative_row[rows], item[rows], weight, pairs, measure_V
            part, gradients = _block_sum(scored, block, self.loss, self.config.lambda_)
            value += float(part)
            by_users += np.asarray(gradients[0])
            by_items += np.asarray(gradients[1])
        return value, by_users, by_items


@partial(jax.jit, static_argnames=("loss", "lambda_"))
@jax.value_and_grad
def _block_sum(scored: Scored, block: Any, loss: Any, lambda_: float | None) -> jax.Array:
    users, items = scored
    row, negative_row, item, weight, pairs, measure_V = block
    scores_RxV = score_matrix(users[negative_row], items)
    mass_RxV = jnp.broadcast_to(measure_V[None, :], scores_RxV.shape)
    mass_RxV = mass_RxV.at[pairs[0], pairs[1]].set(0, mode="drop")
    positive = pair_scores(users[row], items[item])
    rows = row_losses(positive, scores_RxV, mass_RxV, loss, lambda_)
    return jnp.sum(jnp.where(weight > 0, weight * rows, 0.0))
