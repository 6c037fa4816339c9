"""Reference: in-batch softmax with everything right, to tell the bias of a sampled softmax from a
fault.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from ncfbench.auditing.frameworks.claims import SCALE
from ncfbench.auditing.frameworks.estimator import (
    Drawn,
    Estimator,
    Negatives,
    mean,
    without_own_item,
)


@dataclass(frozen=True)
class Reference(Estimator):
    """Softmax over a link's own item, once, and the other links' items with weights 1 / ((b-1) p).

    ``-log(exp(s_i) / (exp(s_i) + sum_{j: v_j != v_i} exp(s_ij) / ((b - 1) p_j)))``. The sum has the
    right expectation, so the only bias left is that of the logarithm, of the order of 1 / b.
    """

    name = "reference"
    title = "reference, in-batch"
    version = "-"
    source = "https://doi.org/10.1145/3298689.3346996"
    claim = "softmax"
    limit = "softmax"
    remedy = "This is the bias that any softmax over so small a sample has."

    scale: float = SCALE

    def log_weight(self, probability_b: jax.Array) -> jax.Array:
        """Return the logarithm of the other items' weights."""
        return -jnp.log((len(probability_b) - 1) * probability_b)

    def vector_loss(self, f_bxD: jax.Array, g_bxD: jax.Array, batch: Any) -> jax.Array:
        """Return the loss as a function of the batch's own vectors."""
        scores = self.scale * f_bxD @ g_bxD.T
        own = jnp.diagonal(scores)
        others = scores + self.log_weight(batch.probability)[None, :]
        others = jnp.where(batch.item[:, None] == batch.item[None, :], -jnp.inf, others)
        rows = jax.nn.logsumexp(jnp.concatenate([own[:, None], others], axis=1), axis=1) - own
        return mean(rows, batch.weight)

    def loss(self, users: jax.Array, items: jax.Array, batch: Any) -> jax.Array:
        """See :meth:`Estimator.loss`."""
        return self.vector_loss(users[batch.user], items[batch.item], batch)

    def negatives(self, batches: Drawn) -> Negatives:
        """See :meth:`Estimator.negatives`."""
        return without_own_item(super().negatives(batches), batches)
