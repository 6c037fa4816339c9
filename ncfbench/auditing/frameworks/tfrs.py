"""The in-batch softmax of TensorFlow Recommenders."""

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
    in_batch_loss,
    without_own_item,
)


@dataclass(frozen=True)
class Retrieval(Estimator):
    """``tfrs.tasks.Retrieval(temperature=1 / scale)``: cross-entropy over the batch's candidates.

    The task's own loss is a sum over the batch; here it is the mean.
    """

    name = "tfrs"
    title = "TFRS Retrieval"
    version = "0.7.7"
    source = "https://www.tensorflow.org/recommenders/api_docs/python/tfrs/tasks/Retrieval"
    claim = "softmax"
    remedy = (
        "Pass candidate_sampling_probability, each item's share of the training links. The task"
        " sums over the batch: with SGD, divide the learning rate by b; with Adam it hardly"
        " matters."
    )

    scale: float = SCALE
    uses_probability: bool = False
    removes_hits: bool = False

    def loss(self, users: jax.Array, items: jax.Array, batch: Any) -> jax.Array:
        """See :meth:`Estimator.loss`."""
        logits = self.scale * users[batch.user] @ items[batch.item].T
        if self.uses_probability:
            logits = logits - jnp.log(jnp.clip(batch.probability, 1e-6, 1.0))[None, :]
        if self.removes_hits:
            is_hit = (batch.item[:, None] == batch.item[None, :]) & ~jnp.eye(
                len(logits), dtype=bool
            )
            logits = jnp.where(is_hit, -jnp.inf, logits)
        return in_batch_loss(logits, batch.weight)

    def negatives(self, batches: Drawn) -> Negatives:
        """See :meth:`Estimator.negatives`."""
        found = super().negatives(batches)
        return without_own_item(found, batches) if self.removes_hits else found


@dataclass(frozen=True)
class RetrievalWithProbability(Retrieval):
    """``Retrieval`` with ``candidate_sampling_probability``, which corrects every column."""

    name = "tfrs-logq"
    title = "TFRS, probabilities"
    remedy = "Use it so, and as large a batch as fits."
    limit = "softmax"

    uses_probability: bool = True


@dataclass(frozen=True)
class RetrievalWithoutHits(Retrieval):
    """``Retrieval(remove_accidental_hits=True)``: other rows with the same candidate are masked."""

    name = "tfrs-hits"
    title = "TFRS, hits removed"
    remedy = (
        "Removing hits does not correct for popularity: pass candidate_sampling_probability too."
    )

    removes_hits: bool = True
