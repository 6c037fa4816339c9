"""Link prediction in PyTorch Geometric: cross-entropy of links and of sampled pairs."""

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
    others_as_negatives,
)
from ncfbench.auditing.frameworks.links import Links


@dataclass(frozen=True)
class NegativeSampling(Estimator):
    """``negative_sampling(edge_index, (users, items), b)`` and binary cross-entropy with logits.

    As in the examples of link prediction: as many pairs without a link as links, the mean over
    both. ``edge_index`` holds all training links, and a user is drawn whatever her degree.
    """

    name = "pyg"
    title = "PyG link prediction"
    version = "2.8.1"
    source = (
        "https://pytorch-geometric.readthedocs.io/en/stable/modules/utils.html"
        "#torch_geometric.utils.negative_sampling"
    )
    claim = "bce"
    remedy = (
        "Give all training links as edge_index, not the batch's, and num_nodes=(users, items), or"
        " linked pairs and pairs of two users become negatives."
    )

    def draw(self, links: Links, rng: np.random.Generator, size: int, count: int) -> Drawn:
        """Draw links, and as many different pairs that are not linked."""
        rows = rng.integers(len(links.user), size=(count, size))
        pairs = np.array([links.unlinked_pairs(rng, size) for _ in range(count)])
        return drawn(links, links.user[rows], links.item[rows], pairs[:, 0], pairs[:, 1])

    def loss(self, users: jax.Array, items: jax.Array, batch: Any) -> jax.Array:
        """See :meth:`Estimator.loss`."""
        positive = jnp.sum(users[batch.user] * items[batch.item], axis=-1)
        negative = jnp.sum(users[batch.other_user] * items[batch.other_item], axis=-1)
        return jnp.mean(jax.nn.softplus(jnp.concatenate([-positive, negative])))

    def negatives(self, batches: Drawn) -> Negatives:
        """See :meth:`Estimator.negatives`."""
        return others_as_negatives(batches)
