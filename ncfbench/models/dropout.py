"""Dropout by a counter: a function of (seed, iteration, item, position) only.

Padding, the order of a batch's items and the number of devices change nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Self

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.random import threefry_2x32

from ncfbench.config import RunConfig

FIRST_OUTPUT = 1 << 31
"""Position of an item vector's first number; words count from 0."""
FIRST_FEATURE = 1 << 30
"""Position of an item's first dense feature."""


class Rate(NamedTuple):
    """A rate of dropout as a compiled step takes it, so that runs of other rates share one."""

    threshold: Any
    """uint32: a position stays if its bits are as large."""
    scale: Any
    """float32: 1 over the share that stays."""

    @classmethod
    def of(cls, rate: float) -> Self:
        """Return a rate, at least 0 and below 1."""
        threshold = min(round(rate * 2**32), 2**32 - 1)
        return cls(np.uint32(threshold), np.float32(1) / np.float32(1 - rate))


def rates_of(config: RunConfig) -> dict[str, Rate]:
    """Return the rates of a run's settings, by setting."""
    names = ("word_dropout", "feature_dropout", "item_dropout")
    return {name: Rate.of(getattr(config, name)) for name in names}


class Dropout(NamedTuple):
    """The randomness of one iteration."""

    seed: Any
    """uint32: the run's seed."""
    iteration: Any
    """uint32: the optimiser step."""
    rates: Mapping[str, Rate] = {}
    """By setting: :func:`rates_of`."""

    def keep(self, items: jax.Array, count: int, rate: Rate, first: int = 0) -> jax.Array:
        """Return bool[V, count]: which of the positions ``first``, ... stay in each item.

        Each is dropped with the probability of the rate. The bits are Threefry's (Salmon et al.
        2011) of the counter (item, position) under the key (seed, iteration).
        """
        shape = (items.shape[0], count)
        item = jnp.broadcast_to(items.astype(jnp.uint32)[:, None], shape)
        position = jnp.broadcast_to(
            (jnp.arange(count, dtype=jnp.uint32) + jnp.uint32(first))[None, :], shape
        )
        key = jnp.stack([self.seed.astype(jnp.uint32), self.iteration.astype(jnp.uint32)])
        bits = threefry_2x32(key, jnp.concatenate([item.reshape(-1), position.reshape(-1)]))
        keep: jax.Array = bits[: item.size].reshape(shape) >= rate.threshold
        return keep
