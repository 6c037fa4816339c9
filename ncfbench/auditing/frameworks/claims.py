"""Claims: the exact objectives that the frameworks' losses estimate, over all users and items."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from numpy.typing import NDArray

from ncfbench.auditing.exact import (
    LeftOut,
    link_blocks,
    negative_sum,
    positive_sum,
    row_blocks,
    sum_blocks,
)
from ncfbench.auditing.frameworks.links import Float32, Float64, Int32, Links, Vectors
from ncfbench.config import complete
from ncfbench.models.interaction import DotProduct
from ncfbench.models.losses import LogLoss, Loss, SampledSoftmax, SkipGram

SCALE = 20.0
"""Scale of the cosine in a softmax: the default of sentence-transformers."""
PAPER_GAMMA = 10.0
"""Scale of the paper's pairwise log loss (KDD 2017, section 5)."""
DIMENSION = 32
WARM_UP = 6
"""Steps along the exact gradient before the audit, so that vectors are those of a model in
training.
"""
LEARNING_RATE = 0.03


@dataclass(frozen=True)
class ExactGradient:
    """An objective's value and gradient at some vectors."""

    value: float
    users: Float64
    """float64[U, D + 1]."""
    items: Float64
    """float64[V, D + 1]."""


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

    def exact(self, links: Links, vectors: Vectors) -> ExactGradient:
        """Return the objective's value and gradient; visits every pair."""
        interaction = DotProduct(complete({}), rngs=nnx.Rngs(0))
        scored = interaction, jnp.asarray(vectors.users), jnp.asarray(vectors.items)
        measure = links.degree.astype(np.float64) ** self.exponent
        free = np.where(links.table, 0, measure).sum(axis=1)
        user, item, positive = links.user, links.item, 0.0
        by_user, by_item = np.zeros(vectors.users.shape), np.zeros(vectors.items.shape)
        weight = np.full(len(user), 1 / len(user))
        if self.left_out == "linked" and self.loss.family != "pointwise":
            links.require_unlinked_items()
        if self.loss.family == "pointwise":
            # Half of the loss is that of the links, half that of the pairs without one.
            blocks = link_blocks(user, item, weight / 2)
            positive, (by_user, by_item, _) = sum_blocks(
                positive_sum, scored, blocks, self.loss, None
            )
            user = np.arange(links.n_users, dtype=np.int32)
            item, weight = np.zeros_like(user), np.full(len(user), 0.5 / free.sum())
        elif self.left_out == "linked":
            weight = weight / free[user]
        elif not self.is_listwise:
            measure = measure / measure.sum()
        rows = row_blocks(
            user, item, weight, measure.astype(np.float32), self._left_out(links, user, item)
        )
        value, parts = sum_blocks(negative_sum, scored, rows, self.loss, 1.0)
        return ExactGradient(value + positive, by_user + parts[0], by_item + parts[1])

    def _left_out(self, links: Links, user: Int32, item: Int32) -> LeftOut | None:
        if self.left_out == "nothing":
            return None
        if self.left_out == "own":
            return np.ones(len(user), np.int64), lambda rows: (np.arange(len(rows)), item[rows])

        def linked(rows: NDArray[np.integer]) -> tuple[NDArray[Any], NDArray[Any]]:
            row, column = np.nonzero(links.table[user[rows]])
            return row, column

        return links.table.sum(axis=1)[user], linked

    def warm_vectors(self, links: Links, seed: int) -> Vectors:
        """Return random vectors after :data:`WARM_UP` steps along the exact gradient."""
        rng = np.random.default_rng(seed)
        free = [
            rng.normal(0, DIMENSION**-0.5, (n, DIMENSION)).astype(np.float32)
            for n in (links.n_users, links.n_items)
        ]
        optimiser = optax.adam(LEARNING_RATE)
        state = optimiser.init(free)
        for _ in range(WARM_UP):
            found = self.exact(links, self._vectors(free))
            gradient = [part[:, :-1].astype(np.float32) for part in (found.users, found.items)]
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


CLAIMS = {
    "softmax": Claim(
        "softmax",
        "the softmax over all items",
        SampledSoftmax(SCALE),
        left_out="own",
        is_unit=True,
    ),
    "bpr": Claim(
        "BPR",
        "BPR against all items that are no link of the user, all alike",
        LogLoss(1.0),
        left_out="linked",
    ),
    "bpr-popular": Claim(
        "BPR pop.",
        "BPR against all items that are no link of the user, by popularity",
        LogLoss(1.0),
        left_out="linked",
        exponent=1.0,
    ),
    "bce": Claim(
        "BCE",
        "the cross-entropy of all links and of all pairs without a link, half and half",
        SkipGram(),
        left_out="linked",
    ),
    "paper": Claim(
        "log, P_n",
        "the paper's pairwise log loss with negatives by popularity",
        LogLoss(PAPER_GAMMA),
        left_out="nothing",
        exponent=1.0,
        is_unit=True,
    ),
}


@dataclass(frozen=True)
class OthersSoftmax(SampledSoftmax):
    """The softmax's loss without the positive item in the sum, over all items.

    ``log sum_{w != v} exp(gamma (s_w - s_v))``.
    """

    def row(self, positive: jax.Array, negative: jax.Array, weight: jax.Array) -> jax.Array:
        """See :meth:`SampledSoftmax.row`."""
        return jax.nn.logsumexp(self.gamma * (negative - positive[:, None]), axis=1, b=weight)


LIMITS = CLAIMS | {
    "softmax-others": Claim(
        "softmax over others",
        "the softmax over all items but the positive one",
        OthersSoftmax(SCALE),
        left_out="own",
        is_unit=True,
    )
}
"""Limits of estimates as the batch grows: the claims, and objectives that none claims."""
