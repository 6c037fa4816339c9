"""The base class of samplers: draw (random), assemble (deterministic), and an endless stream of
batches made of the two.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ncfbench.catalog import SamplerInfo, find_loss
from ncfbench.config import MAX_SEED, RunConfig
from ncfbench.data.graph import BipartiteGraph, LookupTables
from ncfbench.rng import Streams
from ncfbench.sampling.batch import Batch
from ncfbench.sampling.noise import Noise
from ncfbench.sampling.positives import PositiveStream

Float64 = NDArray[np.float64]
Int32 = NDArray[np.int32]

CHUNK_DRAWS = 2**18
"""Random numbers drawn at a time: enough to amortise NumPy's calls, small enough for the cache."""
PILOT_SEED = MAX_SEED + 1
"""Seed of batches that plan how many slots are needed, which no run can have."""


class Nominal(NamedTuple):
    """Contents of a batch by the paper's count (KDD 2017, table 2): equal nodes count as often as
    they are named.
    """

    users: int
    items: int
    negatives: int


class Claims(NamedTuple):
    """Claims of a sampler about its batches: audits test them, and tables of costs print them."""

    nominal: Nominal | None
    """None where it is not known."""
    drawn_items: NDArray[np.float64] | None
    """float64[I]: the distribution of the items that it draws; None where they are not independent.
    """
    shuffled_bias: float | None = None
    """Relative bias of the negative term when positives are shuffled over an epoch instead of drawn
    with replacement, an order of magnitude; None where it is not known.
    """
    bias: str = ""
    """Why the estimate is biased on purpose; empty where it is not. An audit measures such a bias,
    says so, and does not count it as a fault.
    """


class Draw(NamedTuple):
    """The random part of one batch."""

    links: Int32
    """int32[b]: ids of the positive links; with strata, s consecutive ones form a stratum."""
    users: Int32
    """int32[b, k]: users of the negative links (k = 0 where none are drawn)."""
    items: Int32
    """int32[b, k]: items of the negative links (k = 0 where none are drawn); or int32[1, k'] for
    the whole batch.
    """


