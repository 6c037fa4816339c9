"""Mean gradients of many batches at fixed parameters, dropout off.

The towers are fixed functions then, so a batch's gradient is a linear image of its gradient with
respect to the vectors of users and items and to the interaction's parameters. That one is cheap
(:class:`BatchGradients`), and only the mean over a block of batches goes back through the towers
(:class:`Pullback`).

There are two ways to the same sum over batches. On large graphs each batch's gradient with respect
to its slots is added up by node. On small ones all scores are in one table, a batch only says how
much each of them counts, and one more step gives the vectors' gradient: five to ten times faster.
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
from ncfbench.models.interaction import Interaction
from ncfbench.models.losses import Loss, Pointwise, make_loss
from ncfbench.models.objective import (
    ALL,
    Hardness,
    batch_link_loss,
    hard_weights,
    pairs_loss,
    without_remembered,
)
from ncfbench.models.tables import INTERACTION, WHOLE_TABLES
from ncfbench.models.towers import UserVectors
from ncfbench.sampling.batch import Batch
from ncfbench.training.inference import Embedder, row_blocks
from ncfbench.training.state import Parameters

TABLE_SCORES = 2**21
"""Up to this many pairs of a user and an item, their scores are kept in a table."""

Float64 = NDArray[np.float64]


class VectorGradient(NamedTuple):
    """A gradient with respect to the vectors of all users and of the items in use, and to the
    interaction's parameters.
    """

    users: Float64
    """float64[rows, D]: by the users' vectors that scores are made of, see :class:`UserRows`."""
    items: Float64
    """float64[nodes, D]."""
    interaction: Float64
    """float64[R]: by the interaction's parameters, as :func:`flat64` orders them."""
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
        if len(gradient.interaction):
            leaves, structure = jax.tree.flatten(parameters[INTERACTION])
            ends = np.cumsum([leaf.size for leaf in leaves])[:-1]
            parts = np.split(gradient.interaction.astype(np.float32), ends)
            shaped = [part.reshape(leaf.shape) for part, leaf in zip(parts, leaves, strict=True)]
            total = nnx.State({**total, INTERACTION: jax.tree.unflatten(structure, shaped)})
        return flat(total)


def flat(parameters: Parameters) -> NDArray[np.float32]:
    """Return all parameters, or their gradient, as one vector float32[P]."""
    return np.concatenate([np.asarray(leaf).reshape(-1) for leaf in jax.tree.leaves(parameters)])


def flat64(interaction: Interaction) -> Float64:
    """Return an interaction's parameters, or a gradient by them, as one vector float64[R]."""
    leaves = jax.tree.leaves(nnx.as_pure(nnx.state(interaction)))
    return np.concatenate(
        [np.zeros(0), *(np.asarray(leaf, np.float64).reshape(-1) for leaf in leaves)]
    )


class BatchGradients:
    """The gradient of the mean of some batches' losses, with respect to vectors and interaction.

    Args:
        parameters: at which gradients are taken.
    """

    def __init__(
        self, graph: BipartiteGraph, config: RunConfig, embedder: Embedder, parameters: Parameters
    ) -> None:
        users = UserRows.of(graph, config).vectors(embedder, parameters)
        items = np.asarray(embedder.items(parameters, graph.items_in_use))
        self.loss, self.lambda_, self.user_l2 = make_loss(config), config.lambda_, config.user_l2
        self.scored = embedder.interaction(parameters), np.asarray(users.scored), items
        self.raw = np.asarray(users.raw, np.float64)
        self.is_small = len(users.scored) * len(items) <= TABLE_SCORES

    def __call__(self, block: Block) -> VectorGradient:
        """Return the mean over the block's batches; sums are added in float64."""
        by_score = self.is_small and not block.remembers
        sums = self.by_score(block) if by_score else self.by_slot(block)
        users, items, interaction = (total / len(block.batches) for total in sums)
        penalty = 2 * self.user_l2 * block.user_shares[:, None] * self.raw
        return VectorGradient(users, items, interaction, penalty)

    def by_slot(self, block: Block) -> tuple[Float64, Float64, Float64]:
        """Return the sums by users, items and the interaction's parameters, by way of the nodes'
        slots, for graphs of any size.
        """
        interaction, users, items = self.scored
        by_user, by_item = np.zeros(users.shape), np.zeros(items.shape)
        by_interaction = np.zeros(flat64(interaction).shape)
        for group, rows in zip(block.groups, block.positives, strict=True):
            group = group._replace(items=block.graph.index_in_use[group.items])
            own = rows if block.rows.has_links else None
            made = _slot_gradients(self.scored, group, own, self.loss, self.lambda_, block.hardness)
            r, f, g, by_own = made
            named = [(by_user, group.users, f), (by_item, group.items, g)]
            if own is not None:
                named.append((by_user, own, by_own))
            for total, ids, parts in named:
                total += _sum_by(ids.reshape(-1), np.asarray(parts).reshape(ids.size, -1), total)
            by_interaction += flat64(r)
        return by_user, by_item, by_interaction

    def by_score(self, block: Block) -> tuple[Float64, Float64, Float64]:
        """Return the same by way of the table of all scores, for small graphs."""
        table = np.asarray(_table(self.scored))
        scores, counts = table.reshape(-1), np.zeros(table.size)
        keeps = block.hardness != ALL and self.loss.info.includes_positive
        is_pointwise = isinstance(self.loss, Pointwise)
        for positive, negative, weight in block.pairs(is_pointwise=is_pointwise):
            kept = positive[:, :, None] == negative if keeps else None
            pairs = scores[positive], scores[negative], weight, kept
            parts = _score_gradients(pairs, self.loss, self.lambda_, block.hardness)
            for index, part in zip((positive, negative), parts, strict=True):
                counts += np.bincount(index.reshape(-1), np.asarray(part).reshape(-1), table.size)
        by_score = counts.reshape(table.shape).astype(np.float32)
        r, by_user, by_item = _table_gradient(self.scored, by_score)
        return np.asarray(by_user, np.float64), np.asarray(by_item, np.float64), flat64(r)


