"""The probe: one estimate of the objective for all samplers, so that their losses compare.

It evaluates a fixed set of links and of draws from P_n, which depends on the data set and the
probe's settings alone, never on the run's sampler or seed; dropout off.
Where links x items is small it is the exact sum over all pairs. The penalty of coupling is left
out: losses of runs with other weights of it stay comparable.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from ncfbench.config import MAX_SEED, RunConfig
from ncfbench.data.graph import BipartiteGraph
from ncfbench.models.losses import Loss, Pointwise, make_loss
from ncfbench.models.objective import row_losses
from ncfbench.models.scores import pair_scores, score_matrix
from ncfbench.models.towers import UserVectors
from ncfbench.rng import Streams
from ncfbench.sampling.noise import Noise
from ncfbench.training.inference import Embedder, row_blocks
from ncfbench.training.state import Parameters

PROBE_SEED = MAX_SEED + 2
EXACT_TERMS = 2**23
"""Up to this many pairs of a link and an item the probe is exact."""
LISTWISE_TERMS = 2**25
"""Pairs in the probe of a listwise loss, which sums over all items for each link."""
BLOCK_TERMS = 2**18


class ProbeLinks(NamedTuple):
    """The probe's terms, a row for each of M positive links."""

    user: NDArray[np.int32]
    """int32[M]: user ids."""
    item: NDArray[np.int32]
    """int32[M]: indices in ``nodes``."""
    negative: NDArray[np.int32] | None
    """int32[M, K]: indices in ``nodes``; None if each row has all nodes in order."""
    weight: NDArray[np.float32]
    """float32[M, K]: sums each row's negative terms to their expectation."""
    nodes: NDArray[np.int32]
    """Ids of the items to embed."""

    @classmethod
    def choose(cls, graph: BipartiteGraph, config: RunConfig) -> ProbeLinks:
        """Choose all pairs where they are few.

        Else ``probe_links`` links without replacement, and ``probe_negatives`` draws with it.
        """
        noise = Noise(graph, config.noise_exponent)
        nodes, index = graph.items_in_use, graph.index_in_use
        exact = graph.n_links * len(nodes) <= EXACT_TERMS
        streams = Streams(PROBE_SEED)
        listwise = config.family == "listwise"
        limit = LISTWISE_TERMS // len(nodes) if listwise else config.probe_links
        size = graph.n_links if exact else min(max(limit, 1), config.probe_links, graph.n_links)
        links = np.sort(streams.generator("links").choice(graph.n_links, size, replace=False))
        user = graph.link_user[links]
        if exact or listwise:
            # The logarithm of a sampled sum is biased: a listwise loss takes fewer links instead,
            # and all items for each.
            share = np.ones(len(nodes)) if listwise else noise.probability[nodes]
            negative, weight = None, np.tile(share.astype(np.float32), (size, 1))
            if config.mask:
                weight[graph.linked_block(user, nodes)] = 0
        else:
            drawn = noise.draw(streams.generator("negatives"), size * config.probe_negatives)
            drawn = drawn.reshape(size, config.probe_negatives)
            negative = index[drawn]
            weight = np.full(drawn.shape, np.float32(1 / config.probe_negatives))
            if config.mask:
                weight[graph.linked(user[:, None], drawn)] = 0
        item = index[graph.link_item[links]]
        return cls(user, item, negative, weight, nodes)


def compiled_sum(loss: Loss, lambda_: float | None, user_l2: float) -> Any:
    """Return a compiled function that sums each row's estimate of L over a block of the probe."""

    @jax.jit
    def block_sum(
        users: UserVectors,
        link_users: UserVectors | None,
        items: jax.Array,
        block: Any,
    ) -> jax.Array:
        """Rows that are not real are padding."""
        row, user, item, negative, weight, real = block
        of_user = UserVectors(users.scored[user], users.raw[user])
        of_link = (
            of_user
            if link_users is None
            else UserVectors(link_users.scored[row], link_users.raw[row])
        )
        positive = pair_scores(of_link.scored, items[item])
        f = (of_user if isinstance(loss, Pointwise) else of_link).scored
        if negative is None:
            scores = score_matrix(f, items)
        else:
            scores = jnp.einsum("md,mkd->mk", f, items[negative])  # a third of the time of sums
        rows = row_losses(positive, scores, weight, loss, lambda_)
        penalty = user_l2 * jnp.sum(jnp.square(of_link.raw), axis=-1)
        return jnp.sum(jnp.where(real, rows + penalty, 0.0))

    return block_sum


class Probe:
    """Evaluates the objective on the probe's links."""

    def __init__(self, graph: BipartiteGraph, config: RunConfig, embedder: Embedder) -> None:
        self.links = ProbeLinks.choose(graph, config)
        self.embedder = embedder
        self._block_sum = compiled_sum(make_loss(config), config.lambda_, config.user_l2)
        links, (rows, terms) = self.links, self.links.weight.shape
        size = max(1, BLOCK_TERMS // terms)
        self._blocks: list[Any] = []
        for number, take in enumerate(row_blocks(rows, size)):
            real = np.arange(number * size, (number + 1) * size) == take
            negative = None if links.negative is None else links.negative[take]
            arrays = (take, links.user[take], links.item[take], negative, links.weight[take], real)
            self._blocks.append(jax.device_put(arrays))

    def __call__(self, parameters: Parameters) -> float:
        """Return L, with the users' penalty; sums over blocks are added in float64."""
        users = self.embedder.users(parameters)
        links = self.links
        link_users = self.embedder.link_users(parameters, links.user, links.nodes[links.item])
        items = self.embedder.items(parameters, links.nodes)
        sums = [self._block_sum(users, link_users, items, block) for block in self._blocks]
        total = np.sum([np.asarray(value, np.float64) for value in sums])
        return float(total / len(links.user))
