"""GradCache: the gradient of a large batch from chunks that fit into memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from ncfbench.auditing.frameworks.claims import SCALE
from ncfbench.auditing.frameworks.estimator import Estimator, in_batch_loss

CHUNKS = 4


def cached(
    vector_loss: Callable[[jax.Array, jax.Array], jax.Array],
    f_bxD: jax.Array,
    g_bxD: jax.Array,
    replayed: Sequence[int] = range(CHUNKS),
) -> jax.Array:
    """Return a loss whose gradient comes from a cache, chunk by chunk.

    First the gradient by all vectors, without the towers; then each chunk's vectors again, times
    their cached gradient, so that the chain rule goes on into the towers.

    Args:
        replayed: the chunks whose gradients reach the towers; all of them if it is right.
    """
    fixed = jax.lax.stop_gradient((f_bxD, g_bxD))
    value, (f_cache, g_cache) = jax.value_and_grad(vector_loss, argnums=(0, 1))(*fixed)
    chunks = jnp.split(jnp.concatenate([f_bxD * f_cache, g_bxD * g_cache], axis=1), CHUNKS)
    total = jnp.sum(jnp.stack([chunks[number] for number in replayed]))
    loss: jax.Array = total - jax.lax.stop_gradient(total) + value
    return loss


@dataclass(frozen=True)
class GradCache(Estimator):
    """``GradCache`` around its ``SimpleContrastiveLoss``: in-batch softmax without a correction."""

    name = "gradcache"
    title = "GradCache"
    version = "arXiv 2101.06983"
    source = "https://github.com/luyug/GradCache"
    claim = "softmax"
    remedy = (
        "The cache is exact; the loss inside lacks a correction: give it a loss that subtracts"
        " log p(item) from the logits."
    )

    scale: float = SCALE

    def loss(self, users: jax.Array, items: jax.Array, batch: Any) -> jax.Array:
        """See :meth:`Estimator.loss`."""
        vectors = users[batch.user], items[batch.item]
        return cached(lambda f, g: in_batch_loss(self.scale * f @ g.T, batch.weight), *vectors)
