"""The BPR loss of RecBole, with both of its negative samplers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ncfbench.auditing.frameworks.estimator import (
    Drawn,
    Estimator,
    Negatives,
    drawn,
    mean,
    others_as_negatives,
)
from ncfbench.auditing.frameworks.links import Links


@dataclass(frozen=True)
class Bpr(Estimator):
    """``BPRLoss`` with ``distribution: uniform, sample_num: 1``: an unlinked item for each link."""

    name = "recbole"
    title = "RecBole, uniform"
    version = "1.2.1"
    source = "https://recbole.io/docs/user_guide/config/training_settings.html"
    claim = "bpr"
    remedy = "One negative for each link makes it noisy: raise sample_num."

    by_popularity: bool = False

    def draw(self, links: Links, rng: np.random.Generator, size: int, count: int) -> Drawn:
        """Draw links, and for each an item that is no training link of its user."""
        rows = rng.integers(len(links.user), size=(count, size))
        user = links.user[rows]
        other = links.unlinked_item(rng, user, by_popularity=self.by_popularity)
        return drawn(links, user, links.item[rows], user, other)

    def loss(self, users: jax.Array, items: jax.Array, batch: Any) -> jax.Array:
        """See :meth:`Estimator.loss`."""
        f, g = users[batch.user], items[batch.item] - items[batch.other_item]
        # 1e-10 is the framework's guard against log 0.
        return mean(-jnp.log(1e-10 + jax.nn.sigmoid(jnp.sum(f * g, axis=-1))), batch.weight)

    def negatives(self, batches: Drawn) -> Negatives:
        """See :meth:`Estimator.negatives`."""
        return others_as_negatives(batches)


@dataclass(frozen=True)
class PopularityBpr(Bpr):
    """``BPRLoss`` with ``distribution: popularity, alpha: 1.0``."""

    name = "recbole-popular"
    title = "RecBole, popular"
    claim = "bpr-popular"
    plain = "bpr"
    remedy = (
        "That is an objective of its own: take uniform, or alpha below 1, if popular items should"
        " not be pushed down."
    )

    by_popularity: bool = True
