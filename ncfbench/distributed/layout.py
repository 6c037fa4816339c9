"""The layout of a training step: where its arrays live, and how its devices communicate.

Each of several devices holds all parameters and texts, and an equal shard of each batch
(:mod:`ncfbench.distributed.shards`), whose item slots it encodes. With global sharing the vectors
of all items are gathered. With ``shard_tables`` a device holds an equal share of the rows of each
embedding table and of Adam's moments; rows of users and items are fetched for a step, tables of
words gathered.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import partial
from itertools import chain
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as Spec

from ncfbench.catalog import find_user_tower
from ncfbench.config import RunConfig
from ncfbench.distributed.collectives import AXIS, fetch_rows, gather
from ncfbench.distributed.shards import ShardedSampler
from ncfbench.errors import UsageError
from ncfbench.models.tables import FREE_ITEMS, Rows, kind_of
from ncfbench.sampling.base import BatchSource, Sampler
from ncfbench.sampling.batch import Batch, rounded_up

NUMBER_BYTES = 4
"""Bytes per element sent: all are float32 or int32."""
ROW_BLOCK_BYTES = 2**26
"""Bytes of a table's rows that pass from all devices to the host at a time."""

Tree = Any
"""A tree of arrays."""
Moved = TypeVar("Moved")


class Shard(NamedTuple):
    """Connects one device's share of a step with the others."""

    gather: Callable[[jax.Array], jax.Array]
    """Returns the item vectors that negatives are among, from the device's own."""
    weight_factor: int
    """Rescales whole-batch weights to a mean over this shard's rows."""


WHOLE = Shard(lambda vectors: vectors, 1)
"""The whole batch, on one device."""


