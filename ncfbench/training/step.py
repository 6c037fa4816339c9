"""The compiled training step: one Adam update for one batch, or several in one dispatch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

from ncfbench.catalog import find_encoder
from ncfbench.config import RunConfig
from ncfbench.data.store import Dataset
from ncfbench.distributed.layout import WHOLE, Layout, Shard, make_layout
from ncfbench.distributed.shards import cut
from ncfbench.errors import UsageError
from ncfbench.models import precision
from ncfbench.models.dropout import Dropout
from ncfbench.models.losses import Loss, make_loss
from ncfbench.models.objective import (
    batch_link_loss,
    coupling_penalty,
    user_penalty,
    without_remembered,
)
from ncfbench.models.towers import (
    ENCODER,
    DeviceContent,
    Towers,
    UserVectors,
    make_towers,
)
from ncfbench.sampling import Sampler
from ncfbench.sampling.batch import Batch, EveryUser, MetUsers
from ncfbench.storage.free_space import available_memory
from ncfbench.training.carry import Carry, make_carry
from ncfbench.training.inference import Embedder
from ncfbench.training.state import Parameters, TrainState


class Scalars(NamedTuple):
    """Settings that the step takes as arguments, so that runs share one program."""

    learning_rate: Any
    pretrained_factor: Any
    """Learning rate of pretrained weights over the others'."""
    seed: Any
    """uint32."""


def batch_loss(
    towers: Towers,
    batch: Batch,
    content: DeviceContent,
    dropout: Dropout | None,
    loss: Loss,
    config: RunConfig,
    shard: Shard = WHOLE,
    given_MxD: jax.Array | None = None,
) -> tuple[jax.Array, jax.Array]:
    """Return the sampled objective with its penalties of a batch, or of one device's shard of it,
    and the vectors of its item slots.

    Args:
        given_MxD: vectors of the first item slots, which are constants; by default all are
            embedded, and remembered items are constants of the present parameters.
    """
    named = None if isinstance(batch.negatives, EveryUser) else batch.users
    users = towers.users(content, named, shard.user_rows)
    first = 0 if given_MxD is None else len(given_MxD)
    of_links = positive_users(towers, batch, content, shard)
    # Of a shard of a batch, the number of items is not known.
    n_items = batch.n_items - first if shard is WHOLE else None
    own = (batch.items[first:], content, dropout, shard.item_rows, n_items)
    items_VxD = shard.gather(towers.items(*own))
    if given_MxD is None:
        items_VxD = without_remembered(items_VxD, batch)
    else:
        items_VxD = jnp.concatenate([given_MxD, items_VxD])
    links = batch_link_loss(
        users.scored,
        items_VxD,
        batch,
        towers.interaction,
        loss,
        config.lambda_,
        shard.weight_factor,
        hardest=hardest_of(config),
        own_bxD=None if of_links is None else of_links.scored,
    )
    raw_bxD = users.raw[batch.pos_user] if of_links is None else of_links.raw
    total = links + user_penalty(raw_bxD, config.user_l2)
    if towers.free_items is None:
        return total, items_VxD
    gaps_b = shard.gather(towers.gaps(*own))[batch.pos_item - first]
    return total + coupling_penalty(gaps_b, config.coupling_weight), items_VxD


def positive_users(
    towers: Towers, batch: Batch, content: DeviceContent, shard: Shard
) -> UserVectors | None:
    """Return the vectors of the positive links' users whose histories lack the link itself; None
    where the user tower reads no histories.
    """
    if not towers.history_items:
        return None
    rows = None if shard.user_rows is None else shard.user_rows[batch.pos_user]
    items = shard.gather(batch.items)[batch.pos_item]
    return towers.users(content, batch.users[batch.pos_user], rows, left_out=items)


@jax.jit  # one program, not one for each shape
def initial_moments(parameters: Parameters) -> Any:
    """Return the state of Adam before its first update, which no learning rate changes."""
    return optax.adam(0.0).init(parameters)


