"""The exact objective: L over all pairs of a user and an item, and its gradient.

For data where links x items is not too large; in blocks of bounded memory. No link is sampled:
every training link is a positive one, and every item in use is a negative of each, with its
probability.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from ncfbench.auditing.gradients import Float64, VectorGradient, flat64
from ncfbench.config import RunConfig
from ncfbench.data.graph import BipartiteGraph
from ncfbench.errors import UsageError
from ncfbench.models.interaction import Interaction
from ncfbench.models.losses import Loss, Pointwise, make_loss
from ncfbench.models.objective import row_losses
from ncfbench.models.precision import full
from ncfbench.sampling.noise import Noise
from ncfbench.training.inference import Embedder
from ncfbench.training.state import Parameters

MAX_TERMS = 2**34
"""Pairs of a row and an item that the sum may have: about ten minutes of two cores."""
BLOCK_TERMS = 2**20
LINK_BLOCK = 2**16

Scored: TypeAlias = tuple[Interaction, jax.Array, jax.Array]
"""The interaction, and the vectors of all users and of the items in use."""


@dataclass(frozen=True)
class Exact:
    """L and its gradient at some parameters."""

    value: float
    positive: VectorGradient
    """The part of the positive links' own terms and of the users' penalty."""
    negative: VectorGradient
    """The part of the terms with a negative link in them."""


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
        measure = np.ones(len(self.nodes)) if config.family == "listwise" else noise
        self.measure = measure.astype(np.float32)
        self.loss = make_loss(config)

    def __call__(self, parameters: Parameters) -> Exact:
        """Return L and its gradient; sums over blocks are added in float64."""
        graph, user_l2 = self.graph, self.config.user_l2
        vectors = self.embedder.users(parameters)
        items = self.embedder.items(parameters, self.nodes)
        interaction = self.embedder.interaction(parameters)
        users, raw = vectors.scored, np.asarray(vectors.raw, np.float64)
        shares = graph.user_degrees / graph.n_links
        penalty = user_l2 * float(np.sum(shares * np.sum(raw**2, axis=1)))
        scored = interaction, users, items
        positive_value, positive = 0.0, _zeros(scored)
        if self.is_pointwise:
            positive_value, positive = self._sum(positive_sum, scored, self._link_blocks())
        negative_value, negative = self._sum(negative_sum, scored, self._row_blocks())
        return Exact(
            value=positive_value + negative_value + penalty,
            positive=VectorGradient(*positive, 2 * user_l2 * shares[:, None] * raw),
            negative=VectorGradient(*negative, np.zeros(raw.shape)),
        )

    def _sum(
        self, function: Any, scored: Scored, blocks: Iterator[Any]
    ) -> tuple[float, tuple[Float64, Float64, Float64]]:
        return sum_blocks(function, scored, blocks, self.loss, self.config.lambda_)

    def _link_blocks(self) -> Iterator[Any]:
        """Yield all links, in blocks of one size."""
        graph = self.graph
        weight = np.full(graph.n_links, 1 / graph.n_links)
        yield from link_blocks(graph.link_user, graph.index_in_use[graph.link_item], weight)

    def _row_blocks(self) -> Iterator[Any]:
        """Yield users (or links), their weights, and their linked pairs, which are no negatives."""
        graph = self.graph
        if self.is_pointwise:
            user = np.flatnonzero(graph.user_degrees > 0).astype(np.int32)
            item, weight = np.zeros(len(user), np.int32), graph.user_degrees[user] / graph.n_links
        else:
            user, item = graph.link_user, graph.index_in_use[graph.link_item]
            weight = np.full(graph.n_links, 1 / graph.n_links)

        def linked(rows: NDArray[np.integer]) -> tuple[NDArray[Any], NDArray[Any]]:
            return graph.linked_block(user[rows], self.nodes)

        left_out = (graph.user_degrees[user], linked) if self.config.mask else None
        yield from row_blocks(user, item, weight, self.measure, left_out)


LeftOut: TypeAlias = tuple[
    NDArray[np.integer], Callable[[NDArray[np.integer]], tuple[NDArray[Any], NDArray[Any]]]
]
"""How many items each row leaves out of its negatives; and a function from rows to the pairs (index
of the row among those asked for, item) that are left out.
"""


def link_blocks(
    user: NDArray[np.integer], item: NDArray[np.integer], weight: NDArray[np.float64]
) -> Iterator[Any]:
    """Yield positive links in blocks of one size, for :func:`positive_sum`.

    Links of weight 0 fill the last block.
    """
    size = min(LINK_BLOCK, len(user))
    for start in range(0, len(user), size):
        take = np.minimum(np.arange(start, start + size), len(user) - 1)
        real = np.arange(start, start + size) < len(user)
        yield user[take], item[take], np.where(real, weight[take], 0).astype(np.float32)


def row_blocks(
    user: NDArray[np.integer],
    item: NDArray[np.integer],
    weight: NDArray[np.float64],
    measure: NDArray[np.float32],
    left_out: LeftOut | None,
) -> Iterator[Any]:
    """Yield rows of a user and a positive item in blocks of one size, for :func:`negative_sum`.

    Rows of weight 0 fill the last block.

    Args:
        user, item, weight: [R], of each row; a pointwise loss needs no item.
        measure: float32[V], the weight of each item as a negative.
        left_out: the pairs that are no negatives.
    """
    size = min(max(BLOCK_TERMS // len(measure), 1), len(user))
    starts = range(0, len(user), size)
    most = max(int(left_out[0][i : i + size].sum()) for i in starts) if left_out else 0
    for start in starts:
        take = np.minimum(np.arange(start, start + size), len(user) - 1)
        real = np.arange(start, start + size) < len(user)
        out_row, out_item = np.full((2, most), size, np.int32)
        if left_out:
            row, column = left_out[1](take[real])
            out_row[: len(row)], out_item[: len(row)] = row, column
        weights = np.where(real, weight[take], 0).astype(np.float32)
        yield user[take], item[take], weights, out_row, out_item, measure


def sum_blocks(
    function: Any, scored: Scored, blocks: Iterator[Any], loss: Loss, lambda_: float | None
) -> tuple[float, tuple[Float64, Float64, Float64]]:
    """Return the sum over blocks, and its gradients by users, items and the interaction.

    Args:
        function: :func:`positive_sum` or :func:`negative_sum`.
    """
    value, (by_user, by_item, by_interaction) = 0.0, _zeros(scored)
    for block in blocks:
        part, (interaction_part, user_part, item_part) = function(*scored, block, loss, lambda_)
        value += float(part)
        by_user += np.asarray(user_part)
        by_item += np.asarray(item_part)
        by_interaction += flat64(interaction_part)
    return value, (by_user, by_item, by_interaction)


def _zeros(scored: Scored) -> tuple[Float64, Float64, Float64]:
    """Return zeros for the gradients by users, items and the interaction's parameters."""
    interaction, users, items = scored
    return np.zeros(users.shape), np.zeros(items.shape), np.zeros(flat64(interaction).shape)


