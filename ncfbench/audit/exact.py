"""The exact objective: L over all user-item pairs and its gradient, in blocks of bounded memory.

For data where links x items is not too large. No link is sampled: every training link is a positive
one, and every item in use is a negative of each, with its probability.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from numpy.typing import NDArray

from ncfbench.config import RunConfig
from ncfbench.data.graph import BipartiteGraph
from ncfbench.errors import UsageError
from ncfbench.models.interaction import Interaction, make_interaction
from ncfbench.models.losses import make_loss
from ncfbench.models.objective import row_losses
from ncfbench.models.precision import full
from ncfbench.models.towers import Towers, UserVectors
from ncfbench.sampling.noise import Noise
from ncfbench.training.inference import Embedder
from ncfbench.training.step import Parameters

MAX_TERMS = 2**34
"""Pairs of a row and an item that the sum may have: some ten minutes of two cores."""
BLOCK_TERMS = 2**20

Float64 = NDArray[np.float64]


@dataclass(frozen=True)
class Pull:
    """A gradient with respect to embeddings: of f's and g's outputs as scores see them, and of f's
    raw vectors.
    """

    users: Float64
    """float64[n_users, D]."""
    items: Float64
    """float64[n_nodes, D]: of the items in use."""
    raw: Float64
    """float64[n_users, D]."""

    def __add__(self, other: Pull) -> Pull:
        return Pull(self.users + other.users, self.items + other.items, self.raw + other.raw)


class Pullback:
    """From a gradient with respect to embeddings to one with respect to parameters, at fixed
    parameters, dropout off.

    The towers embed each node by itself, so this map is linear: a mean of gradients needs it once.
    """

    def __init__(
        self, towers: nnx.GraphDef[Towers], embedder: Embedder, nodes: NDArray[np.int32]
    ) -> None:
        self.embedder, self.nodes = embedder, nodes

        @jax.jit
        @full
        def of_users(parameters: Parameters, cotangent: UserVectors) -> Parameters:
            return jax.vjp(lambda p: nnx.merge(towers, p).users(), parameters)[1](cotangent)[0]

        @jax.jit
        @full
        def of_items(
            parameters: Parameters, ids: jax.Array, items: jax.Array, content: Any
        ) -> Parameters:
            embed = lambda parameters: nnx.merge(towers, parameters).items(ids, content)  # noqa: E731
            return jax.vjp(embed, parameters)[1](items)[0]

        self._of_users, self._of_items = of_users, of_items

    def __call__(self, parameters: Parameters, pull: Pull) -> NDArray[np.float32]:
        """float32[P]: the gradient with respect to all parameters, as one vector."""
        cotangent = UserVectors(
            *(jnp.asarray(part, jnp.float32) for part in (pull.users, pull.raw))
        )
        total = self._of_users(parameters, cotangent)
        block = self.embedder.block if len(self.nodes) > self.embedder.block else len(self.nodes)
        for start in range(0, len(self.nodes), block):
            # Behind the last item stand items with no gradient.
            ids = np.zeros(block, np.int32)
            rows = np.zeros((block, pull.items.shape[1]), np.float32)
            real = min(block, len(self.nodes) - start)
            ids[:real] = self.nodes[start : start + real]
            rows[:real] = pull.items[start : start + real]
            part = self._of_items(parameters, ids, rows, self.embedder.content)
            total = jax.tree.map(jnp.add, total, part)
        return flat(total)


def flat(parameters: Parameters) -> NDArray[np.float32]:
    """float32[P]: all parameters, or their gradient, as one vector."""
    return np.concatenate([np.asarray(leaf).reshape(-1) for leaf in jax.tree.leaves(parameters)])


@dataclass(frozen=True)
class Exact:
    """L and its gradient at some parameters."""

    value: float
    positive: Pull
    """The part of the positive links' own terms, and of the users' penalty."""
    negative: Pull
    """The part of the terms that have a negative link in them."""


class ExactObjective:
    """L of the design for a graph and a loss, as a function of the parameters.

    Raises:
        UsageError: the sum over all pairs would take too long.
    """

    def __init__(self, graph: BipartiteGraph, config: RunConfig, embedder: Embedder) -> None:
        self.graph, self.config, self.embedder = graph, config, embedder
        self.nodes = graph.items_in_use
        self.pointwise = config.family == "pointwise"
        # A pointwise loss needs each user once, with the weight of her links.
        rows = int((graph.user_degrees > 0).sum()) if self.pointwise else graph.n_links
        if rows * len(self.nodes) > MAX_TERMS:
            raise UsageError(
                f"The exact objective of --loss {config.loss} is a sum over {rows:,} x"
                f" {len(self.nodes):,} pairs: too many. Use a smaller data set, for example:"
                " ncfbench prepare synthetic --users 200 --items 300 --links 4000."
            )
        noise = Noise(graph, config.noise_exponent)
        measure = (
            np.ones(len(self.nodes))
            if config.family == "listwise"
            else noise.probability[self.nodes]
        )
        self.measure = measure.astype(np.float32)
        self.loss, self.lambda_ = make_loss(config), config.lambda_
        self.interaction = make_interaction(config)

    def __call__(self, parameters: Parameters) -> Exact:
        """L and its gradient; sums over blocks are added in float64."""
        graph = self.graph
        vectors = self.embedder.users(parameters)
        items = self.embedder.items(parameters, self.nodes)
        users, raw = vectors.scored, np.asarray(vectors.raw, np.float64)
        shares = graph.user_degrees / graph.n_links
        penalty = self.config.user_l2 * float(np.sum(shares * np.sum(raw**2, axis=1)))
        zeros = np.zeros(raw.shape), np.zeros((len(self.nodes), items.shape[1]))
        positive_value, positive = 0.0, zeros
        if self.pointwise:
            positive_value, positive = self._sum(_positive, users, items, self._link_blocks())
        negative_value, negative = self._sum(_negative, users, items, self._row_blocks())
        return Exact(
            value=positive_value + negative_value + penalty,
            positive=Pull(*positive, raw=2 * self.config.user_l2 * shares[:, None] * raw),
            negative=Pull(*negative, raw=np.zeros(raw.shape)),
        )

    def _sum(
        self, function: Any, users: jax.Array, items: jax.Array, blocks: Any
    ) -> tuple[float, tuple[Float64, Float64]]:
        value, by_user, by_item = 0.0, np.zeros(users.shape), np.zeros(items.shape)
        for block in blocks:
            part, (user_part, item_part) = function(
                users, items, block, self.interaction, self.loss, self.lambda_
            )
            value += float(part)
            by_user += np.asarray(user_part)
            by_item += np.asarray(item_part)
        return value, (by_user, by_item)

    def _link_blocks(self) -> Any:
        """All links, in blocks of one size; those of weight 0 fill the last."""
        graph, size = self.graph, min(2**16, self.graph.n_links)
        for start in range(0, graph.n_links, size):
            take = np.minimum(np.arange(start, start + size), graph.n_links - 1)
            weight = (np.arange(start, start + size) < graph.n_links) / graph.n_links
            yield (
                graph.link_user[take],
                graph.index_in_use[graph.link_item[take]],
                weight.astype(np.float32),
            )

    def _row_blocks(self) -> Any:
        """Users (or links), the weight of each, and the linked pairs of each block, which are no
        negatives.
        """
        graph = self.graph
        if self.pointwise:
            user = np.flatnonzero(graph.user_degrees > 0).astype(np.int32)
            item, weight = np.zeros(len(user), np.int32), graph.user_degrees[user] / graph.n_links
        else:
            user, item = graph.link_user, graph.index_in_use[graph.link_item]
            weight = np.full(graph.n_links, 1 / graph.n_links)
        size = min(max(BLOCK_TERMS // len(self.nodes), 1), len(user))
        starts = range(0, len(user), size)
        most = (
            max(int(graph.user_degrees[user[start : start + size]].sum()) for start in starts)
            if self.config.mask
            else 0
        )
        for start in starts:
            take = np.minimum(np.arange(start, start + size), len(user) - 1)
            real = np.arange(start, start + size) < len(user)
            linked_row, linked_item = np.full((2, most), size, np.int32)
            if self.config.mask:
                row, column = graph.linked_block(user[take][real], self.nodes)
                linked_row[: len(row)], linked_item[: len(row)] = row, column
            weights = np.where(real, weight[take], 0).astype(np.float32)
            yield user[take], item[take], weights, linked_row, linked_item, self.measure


@partial(jax.jit, static_argnames=("interaction", "loss", "lambda_"))
@full
@partial(jax.value_and_grad, argnums=(0, 1))
def _positive(
    users: jax.Array,
    items: jax.Array,
    block: Any,
    interaction: Interaction,
    loss: Any,
    lambda_: float | None,
) -> jax.Array:
    user, item, weight = block
    scores = interaction.pairs(users[user], items[item])
    return jnp.sum(weight * loss.positive(scores))


@partial(jax.jit, static_argnames=("interaction", "loss", "lambda_"))
@full
@partial(jax.value_and_grad, argnums=(0, 1))
def _negative(
    users: jax.Array,
    items: jax.Array,
    block: Any,
    interaction: Interaction,
    loss: Any,
    lambda_: float | None,
) -> jax.Array:
    user, item, weight, linked_row, linked_item, measure_V = block
    f_RxD = users[user]
    scores_RxV = interaction.matrix(f_RxD, items)
    mass_RxV = (
        jnp.broadcast_to(measure_V[None, :], scores_RxV.shape)
        .at[linked_row, linked_item]
        .set(0, mode="drop")
    )
    if lambda_ is not None:
        silent = jnp.where(mass_RxV == 0, 0.0, scores_RxV)
        rows = lambda_ * jnp.sum(mass_RxV * loss.negative(silent), axis=-1)
    else:
        positive = interaction.pairs(f_RxD, items[item])
        rows = row_losses(positive, scores_RxV, mass_RxV, loss, None)
    return jnp.sum(jnp.where(weight > 0, weight * rows, 0.0))
