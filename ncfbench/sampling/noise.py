"""The noise distribution P_n(v) ~ deg(v)^alpha over the items with training links, and O(1) draws
from it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ncfbench.data.graph import BipartiteGraph

Float64 = NDArray[np.float64]
Int32 = NDArray[np.int32]


@dataclass(frozen=True)
class AliasTable:
    """Draws from a discrete distribution in O(1): a uniform cell i, then i itself with probability
    ``keep[i]`` or else ``alias[i]`` (Walker 1977).
    """

    keep: Float64
    alias: Int32

    @classmethod
    def build(cls, probability: Float64) -> AliasTable:
        """Build the table of a distribution that sums to 1, in a few vectorised passes.

        Scaled to mean 1, light cells (below 1) lack what heavy cells have too much. A light cell is
        filled by the current heavy one, and a heavy cell that falls below 1 by the next. Who fills
        whom follows from the running sums of lacks and surpluses (Huebschle-Schneider and Sanders
        2022).
        """
        scaled = probability * len(probability)
        # Rounding may leave every cell of a uniform distribution just below 1.
        scaled[np.argmax(scaled)] = max(1.0, scaled.max())
        light, heavy = np.flatnonzero(scaled < 1), np.flatnonzero(scaled >= 1)
        keep, alias = np.ones(len(scaled)), np.arange(len(scaled), dtype=np.int32)
        if len(light) == 0:
            return cls(keep, alias)
        lacks, surpluses = np.cumsum(1 - scaled[light]), np.cumsum(scaled[heavy] - 1)
        # Light cell i is filled by the heavy cell that is current before it asks.
        before = np.concatenate([[0.0], lacks[:-1]])
        filler = np.minimum(np.searchsorted(surpluses, before, side="right"), len(heavy) - 1)
        keep[light], alias[light] = scaled[light], heavy[filler]
        # Heavy cell j runs dry at the first light cell whose lack reaches its surplus; j + 1 fills
        # what it overpaid. First cells of exactly 1 have no surplus, and fill nobody.
        dry = np.searchsorted(lacks, surpluses[:-1], side="left")
        runs_dry = np.flatnonzero((dry < len(lacks)) & (surpluses[:-1] > 0))
        keep[heavy[runs_dry]] = np.clip(1 - (lacks[dry[runs_dry]] - surpluses[runs_dry]), 0, 1)
        alias[heavy[runs_dry]] = heavy[runs_dry + 1]
        return cls(keep, alias)

    def draw(self, rng: np.random.Generator, size: int) -> Int32:
        """Return int32[size]: independent draws, one uniform number each."""
        position = rng.random(size) * len(self.keep)
        cell = np.minimum(position.astype(np.int32), len(self.keep) - 1)
        return np.where(position - cell < self.keep[cell], cell, self.alias[cell]).astype(np.int32)


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
    def _table(self) -> AliasTable:
        return AliasTable.build(self.probability)

    def draw(self, rng: np.random.Generator, size: int) -> Int32:
        """Return int32[size]: independent items from P_n; with alpha = 1 those of random links."""
        if self.alpha == 1:
            return self.graph.link_item.take(
                rng.integers(self.graph.n_links, size=size), mode="clip"
            )
        return self._table.draw(rng, size)
