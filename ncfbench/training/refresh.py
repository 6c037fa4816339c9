"""Refreshing the cache of item vectors of a run in which every item is a negative."""

from __future__ import annotations

from collections import deque

import jax
import jax.numpy as jnp
import numpy as np

from ncfbench.data.graph import BipartiteGraph
from ncfbench.models.item_cache import ItemCache, filled
from ncfbench.sampling.noise import Noise
from ncfbench.timing.clock import Sample, Stopwatch
from ncfbench.training.inference import Embedder
from ncfbench.training.step import Parameters, TrainState

TIMED = 9
"""Refreshes whose median time iterations are charged with."""


class CacheMaker:
    """Embeds all items that can be negatives, in blocks, dropout off.

    Args:
        noise_exponent: of P_n.
    """

    def __init__(self, graph: BipartiteGraph, noise_exponent: float, embedder: Embedder) -> None:
        self.embedder, self.nodes = embedder, graph.items_in_use
        probability = Noise(graph, noise_exponent).probability[self.nodes]
        self._arrays = jnp.asarray(self.nodes), jnp.asarray(probability.astype(np.float32))

    def __call__(self, parameters: Parameters, like: ItemCache) -> ItemCache:
        """Return the cache at these parameters, of the form of another one."""
        ids, probability = self._arrays
        made: ItemCache = filled(like, ids, self.embedder.items(parameters, self.nodes), probability)
        return made


class Refresher:
    """Refreshes the cache of a training state before every N-th iteration, on the clock.

    The first is iteration 0, and which ones follow depends on their numbers alone; the cache is
    part of the state. So a run that is resumed has the cache that it would have had.

    A block of a few iterations has a refresh in it or not. Each iteration is therefore charged the
    N-th part of one: :meth:`charge`.
    """

    def __init__(self, maker: CacheMaker, every: int) -> None:
        self.every = every
        self._maker = maker
        self._seconds: deque[float] = deque(maxlen=TIMED)
        """Seconds of the last refreshes."""

    def until_due(self, iteration: int) -> int:
        """Return how many iterations are left before the next refresh; 0 where it is due now."""
        return -iteration % self.every

    def warm_up(self, state: TrainState, iteration: int) -> None:
        """Compile, and time a refresh unless the next iteration has one; the state stays."""
        self._made(state)
        if self.until_due(iteration):
            self._timed(state)

    def __call__(self, state: TrainState, iteration: int) -> tuple[TrainState, Sample]:
        """Return the state with a new cache, and a sample of the time that it took."""
        jax.block_until_ready(state)
        cache, seconds = self._timed(state)
        return state._replace(cache=cache), Sample("refresh", iteration, self.every, seconds)

    def charge(self, iterations: int) -> float:
        """Return the share of refreshes, in seconds, that some iterations are charged."""
        return float(np.median(self._seconds)) * iterations / self.every

    def _timed(self, state: TrainState) -> tuple[ItemCache, float]:
        watch = Stopwatch()
        watch.start()
        cache = self._made(state)
        watch.stop()
        self._seconds.append(watch.seconds)
        return cache, watch.seconds

    def _made(self, state: TrainState) -> ItemCache:
        assert state.cache is not None
        made: ItemCache = jax.block_until_ready(self._maker(state.parameters, state.cache))
        return made
