"""The in-batch softmax of NVIDIA Merlin Models."""

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
class Contrastive(Estimator):
    """``ContrastiveOutput(DotProduct(), "in-batch", logits_temperature=1 / scale)``.

    A column of positives stands before those of the batch's items; of these, the ones with the
    row's own id are false negatives and get the lowest score (``downscore_false_negatives``).
    """

    name = "merlin"
    title = "Merlin in-batch"
    version = "23.12.00"
    source = (
        "https://nvidia-merlin.github.io/models/stable/generated/"
        "merlin.models.tf.ContrastiveOutput.html"
    )
    claim = "softmax"
    remedy = "Add post=PopularityLogitsCorrection(item_frequencies)."

    scale: float = SCALE
    corrects: bool = False

    def loss(self, users: jax.Array, items: jax.Array, batch: Any) -> jax.Array:
        """See :meth:`Estimator.loss`."""
        scores = self.scale * users[batch.user] @ items[batch.item].T
        positive = jnp.diagonal(scores)
        if self.corrects:
            log_probability = jnp.log(batch.probability + 1e-16)
            positive, scores = positive - log_probability, scores - log_probability[None, :]
        is_own = batch.item[:, None] == batch.item[None, :]
        negative = jnp.where(is_own, -jnp.inf, scores)
        logits = jnp.concatenate([positive[:, None], negative], axis=1)
        return mean(jax.nn.logsumexp(logits, axis=1) - positive, batch.weight)

    def negatives(self, batches: Drawn) -> Negatives:
        """See :meth:`Estimator.negatives`."""
        return without_own_item(super().negatives(batches), batches)


@dataclass(frozen=True)
class CorrectedContrastive(Contrastive):
    """The same with ``post=PopularityLogitsCorrection``, which corrects positives too."""

    name = "merlin-logq"
    title = "Merlin, corrected"
    source = (
        "https://nvidia-merlin.github.io/models/stable/generated/"
        "merlin.models.tf.PopularityLogitsCorrection.html"
    )
    remedy = "Use it so, and as large a batch as fits."

    corrects: bool = True
