"""Refreshing the items that hard negatives are drawn from."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from ncfbench.timing.clock import Sample, Stopwatch
from ncfbench.training.step import Parameters, TrainState

TIMED = 9
"""Refreshes whose median time iterations are charged with."""


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
