"""A softmax over the hardest negatives of a batch, as a plug-in: see docs/integrate.md."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp

from ncfbench.catalog import LOSSES, LossInfo
from ncfbench.models.losses import SampledSoftmax

HARDEST = 16


@dataclass(frozen=True)
class Hardest(SampledSoftmax):
    """Counts the negatives of a link's highest scores, and any that equal the lowest of them."""

    info = LossInfo(uses=(), gamma=LOSSES["softmax"].gamma, bias="easy negatives are left out")

    def batch_rows(
        self, positive: jax.Array, negative: jax.Array, weight: jax.Array, lambda_: float | None
    ) -> jax.Array:
        scores = jnp.where(weight > 0, jax.lax.stop_gradient(negative), -jnp.inf)
        best, _ = jax.lax.top_k(scores, min(HARDEST, scores.shape[1]))
        return self.rows(positive, negative, jnp.where(scores >= best[:, -1:], weight, 0), lambda_)
