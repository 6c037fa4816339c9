"""The in-batch softmax of NVIDIA Merlin Models.

The order of operations is that of release 23.12.00, ``merlin/models/tf/outputs/base.py``: the
output layer calls ``post``, and divides by the temperature last. A correction in ``post`` is
therefore divided by the temperature too. So is that of ``logq_sampling_correction=True``, which
``outputs/contrastive.py`` subtracts from the dot products.
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
    remedy = (
        "Add post=PopularityLogitsCorrection(item_frequencies, reg_factor=T) with T ="
        " logits_temperature, and store_negative_ids=True, which it needs."
    )

    scale: float = SCALE
    reg_factor: float = 0.0
    """Factor of log p, which is subtracted before the temperature divides; 0: no correction."""

    def loss(self, users: jax.Array, items: jax.Array, batch: Any) -> jax.Array:
        """See :meth:`Estimator.loss`."""
        scores = users[batch.user] @ items[batch.item].T
        if self.reg_factor:
            log_probability = jnp.log(batch.probability + 1e-16)
            scores = scores - self.reg_factor * log_probability[None, :]
        scores = self.scale * scores
        positive = jnp.diagonal(scores)
        is_own = batch.item[:, None] == batch.item[None, :]
        negative = jnp.where(is_own, -jnp.inf, scores)
        logits = jnp.concatenate([positive[:, None], negative], axis=1)
        return mean(jax.nn.logsumexp(logits, axis=1) - positive, batch.weight)

    def negatives(self, batches: Drawn) -> Negatives:
        """See :meth:`Estimator.negatives`."""
        return without_own_item(super().negatives(batches), batches)


@dataclass(frozen=True)
class CorrectedContrastive(Contrastive):
    """The same with ``post=PopularityLogitsCorrection``, which corrects positives too.

    Its ``reg_factor`` is the default, so that log p is divided by the temperature. It needs
    ``store_negative_ids=True``: without the negatives' ids it has b probabilities for b + 1
    columns.
    """

    name = "merlin-logq"
    title = "Merlin, corrected"
    source = (
        "https://nvidia-merlin.github.io/models/stable/generated/"
        "merlin.models.tf.PopularityLogitsCorrection.html"
    )
    remedy = "The temperature T divides log p too: set reg_factor=T, so that T cancels."

    reg_factor: float = 1.0


@dataclass(frozen=True)
class RescaledContrastive(CorrectedContrastive):
    """The same with ``reg_factor=logits_temperature``, so that log p is subtracted undivided."""

    name = "merlin-logq-t"
    title = "Merlin, reg_factor=T"
    remedy = (
        "Use it with as large a batch as fits. The bias in the limit comes from the positive's"
        " weight 1 / (b p), which must be 1: correct only the negatives, by log(b p)."
    )
    limit = "softmax-others"

    reg_factor: float = 1 / SCALE
