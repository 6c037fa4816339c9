"""Refreshing what a run keeps of earlier parameters: the cache of item vectors where every item is
a negative, or the items that hard negatives are drawn from.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ncfbench.data.graph import BipartiteGraph
from ncfbench.models.item_cache import Earlier, ItemCache, gramian_of, linked_part
from ncfbench.sampling.noise import Noise
from ncfbench.timing.clock import Sample, Stopwatch
from ncfbench.training.inference import Embedder
from ncfbench.training.step import Parameters, TrainState

TIMED = 9
"""Refreshes whose median time iterations are charged with."""
LINKS = 2**18
"""Linked pairs whose vectors are looked up at a time."""


class CacheMaker:
    """Embeds all users and all items that can be negatives, in blocks, dropout off.

    Args:
        noise_exponent: of P_n.
        mask: linked pairs are no negatives.
    """

    def __init__(
        self, graph: BipartiteGraph, noise_exponent: float, embedder: Embedder, *, mask: bool
    ) -> None:
        self.embedder, self.nodes, self.n_items = embedder, graph.items_in_use, graph.n_items
        probability = Noise(graph, noise_exponent).probability.astype(np.float32)
        self._ids, self._weights = jnp.asarray(self.nodes), jnp.asarray(probability)
        self._links: list[tuple[jax.Array, jax.Array]] = []
        size = min(LINKS, graph.n_links)
        for start in range(0, graph.n_links if mask else 0, size):
            user = np.full(size, graph.n_users, np.int32)
            item = np.zeros(size, np.int32)
            end = min(start + size, graph.n_links)
            user[: end - start] = graph.link_user[start:end]
            item[: end - start] = graph.link_item[start:end]
            self._links.append((jnp.asarray(user), jnp.asarray(item)))

    def __call__(self, parameters: Parameters, like: ItemCache) -> ItemCache:
        """Return the cache at these parameters, of the form of another one."""
        users = self.embedder.users(parameters).scored
        vectors = self.embedder.items(parameters, self.nodes)
        items = jnp.zeros((self.n_items, users.shape[1]), jnp.float32).at[self._ids].set(vectors)
        linked = jnp.zeros_like(users)
        for user, item in self._links:
            linked += linked_part(users, items, self._weights, user, item)
        # A copy: a tower may return its table, and a step takes over its state's memory.
        earlier = None if like.earlier is None else Earlier(jnp.copy(users), items)
        return ItemCache(gramian_of(items, self._weights), linked, earlier)


class Refresher:
    """Refreshes what a training state keeps before every N-th iteration, on the clock.

    The first is iteration 0, and which ones follow depends on their numbers alone; what is kept is
    part of the state. So a run that is resumed has what it would have had.

    A block of a few iterations has a refresh in it or not. Each iteration is therefore charged the
    N-th part of one: :meth:`charge`.

    Args:
        maker: makes what is kept from the parameters, and from what was kept before.
    """

    def __init__(self, maker: Callable[[Parameters, Any], Any], every: int) -> None:
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
        """Return the state with what is kept made anew, and a sample of the time that it took."""
        jax.block_until_ready(state)
        kept, seconds = self._timed(state)
        return state._replace(kept=kept), Sample("refresh", iteration, self.every, seconds)

    def charge(self, iterations: int) -> float:
        """Return the share of refreshes, in seconds, that some iterations are charged."""
        return float(np.median(self._seconds)) * iterations / self.every

    def _timed(self, state: TrainState) -> tuple[Any, float]:
        watch = Stopwatch()
        watch.start()
        kept = self._made(state)
        watch.stop()
        self._seconds.append(watch.seconds)
        return kept, watch.seconds

    def _made(self, state: TrainState) -> Any:
        assert state.kept is not None
        return jax.block_until_ready(self._maker(state.parameters, state.kept))
