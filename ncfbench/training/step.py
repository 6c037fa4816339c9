"""The compiled training step: one update for one batch."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Hashable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from ncfbench.catalog import BUILT_IN, ENCODERS, find_encoder
from ncfbench.config import RunConfig
from ncfbench.data.store import Dataset
from ncfbench.distributed.layout import Layout, make_layout
from ncfbench.errors import UsageError
from ncfbench.models.dropout import Dropout
from ncfbench.models.losses import Loss, make_loss
from ncfbench.models.objective import batch_link_loss, user_penalty
from ncfbench.models.tables import WHOLE_TABLES, Rows
from ncfbench.models.towers import DeviceContent, Towers, UserVectors, make_towers
from ncfbench.sampling.batch import Batch
from ncfbench.storage.free_space import available_memory
from ncfbench.training.inference import Embedder
from ncfbench.training.optimizer import Held, Optimizer, tables_by_row
from ncfbench.training.state import Parameters, Scalars, TrainState

IN_FLIGHT = 4
"""Most iterations dispatched but not done: enough to keep the device busy, and few to wait for
after Ctrl-C.
"""
PROGRAMS = 32
"""Programs that are kept for trainers to come."""
NUMBERS = (
    *("seed", "learning_rate", "pretrained_learning_rate", "weight_decay"),
    *("word_dropout", "feature_dropout", "item_dropout"),
)
"""Settings that a program takes as arguments (:class:`~ncfbench.training.state.Scalars`), but for
whether they are 0. The scale of scores and the weight of negatives are constants: XLA multiplies
them with others, so that as arguments they would change the last bits of every curve.
"""


@dataclass(frozen=True)
class Structure:
    """All that a trainer's program depends on beside the shapes of its arguments."""

    parts: tuple[Hashable, ...]
    trainer: Trainer = field(compare=False)


def batch_loss(
    towers: Towers,
    batch: Batch,
    content: DeviceContent,
    dropout: Dropout | None,
    loss: Loss,
    config: RunConfig,
    rows: Rows = WHOLE_TABLES,
) -> jax.Array:
    """Return the sampled objective of a batch with its penalties.

    Args:
        rows: those of the user slots, and of the item slots and their words, in the towers' tables.
        dropout: of the iteration; None: no dropout.
    """
    users = towers.users(content, batch.users, rows)
    of_links = positive_users(towers, batch, content, rows)
    encoded = (batch.items, content, dropout, rows, batch.n_items)
    items_VxD = towers.items(*encoded)
    links = batch_link_loss(
        users.scored,
        items_VxD,
        batch,
        loss,
        config.lambda_,
        own_bxD=None if of_links is None else of_links.scored,
    )
    raw_bxD = users.raw[batch.pos_user] if of_links is None else of_links.raw
    total = links + user_penalty(raw_bxD, config.user_l2)
    if towers.free_items is None:
        return total
    gaps_b = towers.gaps(*encoded)[batch.pos_item]  # an item counts once for each of its links
    return total + config.coupling_weight * jnp.mean(gaps_b)


def positive_users(
    towers: Towers, batch: Batch, content: DeviceContent, rows: Rows = WHOLE_TABLES
) -> UserVectors | None:
    """Return the vectors of the positive links' users whose histories lack the link itself; None
    where the user tower reads no histories.
    """
    if not towers.history_items:
        return None
    items, slots = batch.items[batch.pos_item], batch.pos_user
    return towers.users(content, batch.users[slots], rows.of_users(slots), left_out=items)


class Program:
    """The compiled functions of a trainer, and of all that differ from it in numbers alone.

    Attributes:
        traces: compilations of the step.
    """

    def __init__(self, trainer: Trainer) -> None:
        self.traces = 0

        def step(*arguments: Any) -> tuple[TrainState, jax.Array]:
            self.traces += 1
            return trainer.trained(*arguments)

        # The state is donated: the old parameters' memory holds the new ones.
        out = trainer.layout.out_shardings
        self.step = jax.jit(step, donate_argnums=0, out_shardings=out)
        self.settle = jax.jit(trainer.optimizer.settle, donate_argnums=0, out_shardings=out)


