"""Cross-batch memory: item vectors of earlier batches as further negatives."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ncfbench.auditing.frameworks.claims import SCALE
from ncfbench.auditing.frameworks.estimator import Drawn, Estimator, drawn, in_batch_loss
from ncfbench.auditing.frameworks.links import Links


@dataclass(frozen=True)
class CrossBatchMemory(Estimator):
    """In-batch softmax with logQ correction and a queue of the items of the last batches.

    The queue's vectors are constants: no gradient reaches the items in it. They are those of the
    present parameters here, so what the audit shows does not come from their age.
    """

    name = "xbm"
    title = "XBM (CBNS)"
    version = "arXiv 2110.15154"
    source = "https://arxiv.org/abs/2110.15154"
    claim = "softmax"
    remedy = (
        "Items get only 1 / (batches in memory + 1) of their gradient as negatives: keep the memory"
        " short. Encoding its items again does not help unless their gradient is kept too."
    )

    scale: float = SCALE
    memory: int = 4
    """Batches in the queue."""

    def draw(self, links: Links, rng: np.random.Generator, size: int, count: int) -> Drawn:
        """Draw links, and the items of earlier batches."""
        own, queue = (
            rng.integers(len(links.user), size=(count, n)) for n in (size, self.memory * size)
        )
        return drawn(links, links.user[own], links.item[own], links.user[queue], links.item[queue])

    def loss(self, users: jax.Array, items: jax.Array, batch: Any) -> jax.Array:
        """See :meth:`Estimator.loss`."""
        queue = jax.lax.stop_gradient(items[batch.other_item])
        vectors = jnp.concatenate([items[batch.item], queue])
        probability = jnp.concatenate([batch.probability, batch.other_probability])
        logits = self.scale * users[batch.user] @ vectors.T - jnp.log(probability)[None, :]
        return in_batch_loss(logits, batch.weight)
