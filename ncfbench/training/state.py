"""The state of training: everything an iteration changes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp

from ncfbench.models.dropout import Rate

Parameters: TypeAlias = Any
"""The towers' parameters, a tree of arrays."""


Touched: TypeAlias = dict[str, jax.Array]
"""int32[rows] by kind of the tables that are updated by row: the iterations that were done after
each row's last update.
"""


class Rest(NamedTuple):
    """How a row of a table moves while no batch names it, by :mod:`ncfbench.training.optimizer`."""

    kept: Any
    """float32: logarithm of the share of its weights that an iteration leaves."""
    shrinks: Any
    """float32: logarithm of ``r / q``; None of Adagrad."""
    ahead: Any
    """float32[iterations]: ``A(t)``; None of Adagrad."""


class Scalars(NamedTuple):
    """Settings that the step takes as arguments, so that runs share one program."""

    learning_rate: Any
    pretrained_factor: Any
    """Learning rate of pretrained weights over the others'."""
    seed: Any
    """uint32."""
    weight_decay: Any
    rates: Mapping[str, Rate]
    """Rates of dropout, by setting."""
    rests: Mapping[bool, Rest]
    """How rows of tables rest that are updated by row; pretrained ones under True."""


class TrainState(NamedTuple):
    """Everything an iteration changes."""

    parameters: Parameters
    optimizer: Any
    iteration: jax.Array
    """uint32: iterations done."""
    touched: Touched


def copy_state(state: TrainState) -> TrainState:
    """Copy a state, for steps whose result is thrown away."""
    is_sharded = any(len(leaf.devices()) > 1 for leaf in jax.tree.leaves(state))
    # One program to compile. The copies of sharded arrays must have the very shardings of these.
    return _copied(state) if is_sharded else _copied_at_once(state)


def _copied(state: TrainState) -> TrainState:
    copied: TrainState = jax.tree.map(jnp.copy, state)
    return copied


_copied_at_once = jax.jit(_copied)
