"""Samplers with one fault each, as plug-ins: three wrong estimators, and one fault for each
property of the suite.
"""

from typing import Any

import numpy as np

from ncfbench.catalog import FAMILIES, SamplerInfo
from ncfbench.sampling.batch import Shared
from ncfbench.sampling.listed import NegativeSampler
from ncfbench.sampling.shared import StratifiedSharingSampler

LISTED = SamplerInfo(families=FAMILIES)
SHARING = SamplerInfo(families=FAMILIES, shares_items=True, least_strata=2)


class _Sharing(StratifiedSharingSampler):
    """Subclasses give the faulty weights, float[b, V]."""

    def __init_subclass__(cls):
        cls.info = SHARING

    def ratio(self, batch):
        return (self.noise.probability / np.maximum(self.noise.data, 1e-12))[batch.items]

    def assemble(self, draw, capacity=0):
        batch = super().assemble(draw, capacity)
        wrong = self.wrong(batch, batch.negatives.weight.astype(np.float64))
        return batch._replace(negatives=Shared(wrong.astype(np.float32)))


class DistinctOnce(_Sharing):
    """Counts a distinct item once, however many links brought it."""

    def wrong(self, batch, weight):
        strata = np.arange(len(weight)) // self.stratum_size
        is_own = (strata[:, None] == strata) @ np.eye(weight.shape[1])[batch.pos_item] > 0
        count = np.maximum(int(batch.n_items) - is_own.sum(axis=1, keepdims=True), 1)
        return (weight > 0) * ~is_own * self.ratio(batch) / count / len(weight)


class UnmaskedPairs(_Sharing):
    """Divides by the number of unmasked pairs instead of all pairs of different strata."""

    def wrong(self, batch, weight):
        return weight / max(weight.sum(), 1e-30)


class DiagonalKept(_Sharing):
    """Lets a positive link's own stratum be its negative."""

    def wrong(self, batch, weight):
        counts = np.bincount(batch.pos_item, minlength=weight.shape[1])
        return np.tile(counts * self.ratio(batch) / len(weight) ** 2, (len(weight), 1))


class Right(NegativeSampler):
    """Negative Sampling, under another name, and its subclasses, each with a record of its own and
    a fault in batches, or in draws from the number of the first one on.
    """

    info = LISTED
    kept: Any = None

    def __init_subclass__(cls):
        cls.info = LISTED

    def changed(self, batch, draw):
        return batch

    def redrawn(self, draws, start):
        return draws

    def draw(self, start, count):
        return self.redrawn(super().draw(start, count), start)

    def assemble(self, draw, capacity=0):
        return self.changed(super().assemble(draw, capacity), draw)


def planted(changed):
    return type(Right)("Planted", (Right,), {"changed": changed})


def reweighed(batch, weight):
    return batch._replace(negatives=batch.negatives._replace(weight=weight))


def times(batch, factor):
    return reweighed(batch, batch.negatives.weight * factor)


def fail():
    raise RuntimeError("planted")


ShapesFault = planted(lambda self, batch, draw: times(batch, np.float64(1)))
"""Weights in double precision."""
ExpectationFault = planted(lambda self, batch, draw: times(batch, np.float32(0.9)))
"""Forgets a tenth of the negative term."""
PairwiseFault = planted(
    lambda self, batch, draw: times(batch, 0.9 if self.config.family == "pairwise" else 1.0)
)
"""Forgets a tenth of the negative term of pairwise losses."""
EmptyShuffled = planted(lambda self, batch, draw: times(batch, self.positives.replacement * 1.0))
"""Right with replacement, and without any negative in the stream that training uses."""
IdsFault = planted(
    lambda self, batch, draw: batch._replace(
        users=np.append(batch.users, np.int32(self.graph.n_users))
    )
)
"""A user slot that no link names holds a user there is not."""
NoBatch = planted(lambda self, batch, draw: batch.items)
"""Assembles something else."""


class HeldOutFault(Right):
    """Embeds a held-out item, though no link names it."""

    def changed(self, batch, draw):
        cold = np.flatnonzero(self.graph.item_degrees == 0)[0]
        n = int(batch.n_items)
        items = np.append(batch.items, np.int32(0)) if n == len(batch.items) else batch.items.copy()
        items[n] = cold
        return batch._replace(items=items, n_items=np.int32(n + 1))


class WeightsFault(Right):
    """A weight that is not a number, once in a while."""

    def changed(self, batch, draw):
        if draw.links[0] % 7 == 0:
            batch.negatives.weight[0, 0] = np.nan
        return batch


class OneArray(Right):
    """Writes every batch's weights into the same array, over those of batches that still wait in a
    queue.
    """

    def changed(self, batch, draw):
        if self.kept is None:
            self.kept = np.empty_like(batch.negatives.weight)
        self.kept[:] = batch.negatives.weight
        return reweighed(batch, self.kept)


class PermutationsFault(Right):
    """Every epoch trains on one link twice and on another never."""

    def redrawn(self, draws, start):
        if self.positives.replacement:
            return draws
        return [draw._replace(links=np.where(draw.links == 5, 6, draw.links)) for draw in draws]


class StreamsFault(Right):
    """Draws from a generator of its own, which remembers what was drawn before."""

    def redrawn(self, draws, start):
        self.kept = self.kept or np.random.default_rng(0)
        return [
            draw._replace(
                items=self.noise.draw(self.kept, draw.items.size).reshape(draw.items.shape)
            )
            for draw in draws
        ]


class DrawsFault(Right):
    """Draws unigram whatever P_n is, and makes up for it by weights."""

    def redrawn(self, draws, start):
        drawn = []
        for number, draw in enumerate(draws, start):
            rng = self.streams.generator("unigram", number)
            links = rng.integers(self.graph.n_links, size=draw.items.shape)
            drawn.append(draw._replace(items=self.graph.link_item[links]))
        return drawn

    def changed(self, batch, draw):
        importance = self.importance(self.noise.data)
        return times(batch, importance[draw.items].astype(np.float32))


class RaisesInDraw(Right):
    """Cannot draw."""

    def redrawn(self, draws, start):
        fail()


class RaisesWithReplacement(Right):
    """Cannot draw with replacement."""

    def redrawn(self, draws, start):
        return fail() if self.positives.replacement else draws
