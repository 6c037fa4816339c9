"""Mean gradients of many batches at fixed parameters, dropout off: the embedding is shared, the
sampled links differ.

Two ways to the same sum. On large graphs each batch's gradient with respect to its node slots is
added up by node. On small ones all scores are in one table, a batch only says how much each of them
counts, and two products give the embeddings' gradient: five to ten times faster.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property, partial
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from ncfbench.audit.exact import Pull
from ncfbench.config import RunConfig
from ncfbench.data.graph import BipartiteGraph
from ncfbench.models.interaction import Interaction, make_interaction
from ncfbench.models.losses import Loss, make_loss
from ncfbench.models.objective import batch_scores, link_loss
from ncfbench.models.precision import full
from ncfbench.models.towers import UserVectors
from ncfbench.sampling import Sampler, plan_capacity
from ncfbench.sampling.batch import Batch, Listed, Shared

CHUNK_TERMS = 2**21
"""Link terms of the batches that are evaluated at once."""
TABLE_SCORES = 2**21
"""Up to this many pairs of a user and an item their scores are kept in a table."""


def stacked(batches: Sequence[Batch]) -> Iterator[Batch]:
    """Some batches as few trees of arrays with a leading axis; equal shapes, of bounded size."""
    weight = batches[0].negatives.weight
    size = max(1, min(len(batches), CHUNK_TERMS // weight.size))
    while len(batches) % size:
        size -= 1
    for start in range(0, len(batches), size):
        parts = batches[start : start + size]
        yield jax.tree.map(lambda *arrays: np.stack(arrays), *parts)


@partial(jax.jit, static_argnames=("interaction", "loss", "lambda_"))
@full
def slot_gradients(
    users: jax.Array,
    items: jax.Array,
    batches: Batch,
    interaction: Interaction,
    loss: Loss,
    lambda_: float | None,
) -> Any:
    """float32[C, U, D] and float32[C, V, D]: the gradient of each batch's loss with respect to the
    nodes in its slots.

    Args:
        users: float32[n_users, D], f of all users, as scores see it.
        items: float32[nodes, D], g of all items in use; the batches name items by their place among
            them.
        batches: with a leading axis of C batches.
    """

    def objective(f_UxD: jax.Array, g_VxD: jax.Array, batch: Batch) -> jax.Array:
        positive, negative = batch_scores(f_UxD, g_VxD, batch, interaction)
        return link_loss(positive, negative, batch.negatives.weight, loss, lambda_)

    return jax.vmap(jax.grad(objective, argnums=(0, 1)))(
        users[batches.users], items[batches.items], batches
    )


@partial(jax.jit, static_argnames=("loss", "lambda_"))
def score_gradients(
    positive: jax.Array, negative: jax.Array, weight: jax.Array, loss: Loss, lambda_: float | None
) -> tuple[jax.Array, jax.Array]:
    """float32[C, b] and float32[C, b, n]: the gradient of each batch's loss with respect to its
    scores.
    """
    objective = jax.grad(link_loss, argnums=(0, 1))
    found: tuple[jax.Array, jax.Array] = jax.vmap(
        lambda p, n, w: objective(p, n, w, loss, lambda_)
    )(positive, negative, weight)
    return found


class Block:
    """Some batches, as the gradients of several losses and parameters want them.

    Args:
        batches: of one shape.
    """

    def __init__(self, graph: BipartiteGraph, batches: Sequence[Batch]) -> None:
        self.batches, self.place, self.nodes = batches, graph.index_in_use, len(graph.items_in_use)
        self.groups = list(stacked(batches))
        counts = np.zeros(graph.n_users)
        for group in self.groups:
            positive = np.take_along_axis(group.users, group.pos_user, axis=1)
            counts += np.bincount(positive.reshape(-1), minlength=graph.n_users) / positive.shape[1]
        self.user_shares = counts / len(batches)
        """float64[n_users]: the mean share of a batch's positive links that are the user's."""

    @cached_property
    def keys(self) -> list[tuple[NDArray[np.int64], NDArray[np.int64]]]:
        """For each group the places of its positive and negative pairs in the table of scores:
        int64[C, b], [C, b, n].
        """
        result = []
        for group in self.groups:
            user = np.take_along_axis(group.users, group.pos_user, axis=1)
            item = np.take_along_axis(group.items, group.pos_item, axis=1)
            negatives = group.negatives
            if isinstance(negatives, Listed):
                flat = negatives.user.shape[0], -1
                users = np.take_along_axis(
                    group.users, negatives.user.reshape(flat), axis=1
                ).reshape(negatives.user.shape)
                items = np.take_along_axis(
                    group.items, negatives.item.reshape(flat), axis=1
                ).reshape(negatives.item.shape)
            else:
                users, items = user[:, :, None], group.items[:, None, :]
            result.append((self._key(user, item), self._key(users, items)))
        return result

    def _key(self, users: NDArray[np.int32], items: NDArray[np.int32]) -> NDArray[np.int64]:
        return users.astype(np.int64) * self.nodes + self.place[items]


class BatchGradients:
    """The gradient of the mean of some batches' losses, with respect to embeddings.

    Args:
        users: f of all users.
        items: float32[nodes, D], g of the items in use.
    """

    def __init__(self, config: RunConfig, users: UserVectors, items: jax.Array) -> None:
        self.loss, self.lambda_, self.user_l2 = make_loss(config), config.lambda_, config.user_l2
        self.interaction = make_interaction(config)
        self.users, self.items = np.asarray(users.scored), np.asarray(items)
        self.raw = np.asarray(users.raw, np.float64)
        self.small = len(self.users) * len(self.items) <= TABLE_SCORES

    def __call__(self, block: Block) -> Pull:
        """The mean over the block's batches; sums are added in float64."""
        users, items = self.by_score(block) if self.small else self.by_slot(block)
        n = len(block.batches)
        return Pull(users / n, items / n, 2 * self.user_l2 * block.user_shares[:, None] * self.raw)

    def by_slot(self, block: Block) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """The sum by way of the nodes' slots: any size of graph."""
        by_user, by_item = np.zeros(self.users.shape), np.zeros(self.items.shape)
        for group in block.groups:
            places = block.place[group.items]
            batches = group._replace(items=places)
            f, g = slot_gradients(
                self.users, self.items, batches, self.interaction, self.loss, self.lambda_
            )
            by_user += _sum_by(
                group.users.reshape(-1), np.asarray(f).reshape(-1, f.shape[-1]), len(by_user)
            )
            by_item += _sum_by(
                places.reshape(-1), np.asarray(g).reshape(-1, g.shape[-1]), len(by_item)
            )
        return by_user, by_item

    def by_score(self, block: Block) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """The sum by way of the table of all scores: small graphs."""
        table = np.asarray(_table(self.interaction, self.users, self.items)).reshape(-1)
        counts = np.zeros(len(table))
        for group, keys in zip(block.groups, block.keys, strict=True):
            scores = [table[key] for key in keys]
            for key, part in zip(
                keys,
                score_gradients(*scores, group.negatives.weight, self.loss, self.lambda_),
                strict=True,
            ):
                counts += np.bincount(key.reshape(-1), np.asarray(part).reshape(-1), len(table))
        by_pair = counts.reshape(len(self.users), len(self.items)).astype(np.float32)
        by_user, by_item = _table_gradient(self.interaction, self.users, self.items, by_pair)
        return np.asarray(by_user, np.float64), np.asarray(by_item, np.float64)


