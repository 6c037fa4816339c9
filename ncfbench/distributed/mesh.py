"""A step over several devices.

Every device holds all parameters and all texts, and an equal shard of each batch
(:mod:`ncfbench.distributed.shards`). It encodes its own item slots. With global sharing the item
vectors of all devices, V x D numbers, are gathered, never the texts; each device scores its own
rows. Gradients go back the same way: those of the vectors by a reduce-scatter, those of the
parameters are summed. With local sharing only that last sum is left.

With ``shard_tables`` a device holds an equal share of the rows of each embedding table, and of
Adam's moments of them. Rows of users and of items are fetched from the devices that have them. A
batch needs a good part of the words, so tables of words are gathered for the step, and their
gradients scattered.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as Spec

from ncfbench.catalog import find_encoder, find_user_tower
from ncfbench.config import RunConfig
from ncfbench.distributed.bytes_sent import Sizes
from ncfbench.distributed.collectives import AXIS, fetch_rows, gather, reduce_scatter
from ncfbench.distributed.layout import Layout, Shard, ShardLoss, Tree
from ncfbench.distributed.shards import ShardedSampler
from ncfbench.errors import UsageError
from ncfbench.models.towers import ENCODER, FREE_ITEMS, USER_TOWER
from ncfbench.sampling.base import BatchSource, Sampler
from ncfbench.sampling.batch import Batch, rounded_up

ROW_BLOCK_BYTES = 2**26
"""Bytes of a table's rows that pass from all devices to the host at a time."""


