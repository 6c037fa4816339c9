"""The noise distribution P_n(v) ~ deg(v)^alpha over the items with training links, draws from it,
and what stands in its place for users with explicit negatives.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ncfbench.config import RunConfig
from ncfbench.data.graph import BipartiteGraph

Float64 = NDArray[np.float64]
Int32 = NDArray[np.int32]


@dataclass(frozen=True)
class Noise:
    """P_n for a graph. alpha = 1 is the unigram distribution, in which an item's share is its share
    of the links.
    """

    graph: BipartiteGraph
    alpha: float

    @cached_property
    def probability(self) -> Float64:
        """float64[I]: P_n of each item; zero for items without a training link."""
        degrees = self.graph.item_degrees
        weight = np.where(degrees > 0, np.maximum(degrees, 1.0) ** self.alpha, 0.0)
        probability: Float64 = weight / weight.sum()
        return probability

    @property
    def data(self) -> Float64:
        """float64[I]: P_d of each item, its share of the training links."""
        return self.graph.item_degrees / self.graph.n_links

    @cached_property
    def _cumulative(self) -> Float64:
        # It ends at exactly 1: each number below 1 falls to an item with training links.
        cumulative: Float64 = np.cumsum(self.probability)
        cumulative /= cumulative[-1]
        return cumulative

    def draw(self, rng: np.random.Generator, size: int) -> Int32:
        """Return int32[size]: independent items from P_n; with alpha = 1 those of random links."""
        if self.alpha == 1:
            return self.graph.link_item.take(
                rng.integers(self.graph.n_links, size=size), mode="clip"
            )
        return np.searchsorted(self._cumulative, rng.random(size), "right").astype(np.int32)


def explicit_measure(graph: BipartiteGraph, config: RunConfig) -> Any:
    """Return the weight in the objective of each explicit negative of a user, who has no other
    negatives then: 1 / E for each of E, or 1 for a listwise loss, which sums over them.

    Returns:
        A sparse float64[n_users, n_items]; None where explicit negatives are not drawn.
    """
    items, offsets = graph.negative_items, graph.negative_offsets
    if not config.draws_explicit or items is None or offsets is None:
        return None
    from scipy import sparse

    counts = np.diff(offsets)
    weight = np.ones(len(items))
    if config.family != "listwise":
        weight /= np.repeat(counts, counts)
    return sparse.csr_array((weight, items, offsets), shape=(graph.n_users, graph.n_items))
