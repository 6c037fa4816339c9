"""The parts of a training step: f, g, the interaction with the loss, the optimiser, collectives.

Each is a compiled function of its own, forward and backward, on inputs that are already on the
device. A whole step differs from their sum: XLA fuses across their borders, and each call has a
dispatch of its own. So they predict nothing. They are a check of the costs in the step
(:mod:`ncfbench.profiling.calibration`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as Spec

from ncfbench.distributed.collectives import AXIS, gather, reduce_scatter
from ncfbench.models.dropout import Dropout
from ncfbench.models.interaction import Interaction
from ncfbench.models.losses import make_loss
from ncfbench.models.objective import batch_link_loss, coupling_penalty, user_penalty
from ncfbench.models.precision import at
from ncfbench.models.towers import ENCODER, FREE_ITEMS, USER_TOWER, DeviceContent, Towers
from ncfbench.sampling.batch import Batch, rounded_up
from ncfbench.training.state import Parameters, TrainState, copy_state
from ncfbench.training.step import Trainer

Call = Callable[[], Any]
"""Runs a part once; returns an array, or a tree of them, to wait for."""
Vectors = np.ndarray | jax.Array | None


@dataclass
class Parts:
    """Parts of the step of some settings, at given parameters.

    Gradients come back through cotangents of vectors, float32[n, D]; by default small random ones.

    Args:
        state: of the trainer; copied where a part changes it.
    """

    trainer: Trainer
    state: TrainState
    content: DeviceContent

    def __post_init__(self) -> None:
        self.config, self.rng = self.trainer.config, np.random.default_rng(0)

    def user(self, ids: np.ndarray, cotangent: Vectors = None) -> Call:
        """Return f of user ids with the users' penalty, forward and backward."""

        def f(towers: Towers, ids: jax.Array, content: DeviceContent) -> Any:
            vectors = towers.users(content, ids)
            return vectors.scored, user_penalty(vectors.raw, self.config.user_l2)

        return self._backward(f, (USER_TOWER,), ids, cotangent)

    def item(self, ids: np.ndarray, cotangent: Vectors = None) -> Call:
        """Return g of item ids with dropout, and any free vectors, forward and backward."""

        def g(towers: Towers, ids: jax.Array, content: DeviceContent) -> Any:
            dropout = Dropout(jnp.uint32(self.config.seed), jnp.uint32(0))
            vectors, penalty = towers.items(ids, content, dropout), jnp.float32(0)
            if towers.free_items is not None:
                gaps = towers.gaps(ids, content, dropout)
                penalty = coupling_penalty(gaps, self.config.coupling_weight)
            return vectors, penalty

        return self._backward(g, (ENCODER, FREE_ITEMS), ids, cotangent)

    def interaction(self, batch: Batch, users: Vectors = None, items: Vectors = None) -> Call:
        """Return scores and loss of a batch from its nodes' vectors, forward and backward."""
        loss = make_loss(self.config)

        def value(score: Interaction, f: jax.Array, g: jax.Array, batch: Batch) -> jax.Array:
            return batch_link_loss(f, g, batch, score, loss, self.config.lambda_)

        gradient = jax.jit(at(self.config.precision, jax.value_and_grad(value, argnums=(0, 1, 2))))
        vectors = (
            self._vectors(len(ids)) if given is None else given
            for ids, given in ((batch.users, users), (batch.items, items))
        )
        f, g, on_device = jax.device_put((*vectors, batch))
        score = nnx.merge(self.trainer.towers, self.state.parameters).interaction
        return lambda: gradient(score, f, g, on_device)

    def optimiser(self, gradient: Parameters | None = None) -> Call:
        """Return one update of all parameters; its state goes from call to call, as in training."""

        def update(parameters: Parameters, optimizer: Any, gradient: Parameters) -> Any:
            updates, changed = self.trainer.optimizer.update(gradient, optimizer, parameters)
            return optax.apply_updates(parameters, updates), changed

        compiled = jax.jit(update, donate_argnums=(0, 1))
        held = copy_state(self.state)
        parameters, optimizer = held.parameters, held.optimizer
        gradient = copy_state(held).parameters if gradient is None else gradient

        def call() -> Any:
            nonlocal parameters, optimizer
            parameters, optimizer = compiled(parameters, optimizer, gradient)
            return parameters

        return call

    def dispatch(self, batch: Batch) -> Call:
        """Return a compiled function with a step's arguments that does next to nothing."""
        nothing, on_device = (
            jax.jit(lambda parameters, batch: batch.n_items + 1),
            jax.device_put(batch),
        )
        return lambda: nothing(self.state.parameters, on_device)

    def _backward(
        self,
        function: Callable[[Towers, jax.Array, DeviceContent], Any],
        names: tuple[str, ...],
        ids: np.ndarray,
        cotangent: Vectors,
    ) -> Call:
        """Return the gradient of vectors and a penalty by the parameters of some names."""

        def gradient(
            parameters: Any, ids: jax.Array, cotangent: jax.Array, content: DeviceContent
        ) -> Any:
            def forward(some: Any) -> Any:
                towers = nnx.merge(self.trainer.towers, nnx.State({**parameters, **some}))
                return function(towers, ids, content)

            some = {name: value for name, value in parameters.items() if name in names}
            return jax.vjp(forward, some)[1]((cotangent, jnp.float32(1)))[0]

        compiled = jax.jit(at(self.config.precision, gradient))
        cotangent = self._vectors(len(ids)) if cotangent is None else cotangent
        ids, cotangent = jax.device_put((ids.astype(np.int32), cotangent))
        return lambda: compiled(self.state.parameters, ids, cotangent, self.content)

    def _vectors(self, rows: int) -> np.ndarray:
        return self.rng.normal(0, 1e-3, (rows, self.config.dimension)).astype(np.float32)


def collectives(trainer: Trainer, batch: Batch) -> tuple[int, Call]:
    """Return the bytes that a step without ``shard_tables`` sends, but for texts, and a function
    that sends them and computes nothing else.
    """
    layout, config, shapes = trainer.layout, trainer.config, trainer.shapes.parameters
    item_slots = rounded_up(len(batch.items), layout.size)
    sent = layout.sent_bytes(shapes, 0, item_slots, 0, config.share)

    def on_device(vectors: jax.Array, gradient: Parameters) -> tuple[jax.Array, Parameters]:
        if not config.shares_locally:
            vectors = reduce_scatter(gather(vectors))
        return vectors, jax.tree.map(lambda leaf: jax.lax.psum(leaf, AXIS), gradient)

    specs = Spec(AXIS), Spec()
    mapped = jax.shard_map(
        on_device, mesh=layout.mesh, in_specs=specs, out_specs=specs, check_vma=False
    )
    compiled = jax.jit(mapped, donate_argnums=(0, 1))
    vectors = jnp.zeros((item_slots, config.dimension), jnp.float32)
    gradient = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
    sharded = jax.device_put(vectors, NamedSharding(layout.mesh, Spec(AXIS)))
    held = sharded, layout.replicate(gradient)

    def call() -> Any:
        nonlocal held
        held = compiled(*held)
        # On a CPU devices wait for each other in threads of one pool, which must not be full of
        # later calls.
        return jax.block_until_ready(held) if layout.is_simulated else held

    return round(sum(sent.values())), call
