"""The state of training: everything an iteration changes."""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp

Parameters: TypeAlias = Any
"""The towers' parameters, a tree of arrays."""


class TrainState(NamedTuple):
    """Everything an iteration changes."""

    parameters: Parameters
    optimizer: Any
    iteration: jax.Array
    """uint32: iterations done."""
    carry: Any = None
    """What else iterations leave for later ones (:mod:`ncfbench.training.carry`)."""


def copy_state(state: TrainState) -> TrainState:
    """Copy a state, for steps whose result is thrown away. Arrays on the host are shared."""
    copied: TrainState = jax.tree.map(
        lambda leaf: jnp.copy(leaf) if isinstance(leaf, jax.Array) else leaf, state
    )
    return copied
