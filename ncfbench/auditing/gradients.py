"""Mean gradients of many batches at fixed parameters, dropout off.

The towers are fixed functions then, so a batch's gradient is a linear image of its gradient with
respect to the vectors of users and items. That one is cheap
(:class:`BatchGradients`), and only the mean over a block of batches goes back through the towers
(:class:`Pullback`).
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from numpy.typing import NDArray

from ncfbench.auditing.blocks import Block
from ncfbench.auditing.user_rows import UserRows
from ncfbench.config import RunConfig
from ncfbench.data.graph import BipartiteGraph
from ncfbench.models.losses import Loss, make_loss
from ncfbench.models.objective import batch_link_loss
from ncfbench.models.tables import WHOLE_TABLES
from ncfbench.models.towers import UserVectors
from ncfbench.sampling.batch import Batch
from ncfbench.training.inference import Embedder, row_blocks
from ncfbench.training.state import Parameters

Float64 = NDArray[np.float64]


class VectorGradient(NamedTuple):
    """A gradient with respect to the vectors of all users and of the items in use."""

    users: Float64
    """float64[rows, D]: by the users' vectors that scores are made of, see :class:`UserRows`."""
    items: Float64
    """float64[nodes, D]."""
    raw: Float64
    """float64[rows, D]: by the users' vectors before any normalisation."""


class Pullback:
    """Turns a gradient with respect to vectors into one with respect to parameters.

    The towers embed each node by itself, so this map is linear: a mean of gradients needs it once.

    Args:
        graph: its items in use have gradients.
    """

    def __init__(self, embedder: Embedder, graph: BipartiteGraph) -> None:
        self.embedder, self.graph, self.nodes = embedder, graph, graph.items_in_use

        def compiled(method: str) -> Any:
            @jax.jit
            def pull(parameters: Parameters, cotangent: Any, *arguments: Any) -> Parameters:
                def embed(parameters: Parameters) -> Any:
                    return getattr(nnx.merge(embedder.towers, parameters), method)(*arguments)

                return jax.vjp(embed, parameters)[1](cotangent)[0]

            return pull

        self._by_users, self._by_items = compiled("users"), compiled("items")

    def __call__(self, parameters: Parameters, gradient: VectorGradient) -> NDArray[np.float32]:
        """Return float32[P]: the gradient with respect to all parameters, as one vector."""
        content, graph = self.embedder.content, self.graph
        by_users, by_links = (
            UserVectors(
                *(jnp.asarray(part[rows], jnp.float32) for part in (gradient.users, gradient.raw))
            )
            for rows in (slice(graph.n_users), slice(graph.n_users, None))
        )
        total = self._by_users(parameters, by_users, content)
        if len(by_links.raw):
            links = graph.link_user, WHOLE_TABLES, graph.link_item
            part = self._by_users(parameters, by_links, content, *links)
            total = jax.tree.map(jnp.add, total, part)
        count = len(self.nodes)
        for rows in row_blocks(count, min(self.embedder.block, count)):
            is_new = np.diff(rows, prepend=-1)[:, None] > 0
            by_items = np.where(is_new, gradient.items[rows], 0).astype(np.float32)
            part = self._by_items(parameters, by_items, self.nodes[rows], content)
            total = jax.tree.map(jnp.add, total, part)
        return flat(total)


def flat(parameters: Parameters) -> NDArray[np.float32]:
    """Return all parameters, or their gradient, as one vector float32[P]."""
    return np.concatenate([np.asarray(leaf).reshape(-1) for leaf in jax.tree.leaves(parameters)])


class BatchGradients:
    """The gradient of the mean of some batches' losses, with respect to vectors.

    Args:
        parameters: at which gradients are taken.
    """

    def __init__(
        self, graph: BipartiteGraph, config: RunConfig, embedder: Embedder, parameters: Parameters
    ) -> None:
        users = UserRows(graph, config.reads_histories).vectors(embedder, parameters)
        items = np.asarray(embedder.items(parameters, graph.items_in_use))
        self.loss, self.lambda_, self.user_l2 = make_loss(config), config.lambda_, config.user_l2
        self.scored = np.asarray(users.scored), items
        self.raw = np.asarray(users.raw, np.float64)

    def __call__(self, block: Block) -> VectorGradient:
        """Return the mean over the block's batches; sums are added in float64."""
        users, items = (total / len(block.batches) for total in self._sums(block))
        penalty = 2 * self.user_l2 * block.user_shares[:, None] * self.raw
        return VectorGradient(users, items, penalty)

    def _sums(self, block: Block) -> tuple[Float64, Float64]:
        """Return the sums over batches by users and items, by way of their slots."""
        users, items = self.scored
        by_user, by_item = np.zeros(users.shape), np.zeros(items.shape)
        for group, rows in zip(block.groups, block.positives, strict=True):
            group = group._replace(items=block.graph.index_in_use[group.items])
            link_rows = rows if block.rows.has_links else None
            f, g, by_link = _slot_gradients(self.scored, group, link_rows, self.loss, self.lambda_)
            named = [(by_user, group.users, f), (by_item, group.items, g)]
            if link_rows is not None:
                named.append((by_user, link_rows, by_link))
            for total, ids, parts in named:
                total += _sum_by(ids.reshape(-1), np.asarray(parts).reshape(ids.size, -1), total)
        return by_user, by_item


@partial(jax.jit, static_argnames=("loss", "lambda_"))
def _slot_gradients(
    scored: Any, batches: Batch, link_rows: Any, loss: Loss, lambda_: float | None
) -> Any:
    """Return each batch's gradient by the vectors in its slots and of its positive links:
    float32[C, U, D], [C, V, D] and [C, b, D].

    Args:
        batches: with a leading axis of C batches; they name items by their index among those in
            use.
        link_rows: int[C, b], the users' rows of the positive links, where these have their own.
    """
    users, items = scored

    def objective(
        f_UxD: jax.Array, g_VxD: jax.Array, own_bxD: jax.Array | None, batch: Batch
    ) -> jax.Array:
        return batch_link_loss(f_UxD, g_VxD, batch, loss, lambda_, own_bxD=own_bxD)

    def gradient(vectors: Any) -> Any:
        return jax.grad(objective, argnums=(0, 1, 2))(*vectors)

    own_bxD = None if link_rows is None else users[link_rows]
    vectors = users[batches.users], items[batches.items], own_bxD, batches
    return jax.vmap(gradient)(vectors)


def _sum_by(ids: NDArray[np.integer], rows: NDArray[np.float32], like: Float64) -> Float64:
    """Return the sum of the rows of each id, of the shape of ``like``; padding's rows are zero."""
    from scipy import sparse

    one_hot = sparse.csr_matrix(
        (np.ones(len(ids)), ids, np.arange(len(ids) + 1)), shape=(len(ids), len(like))
    )
    summed: Float64 = one_hot.T @ rows
    return summed