@partial(jax.jit, static_argnums=0)
@full
def _table(interaction: Interaction, users: jax.Array, items: jax.Array) -> jax.Array:
    """Return all scores, float32[n_users, nodes]."""
    return interaction.matrix(users, items)


@partial(jax.jit, static_argnums=0)
@full
def _table_gradient(
    interaction: Interaction, users: jax.Array, items: jax.Array, by_score: jax.Array
) -> Any:
    """Return the gradient of users and items from that of all scores."""
    return jax.vjp(interaction.matrix, users, items)[1](by_score)


def _sum_by(ids: NDArray[np.int32], rows: NDArray[np.float32], size: int) -> NDArray[np.float64]:
    """float64[size, D]: for each id the sum of its rows; padding's rows are zero."""
    from scipy import sparse

    one_hot = sparse.csr_matrix(
        (np.ones(len(ids)), ids, np.arange(len(ids) + 1)), shape=(len(ids), size)
    )
    summed: NDArray[np.float64] = one_hot.T @ rows
    return summed


def blocks_of(sampler: Sampler, count: int, size: int) -> Iterator[Block]:
    """``count`` blocks of ``size`` consecutive batches each."""
    stream = sampler.batches(0, plan_capacity(sampler.graph, sampler.config))
    for _ in range(count):
        batches: list[Batch] = []
        while len(batches) < size:
            batch = next(stream)
            if batches and len(batch.items) != len(batches[0].items):
                batches = [_wider(narrow, len(batch.items)) for narrow in batches]
            batches.append(batch)
        yield Block(sampler.graph, batches)


def _wider(batch: Batch, slots: int) -> Batch:
    """A batch with more padding slots."""
    more = slots - len(batch.items)
    items = np.pad(batch.items, (0, more))
    negatives = batch.negatives
    if isinstance(negatives, Shared):
        negatives = Shared(np.pad(negatives.weight, ((0, 0), (0, more))))
    return batch._replace(items=items, negatives=negatives)