def make_layout(config: RunConfig) -> Layout:
    """Return the layout that the settings ask for.

    Raises:
        UsageError: there are not as many devices, or the processes cannot have equal shares of
            them.
    """
    n, processes = config.devices, jax.process_count()
    if n == 1 and processes == 1:
        return Layout()
    if n % processes:
        raise UsageError(
            f"--devices {n} cannot be divided among {processes} processes. Use a multiple of"
            f" {processes}."
        )
    by_process = [
        [d for d in jax.devices() if d.process_index == index] for index in range(processes)
    ]
    found = min(map(len, by_process))
    if found * processes < n:
        where = f"in each of {processes} processes" if processes > 1 else "here"
        raise UsageError(
            f"--devices {n}, and JAX has {found} {jax.devices()[0].device_kind} {where}. Use"
            f" --devices {found * processes}, or make more visible. On a CPU the program makes"
            " them itself, unless XLA_FLAGS says how many there are, or JAX was started"
            " before it."
        )
    chosen = [device for devices in by_process for device in devices[: n // processes]]
    return MeshLayout(
        Mesh(np.array(chosen), (AXIS,)),
        config.shard_tables,
        config.shares_locally,
        config.dimension,
        find_user_tower(config.user_tower).user_tables,
        find_encoder(config.encoder).item_tables,
    )


@dataclass(frozen=True)
class MeshLayout(Layout):
    """Several devices, each with an equal shard of every batch."""

    mesh: Mesh
    shard_tables: bool
    shares_locally: bool
    dimension: int
    """D, the length of an item vector."""
    user_tables: tuple[str, ...]
    """The user tower's tables whose rows are users."""
    item_tables: tuple[str, ...]
    """The encoder's tables whose rows are items."""

    @property
    def size(self) -> int:
        """See :attr:`Layout.size`."""
        return int(self.mesh.devices.size)

    @property
    def is_simulated(self) -> bool:
        """See :attr:`Layout.is_simulated`."""
        return bool(self.mesh.devices.flat[0].platform == "cpu")

    @property
    def own(self) -> range:
        """The shards of a batch that this process holds."""
        each = self.size // jax.process_count()
        return range(jax.process_index() * each, (jax.process_index() + 1) * each)

    def describe(self) -> dict[str, Any]:
        """See :meth:`Layout.describe`; of the settings only what affects times and no number."""
        return {
            "devices": self.size,
            "processes": jax.process_count(),
            "kind": self.mesh.devices.flat[0].device_kind,
            "shard_tables": self.shard_tables,
            "simulated": self.is_simulated,
        }

    def sizes(self, shapes: Tree, user_slots: int, item_slots: int, words: int) -> Sizes:
        """See :meth:`Layout.sizes`."""
        parameters, tables, rows = 0, 0, []
        for path, leaf in jax.tree_util.tree_flatten_with_path(shapes)[0]:
            if not (self.shard_tables and is_table(path)):
                parameters += leaf.size
            elif self._is_of_users(path):
                rows.append((user_slots, leaf.shape[1]))
            elif self._is_of_items(path):
                rows.append((item_slots, leaf.shape[1]))
            else:
                tables += rounded_up(leaf.shape[0], self.size) * leaf.shape[1]
        # With free vectors the distance of each from g is gathered too.
        numbers = self.dimension + (FREE_ITEMS in shapes)
        vectors, texts = item_slots * numbers, item_slots * (words + 1)
        return Sizes(self.size, vectors, parameters, rows, tables, texts)

    def collective(self, shapes: Tree, item_slots: int, dimension: int) -> Callable[[], Any]:
        """Return a function that sends what a step sends, and computes nothing else.

        Without ``shard_tables``.

        Args:
            shapes: shapes of the parameters.
        """
        vectors = jnp.zeros((item_slots, dimension), jnp.float32)
        gradient = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)

        def on_device(vectors: jax.Array, gradient: Tree) -> tuple[jax.Array, Tree]:
            if not self.shares_locally:
                vectors = reduce_scatter(gather(vectors)) / self.size
            return vectors, jax.tree.map(
                lambda leaf: jax.lax.psum(leaf, AXIS) / self.size, gradient
            )

        everywhere = jax.tree.map(lambda _: Spec(), gradient)
        mapped = jax.shard_map(
            on_device,
            mesh=self.mesh,
            in_specs=(Spec(AXIS), everywhere),
            out_specs=(Spec(AXIS), everywhere),
            check_vma=False,
        )
        compiled = jax.jit(mapped, donate_argnums=(0, 1))
        held = (
            jax.device_put(vectors, NamedSharding(self.mesh, Spec(AXIS))),
            self.replicate(gradient),
        )

        def call() -> Any:
            nonlocal held
            held = compiled(*held)
            # On a CPU devices wait for each other in threads of one pool, which must not be full of
            # later calls.
            return jax.block_until_ready(held) if self.is_simulated else held

        return call

    def shard(self, sampler: Sampler) -> BatchSource:
        """See :meth:`Layout.shard`."""
        return ShardedSampler(sampler, self.size, self.own)

    def put(self, batch: Batch) -> Batch:
        """See :meth:`Layout.put`."""

        def placed(array: np.ndarray) -> jax.Array:
            sharding = NamedSharding(self.mesh, Spec(AXIS) if np.ndim(array) else Spec())
            whole: jax.Array = jax.make_array_from_process_local_data(sharding, np.asarray(array))
            return whole

        moved: Batch = jax.block_until_ready(jax.tree.map(placed, batch))
        return moved

    def keep(self, batches: list[Batch]) -> list[Batch]:
        """See :meth:`Layout.keep`; :meth:`put` has moved them."""
        return batches

    def replicate(self, tree: Tree) -> Tree:
        """See :meth:`Layout.replicate`."""
        sharding = NamedSharding(self.mesh, Spec())
        return jax.tree.map(
            lambda leaf: jax.make_array_from_process_local_data(sharding, np.asarray(leaf)), tree
        )

    def to_one_device(self, parameters: Tree) -> Tree:
        """See :meth:`Layout.to_one_device`: the copy of this process's first device.

        Sharded tables stay sharded, but not on a CPU. There the devices have one memory, and one
        pool of threads, in which operations over several of them can deadlock.
        """
        if not self.shard_tables:
            return jax.tree.map(lambda leaf: leaf.addressable_data(0), parameters)
        return self.to_host(parameters, parameters) if self.is_simulated else parameters

    def to_host(self, tree: Tree, like: Tree) -> Tree:
        """See :meth:`Layout.to_host`; large tables come in pieces."""

        def fetched(leaf: jax.Array, wanted: Any) -> np.ndarray:
            if leaf.is_fully_addressable or leaf.is_fully_replicated:
                return np.asarray(leaf)[: wanted.shape[0]] if wanted.ndim else np.asarray(leaf)
            from jax.experimental.multihost_utils import process_allgather

            rows = max(1, ROW_BLOCK_BYTES // (leaf.nbytes // len(leaf)))
            starts = range(0, wanted.shape[0], rows)
            return np.concatenate(
                [
                    process_allgather(leaf[i : min(i + rows, wanted.shape[0])], tiled=True)
                    for i in starts
                ]
            )

        return jax.tree.map(fetched, tree, like)

    def from_host(self, tree: Tree) -> Tree:
        """See :meth:`Layout.from_host`; sharded tables are padded with rows of zeros."""

        def placed(leaf: Any, sharding: NamedSharding) -> jax.Array:
            # A copy: a step takes its state's memory, and must not be handed the caller's.
            host = np.array(leaf)
            if sharding.spec == Spec(AXIS):
                host = np.pad(host, ((0, -len(host) % self.size), (0, 0)))
            return jax.make_array_from_callback(host.shape, sharding, lambda index: host[index])

        return jax.tree.map(placed, tree, self.shardings(tree))

    def initialise_on_host(self) -> AbstractContextManager[Any]:
        """See :meth:`Layout.initialise_on_host`."""
        try:
            return (
                jax.default_device(jax.local_devices(backend="cpu")[0])
                if self.shard_tables
                else nullcontext()
            )
        except RuntimeError:  # JAX_PLATFORMS leaves the CPU out
            return nullcontext()

    def specs(self, tree: Tree) -> Tree:
        """Return the partition of each array of a tree of parameters, or of a state."""
        return jax.tree.map_with_path(
            lambda path, leaf: Spec(AXIS) if self.shard_tables and is_table(path) else Spec(), tree
        )

    def shardings(self, tree: Tree) -> Tree:
        """Return the sharding of each array of a tree of parameters, or of a state."""
        return jax.tree.map(lambda spec: NamedSharding(self.mesh, spec), self.specs(tree))

    def out_shardings(self, shapes: Tree) -> tuple[Tree, NamedSharding]:
        """See :meth:`Layout.out_shardings`; else the next step would be compiled again."""
        return self.shardings(shapes), NamedSharding(self.mesh, Spec())

    def value_and_gradient(
        self,
        loss: ShardLoss,
        transform: Callable[[Any], Any],
        parameters: Tree,
        batch: Batch,
        content: Any,
        dropout: Any,
    ) -> tuple[jax.Array, jax.Array | None, Tree]:
        """See :meth:`Layout.value_and_gradient`."""
        specs = self.specs(parameters)

        def on_device(
            parameters: Tree, batch: Batch, content: Any, dropout: Any
        ) -> tuple[jax.Array, Tree]:
            def own(parameters: Tree) -> jax.Array:
                held, *rows = self._held(parameters, batch)
                shard = Shard(self._gather, 1 if self.shares_locally else self.size, *rows)
                return loss(held, batch, content, dropout, shard)[0] / self.size

            value, gradient = transform(jax.value_and_grad(own))(parameters)
            # The rows of a sharded table have been summed over the devices already.
            summed = jax.tree.map(
                lambda part, spec: part if spec == Spec(AXIS) else jax.lax.psum(part, AXIS),
                gradient,
                specs,
            )
            return jax.lax.psum(value, AXIS), summed

        of_batch = jax.tree.map(lambda array: Spec(AXIS) if array.ndim else Spec(), batch)
        everywhere = jax.tree.map(lambda _: Spec(), (content, dropout))
        mapped: Any = jax.shard_map(
            on_device,
            mesh=self.mesh,
            in_specs=(specs, of_batch, *everywhere),
            out_specs=(Spec(), specs),
            check_vma=False,
        )
        value, gradient = mapped(parameters, batch, content, dropout)
        return value, None, gradient

    def _gather(self, vectors: jax.Array) -> jax.Array:
        return vectors if self.shares_locally else gather(vectors)

    def _held(
        self, parameters: Tree, batch: Batch
    ) -> tuple[Tree, jax.Array | None, jax.Array | None]:
        """Fetch the parameters that a device needs; return them, and the rows in fetched tables of
        the batch's items and of its users.
        """
        if not self.shard_tables:
            return parameters, None, None

        def held(path: Any, leaf: jax.Array) -> jax.Array:
            if not is_table(path):
                return leaf
            if self._is_of_users(path):
                return fetch_rows(leaf, batch.users)
            if self._is_of_items(path):
                return fetch_rows(leaf, batch.items)
            return gather(leaf)

        users, items = (jnp.arange(len(ids), dtype=jnp.int32) for ids in (batch.users, batch.items))
        return (
            jax.tree.map_with_path(held, parameters),
            items if self.item_tables or FREE_ITEMS in parameters else None,
            users if self.user_tables else None,
        )

    def _is_of_users(self, path: Any) -> bool:
        tower, *names = _names(path)
        return tower == USER_TOWER and any(name in self.user_tables for name in names)

    def _is_of_items(self, path: Any) -> bool:
        tower, *names = _names(path)
        return tower == FREE_ITEMS or (
            tower == ENCODER and any(name in self.item_tables for name in names)
        )


def is_table(path: Any) -> bool:
    """Return whether a leaf of a tree of parameters, or of a state, belongs to an embedding table.

    Adam's moments of a table count too.
    """
    return _names(path)[-1:] == ["embedding"]


def _names(path: Any) -> list[str]:
    return [str(key.key) for key in path if isinstance(key, jax.tree_util.DictKey)]
