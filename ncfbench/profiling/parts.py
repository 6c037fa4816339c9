"""The parts of a training step: f, g, the interaction with the loss, the optimiser.

Each is a compiled function of its own, forward and backward, on inputs that are already on the
device. A whole step differs from their sum: XLA fuses across their borders, and each call has a
dispatch of its own. So they predict nothing. They are a check of the costs in the step
(:mod:`ncfbench.profiling.calibration`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

from ncfbench.config import RunConfig
from ncfbench.models.dropout import Dropout
from ncfbench.models.interaction import Interaction, make_interaction
from ncfbench.models.losses import make_loss
from ncfbench.models.objective import batch_link_loss, coupling_penalty, user_penalty
from ncfbench.models.precision import at
from ncfbench.models.towers import ENCODER, FREE_ITEMS, USER_TOWER, DeviceContent, Towers
from ncfbench.sampling.batch import Batch
from ncfbench.training.state import Parameters, TrainState, copy_state
from ncfbench.training.step import Trainer

Call = Callable[[], Any]
"""Runs a part once; returns an array, or a tree of them, to wait for."""


@dataclass
class Parts:
    """Parts of the step of some settings, at given parameters.

    Args:
        state: of the trainer; copied where a part changes it.
    """

    trainer: Trainer
    state: TrainState
    content: DeviceContent

    def __post_init__(self) -> None:
        towers, loss, config = (
            self.trainer.towers,
            make_loss(self.trainer.config),
            self.trainer.config,
        )
        self.rng = np.random.default_rng(0)
        as_in_training = partial(at, config.precision)

        @jax.jit
        @as_in_training
        def user(
            parameters: Parameters, ids: jax.Array, cotangent: jax.Array, content: DeviceContent
        ) -> Parameters:
            def f(own: Any) -> tuple[jax.Array, jax.Array]:
                built: Towers = nnx.merge(towers, nnx.State({**parameters, **own}))
                vectors = built.users(content, ids)
                return vectors.scored, user_penalty(vectors.raw, config.user_l2)

            return jax.vjp(f, _some(parameters, USER_TOWER))[1]((cotangent, jnp.float32(1)))[0]

        @jax.jit
        @as_in_training
        def item(
            parameters: Parameters, ids: jax.Array, cotangent: jax.Array, content: DeviceContent
        ) -> Parameters:
            dropout = Dropout(jnp.uint32(config.seed), jnp.uint32(0))

            def g(own: Any) -> tuple[jax.Array, jax.Array]:
                built: Towers = nnx.merge(towers, nnx.State({**parameters, **own}))
                vectors, penalty = built.items(ids, content, dropout), jnp.float32(0)
                if built.free_items is not None:
                    gaps = built.gaps(ids, content, dropout)
                    penalty = coupling_penalty(gaps, config.coupling_weight)
                return vectors, penalty

            own = _some(parameters, ENCODER, FREE_ITEMS)
            return jax.vjp(g, own)[1]((cotangent, jnp.float32(1)))[0]

        @jax.jit
        @as_in_training
        def interaction(score: Interaction, f: jax.Array, g: jax.Array, batch: Batch) -> Any:
            def value(score: Interaction, f: jax.Array, g: jax.Array) -> jax.Array:
                return batch_link_loss(f, g, batch, score, loss, config.lambda_)

            return jax.value_and_grad(value, argnums=(0, 1, 2))(score, f, g)

        def optimise(
            parameters: Parameters, optimizer: Any, gradient: Parameters
        ) -> tuple[Parameters, Any]:
            updates, changed = self.trainer.optimizer.update(gradient, optimizer, parameters)
            return optax.apply_updates(parameters, updates), changed

        self._user, self._item, self._interaction = user, item, interaction
        self._optimise = jax.jit(optimise, donate_argnums=(0, 1))
        self._nothing = jax.jit(lambda parameters, batch: batch.n_items + 1)

    def user(self, ids: np.ndarray) -> Call:
        """Return f of user ids with the users' penalty, forward and backward."""
        on_device, cotangent = jax.device_put((ids.astype(np.int32), self._cotangent(len(ids))))
        return lambda: self._user(self.state.parameters, on_device, cotangent, self.content)

    def item(self, ids: np.ndarray) -> Call:
        """Return g of item ids with dropout, and any free vectors, forward and backward."""
        on_device, cotangent = jax.device_put((ids.astype(np.int32), self._cotangent(len(ids))))
        return lambda: self._item(self.state.parameters, on_device, cotangent, self.content)

    def interaction(self, batch: Batch) -> Call:
        """Return scores and loss of a batch from its nodes' vectors, forward and backward."""
        on_device: Batch = jax.device_put(batch)
        f, g = jax.device_put(
            (self._cotangent(len(batch.users)), self._cotangent(len(batch.items)))
        )
        score = nnx.merge(self.trainer.towers, self.state.parameters).interaction
        return lambda: self._interaction(score, f, g, on_device)

    def optimiser(self) -> Call:
        """Return one update of all parameters; its state goes from call to call, as in training."""
        held = copy_state(self.state)
        parameters, optimizer, gradient = (
            held.parameters,
            held.optimizer,
            copy_state(held).parameters,
        )

        def call() -> Any:
            nonlocal parameters, optimizer
            parameters, optimizer = self._optimise(parameters, optimizer, gradient)
            return parameters

        return call

    def dispatch(self, batch: Batch) -> Call:
        """Return a compiled function with a step's arguments that does next to nothing."""
        on_device: Batch = jax.device_put(batch)
        return lambda: self._nothing(self.state.parameters, on_device)

    def _cotangent(self, rows: int) -> np.ndarray:
        return self.rng.normal(0, 1e-3, (rows, self.trainer.config.dimension)).astype(np.float32)


def products(config: RunConfig, size: int) -> tuple[Call, Call]:
    """Return two ways to all ``size`` x ``size`` scores and their gradient (KDD 2017, figure).

    The first is the interaction's matrix, the second its pairs.
    """
    rng, dimension = np.random.default_rng(0), config.dimension
    score = make_interaction(config)

    def matrix(f: jax.Array, g: jax.Array) -> jax.Array:
        return jnp.sum(jnp.tanh(score.matrix(f, g)))

    def pairs(f: jax.Array, g: jax.Array, row: jax.Array, column: jax.Array) -> jax.Array:
        return jnp.sum(jnp.tanh(score.pairs(f[row], g[column])))

    by_matrix, by_pairs = (
        jax.jit(at(config.precision, jax.value_and_grad(value, argnums=(0, 1))))
        for value in (matrix, pairs)
    )
    f, g = jax.device_put(rng.normal(size=(2, size, dimension)).astype(np.float32))
    row, column = jax.device_put(np.divmod(np.arange(size * size, dtype=np.int32), np.int32(size)))
    return lambda: by_matrix(f, g), lambda: by_pairs(f, g, row, column)


def _some(parameters: Any, *names: str) -> Any:
    return {key: value for key, value in parameters.items() if key in names}