@lru_cache(maxsize=PROGRAMS)
def program_of(structure: Structure) -> Program:
    """Return the program of a structure, one for as long as it is kept."""
    return Program(structure.trainer)


@dataclass
class Trainer:
    """The compiled step of one configuration."""

    config: RunConfig
    towers: nnx.GraphDef[Towers]
    optimizer: Optimizer
    shapes: TrainState
    """Shapes and dtypes of the state as it is saved: the same for any number of devices."""
    layout: Layout

    def __post_init__(self) -> None:
        scalars = self.optimizer.scalars()
        # On one device they are moved once, not with each step.
        rests = self.layout.replicate(scalars.rests)
        is_alone = self.layout.size == 1
        self.scalars = jax.device_put(scalars) if is_alone else scalars._replace(rests=rests)
        settings = self.config.to_dict()
        settings |= {name: settings[name] != 0 for name in NUMBERS if name in settings}
        tables = frozenset(self.optimizer.tables.items())
        parts = json.dumps(settings, sort_keys=True), self.towers, tables, self.layout.mesh
        self._is_shared = all(settings[kind] in BUILT_IN[kind] for kind in BUILT_IN)
        self._program = program_of(Structure(parts, self)) if self._is_shared else Program(self)
        self._in_flight: deque[jax.Array] = deque()
        # Simulated devices wait for each other in threads of one pool, which must not be full of
        # later steps.
        self._most_in_flight = 1 if self.layout.is_simulated else IN_FLIGHT

    @property
    def traces(self) -> int:
        """Compilations of the step, of all trainers that share it."""
        return self._program.traces

    @classmethod
    def create(
        cls, config: RunConfig, dataset: Dataset, layout: Layout | None = None
    ) -> tuple[Trainer, TrainState]:
        """Return a trainer, and the state that the run's seed gives.

        Raises:
            UsageError: the devices are too few.
        """
        layout = layout or make_layout(config)
        towers, optimizer, state = _initial(config, dataset)
        trainer = cls(config, towers, optimizer, jax.eval_shape(lambda: state), layout)
        return trainer, layout.replicate(state)

    @classmethod
    def without_state(
        cls, config: RunConfig, dataset: Dataset, layout: Layout | None = None
    ) -> Trainer:
        """Return a trainer of :meth:`create` for a state that a checkpoint holds: memory holds no
        other. Plug-ins, which may keep arrays where JAX does not see them, make one and drop it.

        Raises:
            UsageError: see :meth:`create`.
        """
        if config.encoder not in ENCODERS:
            return cls.create(config, dataset, layout)[0]
        return cls(config, *_traced(config, dataset), layout or make_layout(config))

    def embedder(self, content: DeviceContent) -> Embedder:
        """Return an embedder of the towers."""
        is_costly = find_encoder(self.config.encoder).is_costly
        return Embedder(self.towers, content, by_length=is_costly, is_shared=self._is_shared)

    def gradient(
        self,
        parameters: Parameters,
        batch: Batch,
        content: DeviceContent,
        dropout: Dropout | None,
        rows: Rows = WHOLE_TABLES,
    ) -> tuple[jax.Array, Parameters]:
        """Return the sampled objective of a batch and its gradient."""
        loss = make_loss(self.config)

        def objective(parameters: Parameters) -> jax.Array:
            towers = nnx.merge(self.towers, parameters)
            return batch_loss(towers, batch, content, dropout, loss, self.config, rows)

        return jax.value_and_grad(objective)(parameters)

    def step(
        self, state: TrainState, batch: Batch, content: DeviceContent
    ) -> tuple[TrainState, jax.Array]:
        """Return the state after an iteration with a batch, and its loss, float32.

        It is compiled once for each shape. The state's memory is taken over. Few steps are in
        flight when it returns.
        """
        after, loss = self._program.step(state, batch, content, self.scalars)
        self._in_flight.append(loss)
        while len(self._in_flight) >= self._most_in_flight:
            jax.block_until_ready(self._in_flight.popleft())
        return after, loss

    def step_bytes(self, state: TrainState, batch: Batch, content: DeviceContent) -> int:
        """Return the bytes that a step needs beside its arguments, by XLA's analysis; 0 where the
        backend has none. The step is compiled once, here or where it runs.
        """
        analysis = self.trace(state, batch, content).lower().compile().memory_analysis()
        if analysis is None:
            return 0
        output = analysis.output_size_in_bytes - analysis.alias_size_in_bytes
        return int(analysis.temp_size_in_bytes + output)

    def require_memory(self, state: TrainState, batch: Batch, content: DeviceContent) -> int:
        """Return :meth:`step_bytes`; refuse a step that needs more memory than is free, by a
        UsageError.
        """
        needed, config, free = self.step_bytes(state, batch, content), self.config, free_bytes()
        if needed > free:
            raise UsageError(
                f"A step of {config.encoder} with {config.sampler} and batches of"
                f" {config.batch_size:,} links needs {needed / 2**30:,.1f} GiB of memory, and"
                f" {free / 2**30:,.1f} GiB are free. Use a smaller --batch-size, --set"
                " item_block=N to encode the items in pieces, or data prepared with a smaller"
                " --max-length."
            )
        return needed

    def settle(self, state: TrainState) -> TrainState:
        """Return the state with all rows of all tables up to date, for whoever reads them. The
        state's memory is taken over.
        """
        return self._program.settle(state, self.scalars) if self.optimizer.tables else state

    def trace(self, state: TrainState, batch: Batch, content: DeviceContent) -> Any:
        """Return the traced step for inspection, or to compile it without running it."""
        return self._program.step.trace(state, batch, content, self.scalars)

    def trained(
        self, state: TrainState, batch: Batch, content: DeviceContent, scalars: Scalars
    ) -> tuple[TrainState, jax.Array]:
        """Return :meth:`step` with other scalars. Called while it is traced."""
        dropout = Dropout(scalars.seed, state.iteration, scalars.rates)
        held = self._hold(state, batch, content, scalars)
        value, gradient = self.gradient(held.parameters, batch, content, dropout, held.rows)
        return self.optimizer.update(held, gradient, scalars), value

    def _hold(
        self, state: TrainState, batch: Batch, content: DeviceContent, scalars: Scalars
    ) -> Held:
        """Return what a step differentiates: all parameters, or of tables that are updated by row
        the rows of a batch's users and items and of their content.
        """
        if not self.optimizer.tables:
            return Held(state.parameters, WHOLE_TABLES, {}, state)
        users, items = self.layout.on_each((batch.users, batch.items))
        ids = {"users": users}
        if content.histories is not None:
            history = content.histories.of(users, self.config.history_items)
            ids["histories"] = jnp.where(history.present, history.items, -1)
        tokens = content.tokens[items]
        ids |= {"items": items, "words": jnp.where(tokens > 0, tokens, -1)}
        held: Held = self.layout.on_each(self.optimizer.hold(state, ids, scalars))
        return held


