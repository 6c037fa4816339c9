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
    leaves, tree = jax.tree.flatten(state)
    on_device = [leaf for leaf in leaves if isinstance(leaf, jax.Array)]
    is_sharded = any(len(leaf.devices()) > 1 for leaf in on_device)
    # One program to compile. The copies of sharded arrays must have the very shardings of these.
    copies = iter([jnp.copy(leaf) for leaf in on_device] if is_sharded else _copied(on_device))
    copied: TrainState = jax.tree.unflatten(
        tree, [next(copies) if isinstance(leaf, jax.Array) else leaf for leaf in leaves]
    )
    return copied


@jax.jit
def _copied(leaves: list[jax.Array]) -> list[jax.Array]:
    return [jnp.copy(leaf) for leaf in leaves]