class Sampler(ABC):
    """A sampling strategy bound to a graph of training links, the settings and a seed.

    A class has a record as its ``info``, with the families of losses that it serves.

    Args:
        replacement: draw positives instead of shuffling them: each batch is then exactly unbiased,
            which audits need.
        weight_dtype: float32 as the layout says; float64 for exact tests.
    """

    info: ClassVar[SamplerInfo]
    stratified = False
    draws_users = False
    draws_items = False

    def __init__(
        self,
        graph: BipartiteGraph,
        config: RunConfig,
        streams: Streams,
        *,
        replacement: bool = False,
        weight_dtype: Any = np.float32,
    ) -> None:
        self.graph, self.config, self.streams = graph, config, streams
        self.noise = Noise(graph, config.noise_exponent)
        self.weight_dtype = np.dtype(weight_dtype)
        self.stratum_size = config.stratum_size if self.stratified else 1
        self.positives = PositiveStream(
            graph, streams, self.stratum_size, strata=config.strata, replacement=replacement
        )
        self.tables = LookupTables(graph)
        self._negatives: dict[str, tuple[int, int, np.random.Generator]] = {}

    @property
    def batches_per_draw(self) -> int:
        """Batches whose random parts are drawn at a time."""
        return max(1, CHUNK_DRAWS // (self.config.batch_size * (1 + self.config.negatives)))

    def draws(self, start: int = 0, stop: int | None = None) -> Iterator[Draw]:
        """Yield the random parts of batches ``start``, ``start + 1``, ..., endless by default."""
        while stop is None or start < stop:
            count = self.batches_per_draw
            yield from self.draw(start, count if stop is None else min(count, stop - start))
            start += count

    def draw(self, start: int, count: int) -> list[Draw]:
        """Return the random parts of batches ``start`` .. ``start + count - 1``.

        They are the same for any way of cutting a range of batches into calls.
        """
        b, k = self.config.batch_size, self.config.negatives
        links = self.positives.take(start * b, count * b).reshape(count, b)
        users = items = np.zeros((count, b, 0), np.int32)
        if self.draws_users:
            users = self._draw_negatives("negative-users", start, count).reshape(count, b, k)
        if self.draws_items:
            items = self._draw_negatives("negative-items", start, count).reshape(count, b, k)
        return [Draw(*parts) for parts in zip(links, users, items, strict=True)]

    @abstractmethod
    def assemble(self, draw: Draw, capacity: int = 0) -> Batch:
        """Return the batch of a draw, with at least ``capacity`` item slots.

        Its arrays are its own: a batch waits in a queue, and on a CPU a step reads them in the
        host's memory.
        """

    def batches(self, start: int = 0, capacity: int = 0) -> Iterator[Batch]:
        """Yield batches ``start``, ``start + 1``, ... without end.

        The number of item slots is ``capacity``, and grows with the first batch that needs more.
        """
        for draw in self.draws(start):
            batch = self.assemble(draw, capacity)
            capacity = max(capacity, len(batch.items))
            yield batch

    def required_capacity(self, draw: Draw) -> int:
        """Return the ``capacity`` that the batch of a draw needs: the number of its distinct items.

        A sampler whose batches have other items overrides it.
        """
        return len(self.tables.items.distinct(self._slot_items(draw))[0])

    def _slot_items(self, draw: Draw) -> Int32:
        """Return the items of a batch before equal ones are merged, the positive links' first."""
        return np.concatenate([self.graph.link_item[draw.links], draw.items.reshape(-1)])

    @cached_property
    def measure(self) -> Float64:
        """float64[I]: the target measure over negative items: P_n, or 1 for every item in use for
        a listwise loss, which sums over all items.
        """
        if self.config.family == "listwise":
            return (self.graph.item_degrees > 0).astype(np.float64)
        return self.noise.probability

    def importance(self, proposal: Float64) -> Float64:
        """Return float64[I]: the measure over a proposal distribution, zero where that is zero."""
        return np.divide(self.measure, proposal, out=np.zeros(len(proposal)), where=proposal > 0)

    @cached_property
    def rho(self) -> Float64:
        """float64[I]: the importance of negative items, which come from P_n where they are drawn
        and else from P_d. For a listwise loss it is the logQ correction.
        """
        return self.importance(self.noise.probability if self.draws_items else self.noise.data)

    def claims(self) -> Claims:
        """Return what the sampler says of its batches; subclasses replace what differs."""
        return Claims(
            nominal=None,
            drawn_items=self.noise.probability,
            bias=find_loss(self.config.loss).bias,
        )

    def _draw_negatives(self, role: str, start: int, count: int) -> Int32:
        """Return the k nodes of each positive link, from an epoch's stream of its own."""
        b, k = self.config.batch_size, self.config.negatives
        parts = []
        for epoch, low, high in self.positives.spans(start * b, count * b):
            at_epoch, at_position, rng = self._negatives.get(role, (-1, 0, None))
            if rng is None or at_epoch != epoch or at_position > low:
                at_position, rng = 0, self.streams.generator(role, epoch)
            for skipped in range(at_position * k, low * k, CHUNK_DRAWS):
                self._draw_nodes(role, rng, min(CHUNK_DRAWS, low * k - skipped))
            parts.append(self._draw_nodes(role, rng, (high - low) * k))
            self._negatives[role] = (epoch, high, rng)
        return np.concatenate(parts)

    def _draw_nodes(self, role: str, rng: np.random.Generator, size: int) -> Int32:
        if role == "negative-items":
            return self.noise.draw(rng, size)
        return self.graph.link_user.take(rng.integers(self.graph.n_links, size=size), mode="clip")
