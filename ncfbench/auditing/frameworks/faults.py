"""Planted faults that estimators have had: the audit must find each of them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import numpy as np

from ncfbench.auditing.frameworks.estimator import Drawn, drawn
from ncfbench.auditing.frameworks.gradcache import CHUNKS, cached
from ncfbench.auditing.frameworks.links import Links
from ncfbench.auditing.frameworks.recbole import Bpr
from ncfbench.auditing.frameworks.reference import Reference


@dataclass(frozen=True)
class WrongSign(Reference):
    """The reference with the logarithm of the weights added where it must be subtracted."""

    name = "fault-sign"
    title = "FAULT: sign of logQ"
    fault = "wrong sign of the logQ correction"
    limit = ""
    remedy = "Subtract log p(item) from the logits."

    def log_weight(self, probability_b: jax.Array) -> jax.Array:
        """See :meth:`Reference.log_weight`."""
        return -super().log_weight(probability_b)


@dataclass(frozen=True)
class MissingCorrection(Reference):
    """The reference with weights as if all items were equally likely to be in the batch."""

    name = "fault-missing"
    title = "FAULT: no logQ"
    fault = "no logQ correction"
    limit = ""
    remedy = "Subtract log p(item) from the logits."

    def draw(self, links: Links, rng: np.random.Generator, size: int, count: int) -> Drawn:
        """Draw as the reference does, and forget the items' probabilities."""
        batches = super().draw(links, rng, size, count)
        return batches._replace(probability=np.full_like(batches.probability, 1 / links.n_items))


@dataclass(frozen=True)
class DroppedGradients(Reference):
    """The reference through a cache that keeps the gradient of the last chunk only."""

    name = "fault-dropped"
    title = "FAULT: chunks lost"
    fault = "a cached loss that drops all gradients but the last"
    limit = ""
    remedy = "Let the gradients of all chunks add up before the optimiser's step."

    def loss(self, users: jax.Array, items: jax.Array, batch: Any) -> jax.Array:
        """See :meth:`Estimator.loss`."""
        loss = partial(self.vector_loss, batch=batch)
        return cached(loss, users[batch.user], items[batch.item], replayed=[CHUNKS - 1])


@dataclass(frozen=True)
class Collisions(Bpr):
    """RecBole's BPR without its check that a drawn item is no link of the user."""

    name = "fault-collisions"
    title = "FAULT: linked pairs"
    fault = "linked pairs among the negatives"
    remedy = "Draw again where the item is a link of the user."

    def draw(self, links: Links, rng: np.random.Generator, size: int, count: int) -> Drawn:
        """Draw links, and for each any item."""
        rows = rng.integers(len(links.user), size=(count, size))
        other = rng.integers(links.n_items, size=rows.shape, dtype=np.int32)
        return drawn(links, links.user[rows], links.item[rows], links.user[rows], other)
