"""Samplers with one fault each, as plug-ins: three wrong estimators, and one fault for each
property of the suite.
"""

from abc import abstractmethod
from typing import Any

import numpy as np

from ncfbench.catalog import FAMILIES, SamplerInfo
from ncfbench.sampling.batch import Shared
from ncfbench.sampling.listed import NegativeSampler
from ncfbench.sampling.shared import StratifiedSharingSampler

LISTED = SamplerInfo(families=FAMILIES)
SHARING = SamplerInfo(families=FAMILIES, shares_items=True, least_strata=2)


class _Sharing(StratifiedSharingSampler):
    def __init_subclass__(cls):
        cls.info = SHARING

    @abstractmethod
    def wrong(self, batch, weight):
        """float[b, V]: the faulty weights."""

    def assemble(self, draw, capacity=0):
        batch = super().assemble(draw, capacity)
        wrong = self.wrong(batch, batch.negatives.weight.astype(np.float64))
        return batch._replace(negatives=Shared(wrong.astype(np.float32)))


class DistinctOnce(_Sharing):
    """Counts a distinct item once, however many links brought it."""

    def wrong(self, batch, weight):
        ratio = np.zeros(weight.shape[1])
        ratio[: batch.n_items] = (self.noise.probability / np.maximum(self.noise.data, 1e-12))[
            batch.items[: batch.n_items]
        ]
        strata = np.arange(len(weight)) // self.stratum_size
        own = np.zeros_like(weight, dtype=bool)
        for stratum in np.unique(strata):
            rows = strata == stratum
            own[np.ix_(rows, np.unique(batch.pos_item[rows]))] = True
        others = int(batch.n_items) - own.sum(axis=1, keepdims=True)
        return (weight > 0) * ~own * ratio / others / len(weight)


class UnmaskedPairs(_Sharing):
    """Divides by the number of unmasked pairs instead of all pairs of different strata."""

    def wrong(self, batch, weight):
        return weight / weight.sum()


class DiagonalKept(_Sharing):
    """Lets a positive link's own stratum be its negative."""

    def wrong(self, batch, weight):
        counts = np.bincount(batch.pos_item, minlength=weight.shape[1])
        ratio = (self.noise.probability / np.maximum(self.noise.data, 1e-12))[batch.items]
        return np.broadcast_to(counts * ratio / len(weight) ** 2, weight.shape)


class Right(NegativeSampler):
    """Negative Sampling, under another name, and its subclasses: each with a record of its own."""

    info = LISTED

    def __init_subclass__(cls):
        cls.info = LISTED

    def changed(self, batch, draw):
        """Return a batch with the fault."""
        return batch

    def assemble(self, draw, capacity=0):
        return self.changed(super().assemble(draw, capacity), draw)


def reweighed(batch, weight):
    return batch._replace(negatives=batch.negatives._replace(weight=weight))


class ShapesFault(Right):
    """Weights in double precision."""

    def changed(self, batch, draw):
        return reweighed(batch, batch.negatives.weight.astype(np.float64))


class IdsFault(Right):
    """A user slot that no link names holds a user there is not."""

    def changed(self, batch, draw):
        return batch._replace(users=np.append(batch.users, np.int32(self.graph.n_users)))


class HeldOutFault(Right):
    """Embeds a held-out item, though no link names it."""

    def changed(self, batch, draw):
        cold = np.flatnonzero(self.graph.item_degrees == 0)[0]
        n = int(batch.n_items)
        items = np.append(batch.items, np.int32(0)) if n == len(batch.items) else batch.items.copy()
        items[n] = cold
        return batch._replace(items=items, n_items=np.int32(n + 1))


class PermutationsFault(Right):
    """Every epoch trains on one link twice and on another never."""

    def draw(self, start, count):
        if self.positives.replacement:
            return super().draw(start, count)
        return [
            draw._replace(links=np.where(draw.links == 5, 6, draw.links))
            for draw in super().draw(start, count)
        ]


class StreamsFault(Right):
    """Draws from a generator of its own, which remembers what was drawn before."""

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.rng = np.random.default_rng(0)

    def draw(self, start, count):
        shape = (self.config.batch_size, self.config.negatives)
        return [
            draw._replace(items=self.noise.draw(self.rng, shape[0] * shape[1]).reshape(shape))
            for draw in super().draw(start, count)
        ]


class WeightsFault(Right):
    """A weight that is not a number, once in a while."""

    def changed(self, batch, draw):
        if draw.links[0] % 7 == 0:
            batch.negatives.weight[0, 0] = np.nan
        return batch


class DrawsFault(Right):
    """Draws unigram whatever P_n is, and makes up for it by weights."""

    def draw(self, start, count):
        drawn = []
        for number, draw in enumerate(super().draw(start, count), start):
            rng = self.streams.generator("unigram", number)
            links = rng.integers(self.graph.n_links, size=draw.items.shape)
            drawn.append(draw._replace(items=self.graph.link_item[links]))
        return drawn

    def changed(self, batch, draw):
        importance = self.importance(self.noise.data)
        weight = batch.negatives.weight * importance[draw.items]
        return reweighed(batch, weight.astype(np.float32))


class ExpectationFault(Right):
    """Forgets a tenth of the negative term."""

    def changed(self, batch, draw):
        return reweighed(batch, batch.negatives.weight * np.float32(0.9))


class PairwiseFault(Right):
    """Forgets a tenth of the negative term of pairwise losses."""

    def changed(self, batch, draw):
        factor = 0.9 if self.config.family == "pairwise" else 1.0
        return reweighed(batch, batch.negatives.weight * np.float32(factor))


class EmptyShuffled(Right):
    """Right with replacement, and without any negative in the stream that training uses."""

    def changed(self, batch, draw):
        if not self.positives.replacement:
            batch.negatives.weight[:] = 0
        return batch


class OneArray(Right):
    """Writes every batch's weights into the same array, over those of batches that still wait in a
    queue.
    """

    kept: Any = None

    def changed(self, batch, draw):
        if self.kept is None:
            self.kept = np.empty_like(batch.negatives.weight)
        self.kept[:] = batch.negatives.weight
        return reweighed(batch, self.kept)


class RaisesInDraw(Right):
    """Cannot draw."""

    def draw(self, start, count):
        raise RuntimeError("planted")


class RaisesWithReplacement(Right):
    """Cannot draw with replacement."""

    def draw(self, start, count):
        if self.positives.replacement:
            raise RuntimeError("planted")
        return super().draw(start, count)


class NoBatch(Right):
    """Assembles something else."""

    def changed(self, batch, draw):
        return batch.items
