"""The jit-compiled training step: one batch, one Adam update; and several of them in one
dispatch.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import optax
from flax import nnx

from ncfbench.config import RunConfig
from ncfbench.data.store import Dataset
from ncfbench.distributed.mesh import WHOLE, Layout, Part
from ncfbench.distributed.spread import SpreadSampler
from ncfbench.models import precision
from ncfbench.models.device import iterations_per_dispatch, transferred
from ncfbench.models.dropout import Dropout
from ncfbench.models.losses import Loss, make_loss
from ncfbench.models.objective import batch_scores, link_loss, user_penalty
from ncfbench.models.towers import Content, Towers, make_towers
from ncfbench.sampling import Sampler
from ncfbench.sampling.batch import Batch

Parameters: TypeAlias = Any
"""The towers' parameters, a tree of arrays."""


class TrainState(NamedTuple):
    """Everything an iteration changes."""

    parameters: Parameters
    optimizer: Any
    iteration: jax.Array
    """uint32: iterations done."""


def batch_loss(
    towers: Towers,
    batch: Batch,
    content: Content,
    dropout: Dropout | None,
    loss: Loss,
    config: RunConfig,
    part: Part = WHOLE,
) -> jax.Array:
    """The sampled objective of one batch, the users' penalty included; or of one device's part of
    it.
    """
    vectors_UxD = towers.user_vectors(batch.users)
    items_VxD = part.gather(towers.embed_items(batch.items, content, dropout, part.item_rows))
    positive, negative = batch_scores(towers.finish(vectors_UxD), items_VxD, batch)
    links = link_loss(
        positive, negative, batch.negatives.weight * part.weight_factor, loss, config.lambda_
    )
    return links + user_penalty(vectors_UxD[batch.pos_user], config.user_l2)


@dataclass
class Trainer:
    """The compiled step of one configuration. ``traces`` counts compilations: one for each shape of
    batch.

    ``step(state, batch, content)`` gives the state after one iteration and its loss, float32.
    ``steps(state, batches, content)`` does one iteration with each of some batches of equal shapes
    and gives their losses, float32[n]. Both take the state's memory.
    """

    config: RunConfig
    towers: nnx.GraphDef[Towers]
    optimizer: optax.GradientTransformation
    shapes: TrainState
    """Shapes and dtypes of the state as it is kept: the same for any number of devices."""
    layout: Layout | None = None
    """How the step lies on several devices; its batches are in parts then
    (:class:`ncfbench.sampling.SpreadSampler`).
    """
    traces: int = 0
    step: Callable[[TrainState, Batch, Content], tuple[TrainState, jax.Array]] = field(init=False)
    steps: Callable[[TrainState, tuple[Batch, ...], Content], tuple[TrainState, jax.Array]] = field(
        init=False
    )

    def __post_init__(self) -> None:
        # The state is donated: the old parameters' memory holds the new ones.
        self.step = jax.jit(self._step, donate_argnums=0)
        self.steps = jax.jit(self._steps, donate_argnums=0)

    @classmethod
    def create(cls, config: RunConfig, dataset: Dataset) -> tuple[Trainer, TrainState]:
        """A trainer and the state that the run's seed gives.

        Raises:
            UsageError: the device cannot compute at the precision, or there are not as many
                devices.
        """
        precision.require(config.precision)
        layout = Layout.of(config)
        optimizer = optax.adam(config.learning_rate)
        with nullcontext() if layout is None else layout.at_home():
            graph, variables = nnx.split(make_towers(config, dataset))
            parameters = nnx.as_pure(variables)
            state = TrainState(parameters, optimizer.init(parameters), jnp.uint32(0))
        shapes = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), state)
        trainer = cls(config, graph, optimizer, shapes, layout)
        return trainer, trainer.from_host(state)

    def sampler(self, sampler: Sampler) -> Sampler:
        """A sampler's batches as the step takes them: in parts, of which this process makes its
        own, on several devices.
        """
        return (
            sampler
            if self.layout is None
            else SpreadSampler(sampler, self.layout.size, self.layout.own)
        )

    def put(self, batch: Batch) -> Batch:
        """A batch of :meth:`sampler` to where the step takes it at once; waits until it is
        there.
        """
        return transferred(batch) if self.layout is None else self.layout.put(batch)

    def spread(self, content: Content) -> Content:
        """Texts to every device that the step computes on."""
        found: Content = content if self.layout is None else self.layout.spread(content)
        return found

    def on_one(self, parameters: Parameters) -> Parameters:
        """The state's parameters for what one device computes; see :meth:`Layout.on_one`."""
        return parameters if self.layout is None else self.layout.on_one(parameters)

    def to_host(self, state: TrainState) -> TrainState:
        """A state as it is kept, with arrays of :attr:`shapes`."""
        return (
            state if self.layout is None else TrainState(*self.layout.to_host(state, self.shapes))
        )

    def from_host(self, state: TrainState) -> TrainState:
        """A state that was kept, on the devices."""
        return state if self.layout is None else TrainState(*self.layout.place(state))

    @property
    def per_dispatch(self) -> int:
        """How many iterations a dispatch should do here."""
        return iterations_per_dispatch(self.config.iterations_per_dispatch)

    def gradient(
        self, parameters: Parameters, batch: Batch, content: Content, dropout: Dropout | None
    ) -> tuple[jax.Array, Parameters]:
        """The sampled objective of a batch and its gradient, with products at the configured
        precision.
        """
        loss = make_loss(self.config)

        def objective(
            parameters: Parameters, batch: Batch, content: Content, dropout: Any, part: Part
        ) -> jax.Array:
            towers = nnx.merge(self.towers, parameters)
            return batch_loss(towers, batch, content, dropout, loss, self.config, part)

        if self.layout is not None:
            transformed = partial(precision.at, self.config.precision)
            return self.layout.value_and_gradient(
                objective, transformed, parameters, batch, content, dropout
            )
        by_parameters = jax.value_and_grad(
            lambda parameters: objective(parameters, batch, content, dropout, WHOLE)
        )
        value, gradient = precision.at(self.config.precision, by_parameters)(parameters)
        return value, gradient

    def _step(
        self, state: TrainState, batch: Batch, content: Content
    ) -> tuple[TrainState, jax.Array]:
        self.traces += 1
        return self._advance(state, batch, content)

    def _steps(
        self, state: TrainState, batches: tuple[Batch, ...], content: Content
    ) -> tuple[TrainState, jax.Array]:
        self.traces += 1
        stacked: Batch = jax.tree.map(lambda *arrays: jnp.stack(arrays), *batches)
        return jax.lax.scan(
            lambda state, batch: self._advance(state, batch, content), state, stacked
        )

    def _advance(
        self, state: TrainState, batch: Batch, content: Content
    ) -> tuple[TrainState, jax.Array]:
        dropout = Dropout(jnp.uint32(self.config.seed), state.iteration)
        value, gradient = self.gradient(state.parameters, batch, content, dropout)
        updates, optimizer = self.optimizer.update(gradient, state.optimizer, state.parameters)
        parameters = optax.apply_updates(state.parameters, updates)
        advanced = TrainState(parameters, optimizer, state.iteration + 1)
        if self.layout is not None:
            # As it lay before, or the next step would be compiled again.
            advanced = jax.lax.with_sharding_constraint(advanced, self.layout.shardings(advanced))
        return advanced, value


def copy_state(state: TrainState) -> TrainState:
    """A state with memory of its own, for steps whose result is thrown away."""
    copied: TrainState = jax.tree.map(jnp.copy, state)
    return copied
