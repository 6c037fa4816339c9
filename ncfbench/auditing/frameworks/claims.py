"""Claims: the exact objectives that the frameworks' losses estimate, over all users and items."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from scipy import sparse

from ncfbench.auditing.exact import Named, Sum, sum_links, sum_rows
from ncfbench.auditing.frameworks.draws import Float32, require_unlinked_items
from ncfbench.auditing.frameworks.losses import PAPER_GAMMA, SCALE
from ncfbench.config import complete
from ncfbench.data.graph import BipartiteGraph
from ncfbench.models.interaction import DotProduct
from ncfbench.models.losses import LogLoss, Loss, SampledSoftmax, SkipGram

DIMENSION = 32
WARM_UP = 6
"""Steps along the exact gradient before the audit, so that vectors are those of a model in
training.
"""
LEARNING_RATE = 0.03


class Vectors(NamedTuple):
    """The vectors that scores are made of; the score of a pair is their dot product.

    The last coordinate is 1 for users and 0 for items. The gradient by an item's last coordinate is
    then the derivative of the loss by a shift of all the item's scores: what the loss does to it.
    """

    users: Float32
    """float32[U, D + 1]."""
    items: Float32
    """float32[V, D + 1]."""


@dataclass(frozen=True)
class Claim:
    """An objective: a mean over links (or pairs) of a loss with all items that may be negatives."""

    title: str
    meaning: str
    """The objective in words, for the end of a sentence."""
    loss: Loss
    left_out: Literal["own", "linked", "nothing"]
    """Items that are no negatives of a link: its own item, all links of the user, or none."""
    exponent: float = 0.0
    """Negatives weigh as their items' links to this power."""
    is_unit: bool = False
    """Whether vectors are normalised to length 1 before they are scored."""

    @property
    def is_listwise(self) -> bool:
        """Whether a sampled estimate is consistent at best, and never unbiased."""
        return self.loss.family == "listwise"

    @property
    def scale(self) -> float:
        """The factor of scores in the loss."""
        return float(getattr(self.loss, "gamma", 1.0))

    @property
    def counts_linked(self) -> bool:
        """Whether a user's other links are among the negatives."""
        return self.left_out != "linked"

    def exact(self, graph: BipartiteGraph, vectors: Vectors) -> Sum:
        """Return the objective and its gradient; visits every pair."""
        interaction = DotProduct(complete({}), rngs=nnx.Rngs(0))
        scored = interaction, jnp.asarray(vectors.users), jnp.asarray(vectors.items)
        user, item = graph.link_user, graph.link_item
        measure = graph.item_degrees.astype(np.float64) ** self.exponent
        free = measure.sum() - np.bincount(user, measure[item], graph.n_users)
        weight, positive = np.full(graph.n_links, 1 / graph.n_links), Sum.zero(scored)
        if self.loss.family == "pointwise":
            # Half of the loss is that of the links, half that of the pairs without one.
            positive = sum_links(scored, user, item, weight / 2, self.loss)
            user = np.arange(graph.n_users, dtype=np.int32)
            item, weight = np.zeros_like(user), np.full(len(user), 0.5 / free.sum())
        elif self.left_out == "linked":
            require_unlinked_items(graph)
            weight = weight / free[user]
        elif not self.is_listwise:
            measure = measure / measure.sum()
        left_out: Named | None = None
        if self.left_out == "own":
            left_out = 0 * sparse.eye_array(graph.n_items, format="csr"), item
        elif self.left_out == "linked":
            links = np.zeros(graph.n_links), graph.link_item, graph.user_offsets
            left_out = sparse.csr_array(links, shape=(graph.n_users, graph.n_items)), user
        rows = user, item, weight, measure
        return positive.plus(sum_rows(scored, *rows, left_out, self.loss, 1.0))

    def warm_vectors(self, graph: BipartiteGraph, seed: int) -> Vectors:
        """Return random vectors after :data:`WARM_UP` steps along the exact gradient."""
        rng = np.random.default_rng(seed)
        free = [
            rng.normal(0, DIMENSION**-0.5, (n, DIMENSION)).astype(np.float32)
            for n in (graph.n_users, graph.n_items)
        ]
        optimiser = optax.adam(LEARNING_RATE)
        state = optimiser.init(free)
        for _ in range(WARM_UP):
            exact = self.exact(graph, self._vectors(free))
            gradient = [part[:, :-1].astype(np.float32) for part in (exact.users, exact.items)]
            updates, state = optimiser.update(gradient, state)
            free = [np.asarray(rows) for rows in optax.apply_updates(free, updates)]
        return self._vectors(free)

    def _vectors(self, free: list[Float32]) -> Vectors:
        users, items = (
            rows / np.linalg.norm(rows, axis=1, keepdims=True) if self.is_unit else rows
            for rows in free
        )
        return Vectors(
            np.pad(users, ((0, 0), (0, 1)), constant_values=1.0), np.pad(items, ((0, 0), (0, 1)))
        )


@dataclass(frozen=True)
class OthersSoftmax(SampledSoftmax):
    """The softmax's loss without the positive item in the sum, over all items.

    ``log sum_{w != v} exp(gamma (s_w - s_v))``.
    """

    def row(self, positive: jax.Array, negative: jax.Array, weight: jax.Array) -> jax.Array:
        """See :meth:`SampledSoftmax.row`."""
        return jax.nn.logsumexp(self.gamma * (negative - positive[:, None]), axis=1, b=weight)


CLAIMS = {
    "softmax": Claim(
        "softmax", "the softmax over all items", SampledSoftmax(SCALE), "own", is_unit=True
    ),
    "bpr": Claim(
        "BPR",
        "BPR against all items that are no link of the user, all alike",
        LogLoss(1.0),
        "linked",
    ),
    "bpr-popular": Claim(
        "BPR pop.",
        "BPR against all items that are no link of the user, by popularity",
        LogLoss(1.0),
        "linked",
        exponent=1.0,
    ),
    "bce": Claim(
        "BCE",
        "the cross-entropy of all links and of all pairs without a link, half and half",
        SkipGram(),
        "linked",
    ),
    "paper": Claim(
        "log, P_n",
        "the paper's pairwise log loss with negatives by popularity",
        LogLoss(PAPER_GAMMA),
        "nothing",
        exponent=1.0,
        is_unit=True,
    ),
}
LIMITS = CLAIMS | {
    "softmax-others": Claim(
        "softmax over others",
        "the softmax over all items but the positive one",
        OthersSoftmax(SCALE),
        "own",
        is_unit=True,
    )
}
"""Limits of estimates as the batch grows: the claims, and objectives that none claims."""