def make_layout(config: RunConfig) -> Layout:
    """Return the layout that the settings ask for.

    Raises:
        UsageError: there are not as many devices, or the processes cannot have equal shares of
            them.
    """
    n, processes = config.devices, jax.process_count()
    if n == processes == 1:
        return Layout(config)
    if n % processes:
        raise UsageError(
            f"--devices {n} cannot be divided among {processes} processes. Use a multiple of"
            f" {processes}."
        )
    by_process = [
        [device for device in jax.devices() if device.process_index == index][: n // processes]
        for index in range(processes)
    ]
    fewest = min(map(len, by_process))
    if fewest < n // processes:
        where = f"in each of {processes} processes" if processes > 1 else "here"
        raise UsageError(
            f"--devices {n}, and JAX has {fewest} {jax.devices()[0].device_kind} {where}. Use"
            f" --devices {fewest * processes}, or make more visible. On a CPU the program makes"
            " them itself, unless XLA_FLAGS says how many there are, or JAX was started"
            " before it."
        )
    return Layout(config, list(chain(*by_process)))


class Layout:
    """The home of a step's arrays: JAX's first device, or a mesh of several."""

    def __init__(self, config: RunConfig, devices: Sequence[jax.Device] = ()) -> None:
        self._config = config
        self.size = len(devices) or 1
        self.mesh = Mesh(np.array(devices or jax.devices()[:1]), (AXIS,))
        self._by_row, self._replicated = (
            NamedSharding(self.mesh, spec) for spec in (Spec(AXIS), Spec())
        )
        self.is_simulated = self.size > 1 and jax.default_backend() == "cpu"
        """True for several devices on one CPU; their threads wait for each other."""
        count = self.size // jax.process_count()
        self.own = range(jax.process_index() * count, (jax.process_index() + 1) * count)
        """The shards of a batch that this process holds."""

    def describe(self) -> dict[str, Any] | None:
        """Describe several devices for ``environment.json``; return None for one."""
        if self.size == 1:
            return None
        return {
            "devices": self.size,
            "processes": jax.process_count(),
            "kind": self.mesh.devices.flat[0].device_kind,
            "shard_tables": self._config.shard_tables,
            "simulated": self.is_simulated,
        }

    def sent_bytes(
        self, shapes: Tree, user_slots: int, item_slots: int, words: int, share: str
    ) -> dict[str, float]:
        """Return the bytes that each of N devices sends in an iteration, by purpose.

        By ring algorithms each sends S (N - 1)/N to gather or to reduce-scatter S bytes in all, and
        twice as many to all-reduce them.

        Args:
            shapes: shapes of the parameters.
            user_slots, item_slots: slots of all shards of a batch.
            words: the length of a text.
            share: ``global``, ``local``, or ``texts`` if texts were gathered instead of vectors.
        """
        part = self.gathered_bytes(1)
        replicated, rows, tables = 1, 0, 0  # the loss is summed like a parameter
        for path, leaf in jax.tree_util.tree_flatten_with_path(shapes)[0]:
            match self._table(path):
                case None:
                    replicated += leaf.size
                case "users" | "items" as nodes:
                    slots = user_slots if nodes == "users" else item_slots
                    rows += slots * (1 + 2 * leaf.shape[1])
                case _:
                    tables += rounded_up(leaf.shape[0], self.size) * leaf.shape[1]
        # With free vectors the distance of each from g is gathered too.
        vectors = item_slots * (self._config.dimension + (FREE_ITEMS in shapes))
        return {
            "vectors": 2 * part * vectors if share == "global" else 0.0,
            "texts": part * (item_slots * (words + 1)) if share == "texts" else 0.0,
            "gradients": 2 * part * replicated,
            "rows": part * rows,
            "tables": 2 * part * tables,
        }

    def gathered_bytes(self, numbers: int) -> float:
        """Return the bytes that each device sends to gather some numbers of all devices."""
        return NUMBER_BYTES * numbers * (self.size - 1) / self.size

    def shard(self, sampler: Sampler) -> BatchSource:
        """Return a sampler's batches as :meth:`put` takes them: this process's shards."""
        return sampler if self.size == 1 else ShardedSampler(sampler, self.size, self.own)

    def put(self, batch: Batch) -> Batch:
        """Move a batch of :meth:`shard` where the step takes it, and wait until it is there."""
        if self.size > 1:
            place = multihost_utils.host_local_array_to_global_array
            moved: Batch = jax.block_until_ready(place(batch, self.mesh, _cut(batch)))
            return moved
        return _moved(batch)

    def keep(self, batches: list[Batch]) -> list[Batch]:
        """Move batches of :meth:`put` into the devices' memory, for steps that repeat them."""
        kept: list[Batch] = jax.device_put(batches) if self.size == 1 else batches
        return kept

    def replicate(self, tree: Tree) -> Tree:
        """Copy a tree, such as the texts, to every device."""
        if self.size == 1:
            return tree
        return multihost_utils.host_local_array_to_global_array(tree, self.mesh, Spec())

    def on_each(self, tree: Tree) -> Tree:
        """Return arrays whole on every device. Called while ``jax.jit`` traces."""
        if self.size == 1:
            return tree
        return jax.lax.with_sharding_constraint(tree, self._replicated)

    def to_one_device(self, parameters: Tree) -> Tree:
        """Return a state's parameters on this process's first device.

        Sharded tables stay sharded, but on a CPU, whose devices share a pool of threads and can
        deadlock.
        """
        if self.size == 1:
            return parameters
        if not self._config.shard_tables:
            return jax.tree.map(lambda leaf: leaf.addressable_data(0), parameters)
        return self.to_host(parameters, parameters) if self.is_simulated else parameters

    def to_host(self, tree: Tree, like: Tree) -> Tree:
        """Return a state as it is saved, on every process, in the shapes of ``like``: whole tables,
        without padding.
        """

        def fetched(leaf: jax.Array, wanted: Any) -> np.ndarray:
            if leaf.is_fully_addressable or leaf.is_fully_replicated:
                return np.asarray(leaf)[: wanted.shape[0]] if wanted.ndim else np.asarray(leaf)
            rows, end = max(1, ROW_BLOCK_BYTES // (leaf.nbytes // len(leaf))), wanted.shape[0]
            blocks = [leaf[i : min(i + rows, end)] for i in range(0, end, rows)]
            gathered = [multihost_utils.process_allgather(block, tiled=True) for block in blocks]
            return np.concatenate(gathered)

        return tree if self.size == 1 else jax.tree.map(fetched, tree, like)

    def from_host(self, tree: Tree) -> Tree:
        """Put a state as it is saved onto the devices; sharded tables are padded with zeros."""

        def placed(leaf: Any, sharding: NamedSharding) -> jax.Array:
            # A copy: a step takes its state's memory, and must not be handed the caller's.
            host = np.array(leaf)
            if sharding is self._by_row:
                host = np.pad(host, ((0, -len(host) % self.size), (0, 0)))
            return jax.make_array_from_callback(host.shape, sharding, lambda index: host[index])

        return tree if self.size == 1 else jax.tree.map(placed, tree, self._shardings(tree))

    def initialise_on_host(self) -> AbstractContextManager[Any]:
        """Return a context in which a state is made that need not fit one device."""
        host: AbstractContextManager[Any] = nullcontext()
        if self._config.shard_tables:
            with suppress(RuntimeError):  # JAX_PLATFORMS leaves the CPU out
                host = jax.default_device(jax.local_devices(backend="cpu")[0])
        return host

    def out_shardings(self, shapes: Tree) -> tuple[Tree, NamedSharding] | None:
        """Return ``out_shardings`` of a jitted step, which gives a state and losses."""
        if self.size == 1:
            return None
        return self._shardings(shapes), self._replicated

    def value_and_gradient(
        self,
        loss: Callable[..., jax.Array],
        parameters: Tree,
        rows: Rows,
        batch: Batch,
        *inputs: Any,
    ) -> tuple[jax.Array, Tree]:
        """Return the mean of a loss over the shards of a batch, and the gradient. Called while
        ``jax.jit`` traces.

        Args:
            loss: returns the loss of a shard; called with a :class:`Shard`, the parameters, the
                device's parts of ``rows`` and batch, and the inputs.
            rows: those of the batch's nodes and words in the parameters' tables.
            inputs: the same on every device.
        """
        if self.size == 1:
            value, gradient = jax.value_and_grad(partial(loss, WHOLE))(
                parameters, rows, batch, *inputs
            )
            return value, gradient
        specs = jax.tree.map(lambda sharding: sharding.spec, self._shardings(parameters))

        def on_device(
            parameters: Tree, rows: Rows, batch: Batch, *inputs: Any
        ) -> tuple[jax.Array, Tree]:
            def share(parameters: Tree) -> jax.Array:
                held = self._held(parameters, rows, batch)
                return loss(self._shard, *held, batch, *inputs) / self.size

            value, gradient = jax.value_and_grad(share)(parameters)
            # The rows of a sharded table have been summed over the devices already.
            summed = jax.tree.map(
                lambda part, spec: part if spec == Spec(AXIS) else jax.lax.psum(part, AXIS),
                gradient,
                specs,
            )
            return jax.lax.psum(value, AXIS), summed

        mapped: Any = jax.shard_map(
            on_device,
            mesh=self.mesh,
            in_specs=(specs, _cut(rows), _cut(batch), *(Spec() for _ in inputs)),
            out_specs=(Spec(), specs),
            check_vma=False,
        )
        value, gradient = mapped(parameters, rows, batch, *inputs)
        return value, gradient

    @property
    def _shard(self) -> Shard:
        """The connection of a device's shard with the others."""
        return Shard(WHOLE.gather, 1) if self._config.shares_locally else Shard(gather, self.size)

    def _held(self, parameters: Tree, rows: Rows, batch: Batch) -> tuple[Tree, Rows]:
        """Return the parameters that a device's shard needs, and its rows of them; with
        ``shard_tables`` they are fetched.
        """
        if not self._config.shard_tables:
            return parameters, rows
        ids = {"users": batch.users, "items": batch.items}

        def fetched(path: Any, leaf: jax.Array) -> jax.Array:
            table = self._table(path)
            if table is None:
                return leaf
            return fetch_rows(leaf, ids[table]) if table in ids else gather(leaf)

        users, items = (jnp.arange(len(own), dtype=jnp.int32) for own in ids.values())
        has_table = find_user_tower(self._config.user_tower).user_tables
        slots = Rows(users if has_table else None, items)
        return jax.tree.map_with_path(fetched, parameters), slots

    def _table(self, path: Any) -> str | None:
        """Return the kind of a sharded table (:func:`ncfbench.models.tables.kind_of`) of parameters
        or moments; None for an array that every device holds.
        """
        return kind_of(self._config, path) if self._config.shard_tables else None

    def _shardings(self, tree: Tree) -> Tree:
        return jax.tree.map_with_path(
            lambda path, _: self._by_row if self._table(path) else self._replicated, tree
        )


def _cut(tree: Tree) -> Tree:
    """Return the specs of arrays that hold the devices' parts one after the other."""
    return jax.tree.map(lambda array: Spec(AXIS) if np.ndim(array) else Spec(), tree)


def _moved(arrays: Moved) -> Moved:
    """Return NumPy arrays as a compiled function takes them at once; wait until they are there.

    On a CPU these are the arrays themselves, which a compiled function takes in a tenth of the time
    that the interpreter needs to move them beforehand.
    """
    if jax.default_backend() == "cpu":
        return arrays
    moved: Moved = jax.block_until_ready(jax.device_put(arrays))
    return moved