def free_bytes() -> int:
    """Return the free bytes of the first device's memory."""
    device = jax.local_devices()[0].memory_stats() or {}
    if "bytes_limit" in device:
        return int(device["bytes_limit"] - device["bytes_in_use"])
    return available_memory()


def state_shapes(config: RunConfig, dataset: Dataset) -> TrainState:
    """Return the shapes of a run's state, which is not made, but where a plug-in needs numbers."""
    try:
        return _traced(config, dataset)[-1]
    except jax.errors.JAXTypeError:
        state = _initial(config, dataset)[-1]
        shapes: TrainState = jax.eval_shape(lambda: state)
        return shapes


def _initial(
    config: RunConfig, dataset: Dataset
) -> tuple[nnx.GraphDef[Towers], Optimizer, TrainState]:
    graph, variables = nnx.split(make_towers(config, dataset))
    parameters = nnx.as_pure(variables)
    optimizer = Optimizer(config, tables_by_row(config, parameters))
    moments, touched = optimizer.init(parameters)
    state = TrainState(parameters, moments, jnp.uint32(0), touched)
    return graph, optimizer, state


def _traced(
    config: RunConfig, dataset: Dataset
) -> tuple[nnx.GraphDef[Towers], Optimizer, TrainState]:
    """Return the same with shapes in place of the state, which is not made."""
    traced = []

    def initial() -> TrainState:
        traced.append(_initial(config, dataset))
        return traced[0][-1]

    shapes: TrainState = jax.eval_shape(initial)
    return *traced[0][:2], shapes