@partial(jax.jit, static_argnames=("loss", "lambda_", "hardness"))
def _slot_gradients(
    scored: Any, batches: Batch, own: Any, loss: Loss, lambda_: float | None, hardness: Hardness
) -> Any:
    """Return the sum of all batches' gradients by the interaction, and each batch's gradient by the
    vectors in its slots and of its positive links: float32[C, U, D], [C, V, D] and [C, b, D].

    Args:
        batches: with a leading axis of C batches; they name items by their index among those in
            use.
        own: int[C, b], the users' rows of the positive links, where these have their own.
    """
    interaction, users, items = scored

    def objective(
        interaction: Interaction,
        f_UxD: jax.Array,
        g_VxD: jax.Array,
        own_bxD: jax.Array | None,
        batch: Batch,
    ) -> jax.Array:
        g_VxD = without_remembered(g_VxD, batch)
        return batch_link_loss(
            f_UxD, g_VxD, batch, interaction, loss, lambda_, hardness=hardness, own_bxD=own_bxD
        )

    def gradient(vectors: Any) -> Any:
        return jax.grad(objective, argnums=(0, 1, 2, 3))(interaction, *vectors)

    own_bxD = None if own is None else users[own]
    vectors = users[batches.users], items[batches.items], own_bxD, batches
    if not jax.tree.leaves(interaction):
        return jax.vmap(gradient)(vectors)
    # One batch after the other: a network has many numbers for each score.
    r, *by_vectors = jax.lax.map(gradient, vectors)
    return jax.tree.map(lambda parts: jnp.sum(parts, axis=0), r), *by_vectors


@partial(jax.jit, static_argnames=("loss", "lambda_", "hardness"))
def _score_gradients(pairs: Any, loss: Loss, lambda_: float | None, hardness: Hardness) -> Any:
    """Return each batch's gradient by its scores: float32[C, b] and float32[C, n, m].

    Args:
        pairs: scores of positive and of negative pairs, and the last two arguments of
            :func:`ncfbench.models.objective.hard_weights`.
    """
    positive, negative, weight, kept = pairs
    weight = hard_weights(positive, negative, weight, hardness, kept)

    def gradient(positive: jax.Array, negative: jax.Array, weight: jax.Array) -> Any:
        return jax.grad(pairs_loss, argnums=(0, 1))(positive, negative, weight, loss, lambda_)

    return jax.vmap(gradient)(positive, negative, weight)


@jax.jit
def _table(scored: Any) -> Any:
    """Return all scores, float32[rows, nodes]."""
    interaction, users, items = scored
    return interaction.matrix(users, items)


@jax.jit
def _table_gradient(scored: Any, by_score: jax.Array) -> Any:
    """Return the gradient by interaction, users and items from that by all scores."""
    return jax.vjp(type(scored[0]).matrix, *scored)[1](by_score)


def _sum_by(ids: NDArray[np.integer], rows: NDArray[np.float32], like: Float64) -> Float64:
    """Return the sum of the rows of each id, of the shape of ``like``; padding's rows are zero."""
    from scipy import sparse

    one_hot = sparse.csr_matrix(
        (np.ones(len(ids)), ids, np.arange(len(ids) + 1)), shape=(len(ids), len(like))
    )
    summed: Float64 = one_hot.T @ rows
    return summed
