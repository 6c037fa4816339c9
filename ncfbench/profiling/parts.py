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
from flax import nnx
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as Spec

from ncfbench.distributed.collectives import AXIS, gather, reduce_scatter
from ncfbench.models.dropout import Dropout
from ncfbench.models.interaction import Interaction
from ncfbench.models.losses import make_loss
from ncfbench.models.objective import batch_link_loss, coupling_penalty, user_penalty
from ncfbench.models.precision import at
from ncfbench.models.tables import ENCODER, FREE_ITEMS, USER_TOWER, Rows
from ncfbench.models.towers import DeviceContent, Towers
from ncfbench.sampling.batch import Batch, rounded_up
from ncfbench.training.optimizer import Held
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

        def f(towers: Towers, ids: jax.Array, content: DeviceContent, rows: Rows) -> Any:
            vectors = towers.users(content, ids, rows)
            return vectors.scored, user_penalty(vectors.raw, self.config.user_l2)

        return self._backward(f, (USER_TOWER,), ids, cotangent)

    def item(self, ids: np.ndarray, cotangent: Vectors = None) -> Call:
        """Return g of item ids with dropout, and any free vectors, forward and backward."""

        def g(towers: Towers, ids: jax.Array, content: DeviceContent, rows: Rows) -> Any:
            dropout = Dropout(jnp.uint32(self.config.seed), jnp.uint32(0))
            vectors, penalty = towers.items(ids, content, dropout, rows), jnp.float32(0)
            if towers.free_items is not None:
                gaps = towers.gaps(ids, content, dropout, rows)
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

    def optimiser(self, batch: Batch, gradient: Parameters | None = None) -> Call:
        """Return one update of all parameters, or of tables by row of the rows that a batch names;
        its state goes from call to call, as in training.
        """
        trainer = self.trainer

        def hold(state: TrainState, batch: Batch, content: DeviceContent) -> Held:
            return trainer.hold(state, batch.users, batch.items, content, trainer.scalars)

        def update(state: TrainState, batch: Batch, content: Any, gradient: Any) -> TrainState:
            held = hold(state, batch, content)
            return trainer.optimizer.update(held, gradient, trainer.scalars)

        compiled = jax.jit(update, donate_argnums=0)
        state = copy_state(self.state._replace(carry=None))
        on_device = jax.device_put(batch)
        if gradient is None:
            gradient = jax.jit(hold)(state, on_device, self.content).parameters

        def call() -> Any:
            nonlocal state
            state = compiled(state, on_device, self.content, gradient)
            return state.parameters

        return call

    def dispatch(self, batch: Batch) -> Call:
        """Return a compiled function with a step's arguments that does next to nothing."""
        nothing = jax.jit(lambda parameters, batch: batch.n_items + 1)
        on_device = jax.device_put(batch)
        return lambda: nothing(self.state.parameters, on_device)

    def _backward(
        self,
        function: Callable[[Towers, jax.Array, DeviceContent, Rows], Any],
        names: tuple[str, ...],
        ids: np.ndarray,
        cotangent: Vectors,
    ) -> Call:
        """Return the gradient of vectors and a penalty by the parameters of some names."""
        are_users = USER_TOWER in names

        def gradient(
            state: TrainState, ids: jax.Array, cotangent: jax.Array, content: DeviceContent
        ) -> Any:
            users, items = (ids, None) if are_users else (None, ids)
            held = self.trainer.hold(state, users, items, content, self.trainer.scalars)

            def forward(some: Any) -> Any:
                parameters = nnx.State({**held.parameters, **some})
                towers = nnx.merge(self.trainer.towers, parameters)
                return function(towers, ids, content, held.rows)

            some = {name: value for name, value in held.parameters.items() if name in names}
            return jax.vjp(forward, some)[1]((cotangent, jnp.float32(1)))[0]

        compiled = jax.jit(at(self.config.precision, gradient))
        cotangent = self._vectors(len(ids)) if cotangent is None else cotangent
        ids, cotangent = jax.device_put((ids.astype(np.int32), cotangent))
        return lambda: compiled(self.state, ids, cotangent, self.content)

    def _vectors(self, rows: int) -> np.ndarray:
        return self.rng.normal(0, 1e-3, (rows, self.config.dimension)).astype(np.float32)


def collectives(trainer: Trainer, batch: Batch, words: int) -> tuple[int, Call]:
    """Return the bytes that a step without ``shard_tables`` sends, but for texts, and a function
    that sends them and computes nothing else.

    Args:
        words: the length of a text.
    """
    layout, config = trainer.layout, trainer.config
    item_slots = rounded_up(len(batch.items), layout.size)
    shapes = trainer.held_shapes(len(batch.users), item_slots, words)
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
