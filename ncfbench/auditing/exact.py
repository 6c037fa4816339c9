"""The exact objective: L over all pairs of a user and an item, and its gradient.

For data where links x items is not too large; in blocks of bounded memory. No link is sampled:
every training link is a positive one, and every item in use is a negative of each, with its
probability.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from ncfbench.auditing.gradients import Float64, VectorGradient, flat64
from ncfbench.auditing.user_rows import Ids, UserRows
from ncfbench.config import RunConfig
from ncfbench.data.graph import BipartiteGraph
from ncfbench.errors import UsageError
from ncfbench.models.interaction import Interaction
from ncfbench.models.losses import Loss, Pointwise, make_loss
from ncfbench.models.objective import row_losses
from ncfbench.sampling.noise import Noise, explicit_measure
from ncfbench.training.inference import Embedder, row_blocks
from ncfbench.training.state import Parameters

MAX_TERMS = 2**34
"""Pairs of a row and an item that the sum may have: about ten minutes of two cores."""
BLOCK_TERMS = 2**20
LINK_BLOCK = 2**16

Scored: TypeAlias = tuple[Interaction, jax.Array, jax.Array]
"""The interaction, and the vectors of all users and of the items in use."""
Named: TypeAlias = tuple[Any, Ids]
"""Weights of named items as negatives of a group of rows, in place of the measure, a sparse table
[groups, V] whose stored values count, zeros too; and the group of each row, [R].
"""
Sum: TypeAlias = tuple[Any, Any, Any, Any]
"""A sum of losses, float, and its gradients by the vectors of users and items and by the
interaction, float64[rows, D], [V, D] and [R]. See :class:`UserRows`.
"""


@dataclass(frozen=True)
class Exact:
    """L and its gradient at some parameters."""

    value: float
    gradient: VectorGradient


class ExactObjective:
    """L for a graph and a loss, as a function of the parameters.

    Raises:
        UsageError: the sum over all pairs would take too long.
    """

    def __init__(self, graph: BipartiteGraph, config: RunConfig, embedder: Embedder) -> None:
        self.graph, self.config, self.embedder = graph, config, embedder
        self.nodes = graph.items_in_use
        self.is_pointwise = config.family == "pointwise"
        # A pointwise loss needs each user once, with the weight of her links.
        rows = int((graph.user_degrees > 0).sum()) if self.is_pointwise else graph.n_links
        if rows * len(self.nodes) > MAX_TERMS:
            raise UsageError(
                f"The exact objective of --loss {config.loss} is a sum over {rows:,} x"
                f" {len(self.nodes):,} pairs: too many. Use a smaller data set, for example:"
                " ncfbench prepare synthetic --users 200 --items 300 --links 4000."
            )
        noise = Noise(graph, config.noise_exponent).probability[self.nodes]
        self.measure = np.ones(len(self.nodes)) if config.family == "listwise" else noise
        self.loss = make_loss(config)

    def __call__(self, parameters: Parameters) -> Exact:
        """Return L and its gradient; sums over blocks are added in float64."""
        from scipy import sparse

        graph, user_l2 = self.graph, self.config.user_l2
        rows = UserRows.of(graph, self.config)
        users = rows.vectors(self.embedder, parameters)
        items = self.embedder.items(parameters, self.nodes)
        scored = self.embedder.interaction(parameters), users.scored, items
        user, item = graph.link_user, graph.index_in_use[graph.link_item]
        row = rows.of_links(user, graph.link_item)
        left_out = sparse.csr_array((graph.n_users, len(self.nodes)))
        if self.config.mask:
            links = np.zeros(graph.n_links), item, graph.user_offsets
            left_out = sparse.csr_array(links, shape=left_out.shape)
        weight, positive = np.full(graph.n_links, 1 / graph.n_links), _zero(scored)
        if self.is_pointwise:
            positive = sum_links(scored, row, item, weight, self.loss)
            user = np.flatnonzero(graph.user_degrees > 0).astype(np.int32)
            item, weight = np.zeros_like(user), graph.user_degrees[user] / graph.n_links
        negative_row = user if self.is_pointwise else row
        own = explicit_measure(graph, self.config)
        has_own = np.zeros(len(user), bool) if own is None else np.diff(own.indptr)[user] > 0
        negative = _zero(scored)
        for chosen, measure, table in (
            (~has_own, self.measure, left_out),
            (has_own, np.zeros(len(self.nodes)), left_out if own is None else own[:, self.nodes]),
        ):
            if chosen.any():
                terms = negative_row[chosen], item[chosen], weight[chosen], measure
                named = table, user[chosen]
                part = sum_rows(scored, *terms, named, self.loss, self.config.lambda_)
                negative = _added(negative, part)
        whole = _added(positive, negative)
        shares = np.bincount(row, minlength=rows.count) / graph.n_links
        raw = np.asarray(users.raw, np.float64)
        return Exact(
            value=whole[0] + user_l2 * float(np.sum(shares * np.sum(raw**2, axis=1))),
            gradient=VectorGradient(*whole[1:], 2 * user_l2 * shares[:, None] * raw),
        )


def sum_links(scored: Scored, user: Ids, item: Ids, weight: Float64, loss: Loss) -> Sum:
    """Return the weighted sum of the losses of positive links, [L]."""
    blocks = ((user[rows], item[rows], weights) for rows, weights in _blocks(weight, LINK_BLOCK))
    return _sum(_links, scored, blocks, loss, None)


def sum_rows(
    scored: Scored,
    user: Ids,
    item: Ids,
    weight: Float64,
    measure: Float64,
    named: Named,
    loss: Loss,
    lambda_: float | None,
) -> Sum:
    """Return the weighted sum of the losses of rows with all their negatives.

    Args:
        user, item, weight: [R], of each row; a pointwise loss needs no item.
        measure: float64[V], the weight of each item as a negative.
        named: weights of some pairs in place of that; 0 of those that are no negatives.
    """
    size = min(max(BLOCK_TERMS // len(measure), 1), len(user))
    measure_V = measure.astype(np.float32)
    table, group = named
    counts = np.diff(table.indptr)[group]
    most = max(int(counts[rows].sum()) for rows, _ in _blocks(weight, size))

    def blocks() -> Iterator[Any]:
        for rows, weights in _blocks(weight, size):
            pairs = np.full((2, most), size, np.int32)  # outside the block: padding
            masses = np.zeros(most, np.float32)
            chosen = table[group[rows]].tocoo()
            pairs[:, : chosen.nnz], masses[: chosen.nnz] = chosen.coords, chosen.data
            yield user[rows], item[rows], weights, (*pairs, masses), measure_V

    return _sum(_rows, scored, blocks(), loss, lambda_)


def _blocks(weight: Float64, size: int) -> Iterator[tuple[Ids, NDArray[np.float32]]]:
    """Yield rows in blocks of one size, with their weights: 0 for those that fill the last one."""
    for rows in row_blocks(len(weight), min(size, len(weight))):
        yield rows, np.where(np.diff(rows, prepend=-1) > 0, weight[rows], 0).astype(np.float32)


def _sum(
    function: Any, scored: Scored, blocks: Iterable[Any], loss: Loss, lambda_: float | None
) -> Sum:
    total = _zero(scored)
    for block in blocks:
        value, (interaction, users, items) = function(scored, block, loss, lambda_)
        part = float(value), np.asarray(users), np.asarray(items), flat64(interaction)
        total = _added(total, part)
    return total


def _zero(scored: Scored) -> Sum:
    interaction, users, items = scored
    return 0.0, np.zeros(users.shape), np.zeros(items.shape), np.zeros(flat64(interaction).shape)


def _added(one: Sum, other: Sum) -> Sum:
    value, users, items, interaction = map(operator.add, one, other)
    return value, users, items, interaction


@partial(jax.jit, static_argnames=("loss", "lambda_"))
@jax.value_and_grad
def _links(scored: Scored, block: Any, loss: Any, lambda_: float | None) -> jax.Array:
    (interaction, users, items), (user, item, weight) = scored, block
    return jnp.sum(weight * loss.positive(interaction.pairs(users[user], items[item])))


@partial(jax.jit, static_argnames=("loss", "lambda_"))
@jax.value_and_grad
def _rows(scored: Scored, block: Any, loss: Any, lambda_: float | None) -> jax.Array:
    interaction, users, items = scored
    user, item, weight, (named_row, named_item, masses), measure_V = block
    f_RxD = users[user]
    scores_RxV = interaction.matrix(f_RxD, items)
    mass_RxV = jnp.broadcast_to(measure_V[None, :], scores_RxV.shape)
    mass_RxV = mass_RxV.at[named_row, named_item].set(masses, mode="drop")
    if isinstance(loss, Pointwise):
        silent = jnp.where(mass_RxV == 0, 0.0, scores_RxV)
        rows = loss.negative_rows(silent, mass_RxV, lambda_)
    else:
        positive = interaction.pairs(f_RxD, items[item])
        rows = row_losses(positive, scores_RxV, mass_RxV, loss, None)
    return jnp.sum(jnp.where(weight > 0, weight * rows, 0.0))