@dataclass
class Trainer:
    """The compiled step of one configuration. ``traces`` counts compilations."""

    config: RunConfig
    towers: nnx.GraphDef[Towers]
    optimizer: optax.GradientTransformation
    shapes: TrainState
    """Shapes and dtypes of the state as it is saved: the same for any number of devices."""
    layout: Layout
    carry: Carry
    traces: int = 0

    def __post_init__(self) -> None:
        config = self.config
        self._pretrained = find_encoder(config.encoder).pretrained_parts
        factor = config.pretrained_learning_rate / config.learning_rate if self._pretrained else 1
        rate, seed = np.float32(config.learning_rate), np.uint32(config.seed)
        self._scalars = Scalars(rate, np.float32(factor), seed)
        # The state is donated: the old parameters' memory holds the new ones.
        out = self.layout.out_shardings(self.shapes)
        self._compiled = jax.jit(self._step, donate_argnums=0, out_shardings=out)

    @classmethod
    def create(
        cls, config: RunConfig, dataset: Dataset, layout: Layout | None = None
    ) -> tuple[Trainer, TrainState]:
        """Return a trainer, and the state that the run's seed gives.

        Raises:
            UsageError: the devices cannot compute at the precision, or are too few.
        """
        precision.require(config.precision)
        layout = layout or make_layout(config)
        optimizer = optax.adam(config.learning_rate)
        with layout.initialise_on_host():
            graph, variables = nnx.split(make_towers(config, dataset))
            parameters = nnx.as_pure(variables)
            carry = make_carry(config, dataset.graph)
            moments = initial_moments(parameters)
            state = TrainState(parameters, moments, jnp.uint32(0), carry.initial())
        shapes = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), state)
        trainer = cls(config, graph, optimizer, shapes, layout, carry)
        return trainer, trainer.from_host(state)

    def to_host(self, state: TrainState) -> TrainState:
        """Return a state as it is saved, with arrays of :attr:`shapes`."""
        return TrainState(*self.layout.to_host(state, self.shapes))

    def from_host(self, state: TrainState) -> TrainState:
        """Put a state as it is saved onto the devices."""
        return TrainState(*self.layout.from_host(state))

    def sent_bytes(
        self, sampler: Sampler, item_slots: int, dataset: Dataset, share: str
    ) -> dict[str, float]:
        """Return the bytes that each device sends in a step, see :meth:`Layout.sent_bytes`."""
        batch = sampler.assemble(sampler.draw(0, 1)[0])
        if isinstance(batch.negatives, MetUsers):  # each device has its rows' users besides
            batch = cut(batch, self.layout.size)
        slots, words = (len(batch.users), item_slots), dataset.tokens_IxL.shape[1]
        return self.layout.sent_bytes(self.shapes.parameters, *slots, words, share)

    def embedder(self, content: DeviceContent) -> Embedder:
        """Return an embedder of the towers."""
        return Embedder(self.towers, content, by_length=find_encoder(self.config.encoder).is_costly)

    @property
    def per_dispatch(self) -> int:
        """Iterations in one dispatch; by default one on a CPU, where XLA runs a convolution inside
        ``lax.scan`` 15 to 30 times slower, else 8 (not measured).
        """
        default = 1 if jax.default_backend() == "cpu" else 8
        return self.config.iterations_per_dispatch or default

    def gradient(
        self, parameters: Parameters, batch: Batch, content: DeviceContent, dropout: Dropout | None
    ) -> tuple[jax.Array, Parameters]:
        """Return the sampled objective of a batch and its gradient, all item slots embedded."""
        value, _, gradient = self._gradient(parameters, batch, content, dropout, None)
        return value, gradient

    def _gradient(
        self,
        parameters: Parameters,
        batch: Batch,
        content: DeviceContent,
        dropout: Dropout | None,
        given_MxD: jax.Array | None,
    ) -> tuple[jax.Array, jax.Array | None, Parameters]:
        """Return objective, vectors of item slots (None on several devices), and gradient."""
        loss = make_loss(self.config)

        def objective(
            shard: Shard, parameters: Parameters, batch: Batch, content: DeviceContent, dropout: Any
        ) -> tuple[jax.Array, jax.Array]:
            towers = nnx.merge(self.towers, parameters)
            return batch_loss(towers, batch, content, dropout, loss, self.config, shard, given_MxD)

        differentiated = precision.at(self.config.precision, self.layout.value_and_gradient)
        return differentiated(objective, parameters, batch, content, dropout)

    def step(
        self, state: TrainState, batches: Batch | tuple[Batch, ...], content: DeviceContent
    ) -> tuple[TrainState, jax.Array]:
        """Return the state after an iteration with a batch, and its loss, float32.

        With a tuple of n batches of equal shapes it is n iterations in one dispatch, and the losses
        are float32[n]. It is compiled once for each shape. The state's memory is taken over.
        """
        after, losses = self._compiled(state, batches, content, self._scalars)
        return after, losses

    def step_bytes(self, state: TrainState, batch: Batch, content: DeviceContent) -> int:
        """Return the bytes that a step needs beside its arguments, by XLA's analysis; 0 where the
        backend has none. The step is compiled once, here or where it runs.
        """
        analysis = self.trace(state, batch, content).lower().compile().memory_analysis()
        if analysis is None:
            return 0
        output = analysis.output_size_in_bytes - analysis.alias_size_in_bytes
        return int(analysis.temp_size_in_bytes + output)

    def require_memory(self, state: TrainState, batch: Batch, content: DeviceContent) -> None:
        """Refuse a step that needs more memory than is free, by a UsageError."""
        needed, config = self.step_bytes(state, batch, content), self.config
        device = jax.local_devices()[0].memory_stats() or {}
        free = available_memory()
        if "bytes_limit" in device:
            free = device["bytes_limit"] - device["bytes_in_use"]
        if needed > free:
            raise UsageError(
                f"A step of {config.encoder} with {config.sampler} and batches of"
                f" {config.batch_size:,} links needs {needed / 2**30:,.1f} GiB of memory, and"
                f" {free / 2**30:,.1f} GiB are free. Use a smaller --batch-size, --item-block to"
                " encode the items in pieces, or data prepared with a smaller --max-length."
            )

    def trace(self, state: TrainState, batch: Batch, content: DeviceContent) -> Any:
        """Return the traced step for inspection."""
        return self._compiled.trace(state, batch, content, self._scalars)

    def _step(
        self,
        state: TrainState,
        batches: Batch | tuple[Batch, ...],
        content: DeviceContent,
        scalars: Scalars,
    ) -> tuple[TrainState, jax.Array]:
        self.traces += 1
        if isinstance(batches, Batch):
            return self._advance(state, batches, content, scalars)
        stacked: Batch = jax.tree.map(lambda *arrays: jnp.stack(arrays), *batches)
        return jax.lax.scan(
            lambda state, batch: self._advance(state, batch, content, scalars), state, stacked
        )

    def _advance(
        self, state: TrainState, batch: Batch, content: DeviceContent, scalars: Scalars
    ) -> tuple[TrainState, jax.Array]:
        dropout = Dropout(scalars.seed, state.iteration)
        batch, given_MxD = self.carry.inputs(state.carry, batch)
        value, items_VxD, gradient = self._gradient(
            state.parameters, batch, content, dropout, given_MxD
        )
        carry = self.carry.after_step(state.carry, batch, items_VxD)
        adam = optax.adam(scalars.learning_rate)
        updates, optimizer = adam.update(gradient, state.optimizer, state.parameters)
        if self._pretrained:
            # Adam's update is proportional to its learning rate.
            updates = _scaled(updates, self._pretrained, scalars.pretrained_factor)
        parameters = optax.apply_updates(state.parameters, updates)
        return TrainState(parameters, optimizer, state.iteration + 1, carry), value


def _scaled(updates: Parameters, parts: Sequence[str], factor: jax.Array) -> Parameters:
    """Scale the updates of some of the encoder's modules."""

    def scaled(path: Any, leaf: jax.Array) -> jax.Array:
        names = [str(key.key) for key in path if isinstance(key, jax.tree_util.DictKey)]
        is_part = names[0] == ENCODER and any(name in parts for name in names[1:])
        return leaf * factor if is_part else leaf

    scaled_updates: Parameters = jax.tree.map_with_path(scaled, updates)
    return scaled_updates


def hardest_of(config: RunConfig) -> int:
    """Return how many shared negatives of a positive link count; 0 for all."""
    return int(config.sampler_settings.get("hardest", 0))
