"""The in-batch softmax of sentence-transformers, with both of its batch samplers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from ncfbench.auditing.frameworks.claims import SCALE
from ncfbench.auditing.frameworks.estimator import Drawn, Estimator, drawn, in_batch_loss
from ncfbench.auditing.frameworks.links import Links

CAPACITY = 16
"""Batches of an epoch are filled up to a multiple of this, so that few shapes are compiled."""


@dataclass(frozen=True)
class MultipleNegativesRanking(Estimator):
    """``MultipleNegativesRankingLoss``: cross-entropy of ``scale`` times the cosine.

    The vectors have length 1, so their dot product is the cosine.
    """

    name = "st-mnrl"
    title = "ST MNRL"
    version = "6.2.0"
    source = (
        "https://sbert.net/docs/package_reference/sentence_transformer/losses.html"
        "#multiplenegativesrankingloss"
    )
    claim = "softmax"
    remedy = (
        "It has no correction: use it where all items are about equally popular, or subclass it and"
        " subtract log p(item) from the scaled similarities."
    )

    scale: float = SCALE

    def loss(self, users: jax.Array, items: jax.Array, batch: Any) -> jax.Array:
        """See :meth:`Estimator.loss`."""
        logits = self.scale * users[batch.user] @ items[batch.item].T
        return in_batch_loss(logits, batch.weight)


@dataclass(frozen=True)
class WithoutDuplicates(MultipleNegativesRanking):
    """The same with ``BatchSamplers.NO_DUPLICATES``: no user and no item twice in a batch.

    A link that does not fit waits for a later batch, so the last batches of an epoch are short and
    hold the links of the most popular items and the busiest users.
    """

    name = "st-no-duplicates"
    title = "ST, no duplicates"
    source = "https://sbert.net/docs/package_reference/sentence_transformer/sampler.html"
    remedy = (
        "Use random batches with a correction: links of popular items end up in short batches"
        " late in the epoch, where they have few negatives."
    )

    def draw(self, links: Links, rng: np.random.Generator, size: int, count: int) -> Drawn:
        """Draw whole epochs that have about ``count`` batches or more."""
        batches: list[NDArray[np.integer]] = []
        while len(batches) < count:
            batches += without_duplicates(rng.permutation(len(links.user)), links, size)
        rows = np.zeros((-(-len(batches) // CAPACITY) * CAPACITY, size), np.int64)
        weight = np.zeros(rows.shape, np.float32)
        for number, batch in enumerate(batches):
            rows[number, : len(batch)], weight[number, : len(batch)] = batch, 1
        return drawn(links, links.user[rows], links.item[rows], weight=weight)


def without_duplicates(
    order: NDArray[np.integer], links: Links, size: int
) -> list[NDArray[np.integer]]:
    """Return an epoch's batches: each takes, in order, the links that bring no node twice."""
    remaining, batches = order, []
    while len(remaining):
        users: set[int] = set()
        items: set[int] = set()
        taken: list[int] = []
        for position, link in enumerate(remaining):
            user, item = int(links.user[link]), int(links.item[link])
            if user not in users and item not in items:
                users.add(user)
                items.add(item)
                taken.append(position)
                if len(taken) == size:
                    break
        batches.append(remaining[taken])
        remaining = np.delete(remaining, taken)
    return batches