@partial(jax.jit, static_argnames=("loss", "lambda_"))
@full
@partial(jax.value_and_grad, argnums=(0, 1, 2))
def positive_sum(
    interaction: Interaction,
    users: jax.Array,
    items: jax.Array,
    block: Any,
    loss: Any,
    lambda_: float | None,
) -> jax.Array:
    """Sum the loss of positive links; returns the value and its gradients."""
    user, item, weight = block
    return jnp.sum(weight * loss.positive(interaction.pairs(users[user], items[item])))


@partial(jax.jit, static_argnames=("loss", "lambda_"))
@full
@partial(jax.value_and_grad, argnums=(0, 1, 2))
def negative_sum(
    interaction: Interaction,
    users: jax.Array,
    items: jax.Array,
    block: Any,
    loss: Any,
    lambda_: float | None,
) -> jax.Array:
    """Sum the loss of rows with all their negatives; returns the value and its gradients."""
    user, item, weight, linked_row, linked_item, measure_V = block
    f_RxD = users[user]
    scores_RxV = interaction.matrix(f_RxD, items)
    mass_RxV = (
        jnp.broadcast_to(measure_V[None, :], scores_RxV.shape)
        .at[linked_row, linked_item]
        .set(0, mode="drop")
    )
    if isinstance(loss, Pointwise):
        silent = jnp.where(mass_RxV == 0, 0.0, scores_RxV)
        rows = loss.negative_rows(silent, mass_RxV, lambda_)
    else:
        positive = interaction.pairs(f_RxD, items[item])
        rows = row_losses(positive, scores_RxV, mass_RxV, loss, None)
    return jnp.sum(jnp.where(weight > 0, weight * rows, 0.0))
