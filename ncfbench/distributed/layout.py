"""The layout of a training step: where its arrays live, and how its devices communicate.

A step is written once, and runs on JAX's first device or on a mesh of several. Each of several
devices holds all parameters and all texts, and an equal shard of each batch
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
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as Spec

from ncfbench.catalog import find_encoder, find_user_tower
from ncfbench.config import RunConfig
from ncfbench.distributed.collectives import AXIS, Sizes, fetch_rows, gather, reduce_scatter
from ncfbench.distributed.shards import ShardedSampler
from ncfbench.errors import UsageError
from ncfbench.models.device import transferred
from ncfbench.models.towers import ENCODER, FREE_ITEMS, USER_TOWER
from ncfbench.sampling.base import BatchSource, Sampler
from ncfbench.sampling.batch import Batch, EveryUser, rounded_up

ROW_BLOCK_BYTES = 2**26
"""Bytes of a table's rows that pass from all devices to the host at a time."""

Tree: TypeAlias = Any
"""A tree of arrays."""


class Shard(NamedTuple):
    """Connects one device's share of a step with the others."""

    gather: Callable[[jax.Array], jax.Array]
    """Returns the item vectors that negatives are among, from the device's own."""
    weight_factor: int
    """Rescales whole-batch weights to a mean over this shard's rows."""
    item_rows: jax.Array | None
    """int32[V]: rows of the item slots in tables by item; None where rows are item ids."""
    user_rows: jax.Array | None = None
    """int32[U]: rows of the user slots in tables by user; None where rows are user ids."""


WHOLE = Shard(lambda vectors: vectors, 1, None)
"""The whole batch, on one device."""

ShardLoss: TypeAlias = Callable[[Tree, Batch, Any, Any, Shard], tuple[jax.Array, jax.Array]]
"""Returns the loss of parameters, a shard of a batch, texts, dropout and the :class:`Shard`, and
the vectors of the item slots.
"""


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
    return Layout(
        Mesh(np.array(chosen), (AXIS,)),
        config.shard_tables,
        config.shares_locally,
        config.dimension,
        find_user_tower(config.user_tower).user_tables,
        find_encoder(config.encoder).item_tables,
    )


@dataclass(eq=False)
class Layout:
    """The home of a step's arrays: JAX's first device, or a mesh of several."""

    mesh: Mesh | None = None
    shard_tables: bool = False
    shares_locally: bool = False
    dimension: int = 0
    """D, the length of an item vector."""
    user_tables: tuple[str, ...] = ()
    """The user tower's tables whose rows are users."""
    item_tables: tuple[str, ...] = ()
    """The encoder's tables whose rows are items."""
    _every_user: tuple[Any, tuple[Any, Any]] = field(default=(None, (None, None)), init=False)

    @property
    def size(self) -> int:
        """Devices."""
        return 1 if self.mesh is None else int(self.mesh.devices.size)

    @property
    def is_simulated(self) -> bool:
        """True for several devices on one CPU; their threads wait for each other."""
        return self.mesh is not None and bool(self.mesh.devices.flat[0].platform == "cpu")

    @property
    def own(self) -> range:
        """The shards of a batch that this process holds."""
        count = self.size // jax.process_count()
        return range(jax.process_index() * count, (jax.process_index() + 1) * count)

    def describe(self) -> dict[str, Any] | None:
        """Describe several devices for ``environment.json``, by what affects times and no number;
        return None for one device.
        """
        if self.mesh is None:
            return None
        return {
            "devices": self.size,
            "processes": jax.process_count(),
            "kind": self.mesh.devices.flat[0].device_kind,
            "shard_tables": self.shard_tables,
            "simulated": self.is_simulated,
        }

    def sizes(self, shapes: Tree, user_slots: int, item_slots: int, words: int) -> Sizes:
        """Return what the devices send each other in a step.

        Args:
            shapes: shapes of the parameters.
            user_slots, item_slots: slots of all shards of a batch.
            words: the length of a text.
        """
        parameters, tables, rows = 0, 0, []
        for path, leaf in jax.tree_util.tree_flatten_with_path(shapes)[0]:
            match self._table(path):
                case None:
                    parameters += leaf.size
                case "words":
                    tables += rounded_up(leaf.shape[0], self.size) * leaf.shape[1]
                case nodes:
                    rows.append((user_slots if nodes == "users" else item_slots, leaf.shape[1]))
        # With free vectors the distance of each from g is gathered too.
        numbers = self.dimension + (FREE_ITEMS in shapes)
        vectors, texts = item_slots * numbers, item_slots * (words + 1)
        return Sizes(self.size, vectors, parameters, rows, tables, texts)

    def collective(self, shapes: Tree, item_slots: int) -> Callable[[], Any]:
        """Return a function that sends what a step without ``shard_tables`` sends, and computes
        nothing else.

        Args:
            shapes: shapes of the parameters.
        """

        def on_device(vectors: jax.Array, gradient: Tree) -> tuple[jax.Array, Tree]:
            if not self.shares_locally:
                vectors = reduce_scatter(gather(vectors))
            return vectors, jax.tree.map(lambda leaf: jax.lax.psum(leaf, AXIS), gradient)

        specs = Spec(AXIS), Spec()
        mapped = jax.shard_map(
            on_device, mesh=self.mesh, in_specs=specs, out_specs=specs, check_vma=False
        )
        compiled = jax.jit(mapped, donate_argnums=(0, 1))
        vectors = jnp.zeros((item_slots, self.dimension), jnp.float32)
        gradient = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
        held = jax.device_put(vectors, self._sharding(Spec(AXIS))), self.replicate(gradient)

        def call() -> Any:
            nonlocal held
            held = compiled(*held)
            # On a CPU devices wait for each other in threads of one pool, which must not be full of
            # later calls.
            return jax.block_until_ready(held) if self.is_simulated else held

        return call

    def shard(self, sampler: Sampler) -> BatchSource:
        """Return a sampler's batches as :meth:`put` takes them: this process's shards."""
        return sampler if self.mesh is None else ShardedSampler(sampler, self.size, self.own)

    def put(self, batch: Batch) -> Batch:
        """Move a batch of :meth:`shard` where the step takes it, and wait until it is there.

        On one device, what batches that meet every user have in common is moved once. A CPU takes a
        batch from the host's memory.
        """
        if self.mesh is not None:
            placed = jax.tree.map(
                lambda array: self._place(array, Spec(AXIS) if np.ndim(array) else Spec()), batch
            )
            moved: Batch = jax.block_until_ready(placed)
            return moved
        negatives = batch.negatives
        if not isinstance(negatives, EveryUser):
            return transferred(batch)
        if self._every_user[0] is not negatives.user_weight:
            common = transferred((batch.users, negatives.user_weight))
            self._every_user = negatives.user_weight, common
        users, weight = self._every_user[1]
        own = batch._replace(users=users, negatives=negatives._replace(user_weight=weight))
        return transferred(own)

    def keep(self, batches: list[Batch]) -> list[Batch]:
        """Move batches of :meth:`put` into the devices' memory, for steps that repeat them."""
        kept: list[Batch] = jax.device_put(batches) if self.mesh is None else batches
        return kept

    def replicate(self, tree: Tree) -> Tree:
        """Copy a tree, such as the texts, to every device."""
        if self.mesh is None:
            return tree
        return jax.tree.map(lambda leaf: self._place(leaf, Spec()), tree)

    def to_one_device(self, parameters: Tree) -> Tree:
        """Return a state's parameters for computations on one device: this process's first.

        Sharded tables stay sharded, but not on a CPU. There the devices have one memory, and one
        pool of threads, in which operations over several of them can deadlock.
        """
        if self.mesh is None:
            return parameters
        if not self.shard_tables:
            return jax.tree.map(lambda leaf: leaf.addressable_data(0), parameters)
        return self.to_host(parameters, parameters) if self.is_simulated else parameters

    def to_host(self, tree: Tree, like: Tree) -> Tree:
        """Return a state as it is saved, on every process: whole tables, without padding. Large
        tables come in blocks.

        Args:
            like: a tree with the shapes of the saved arrays.
        """

        def fetched(leaf: jax.Array, wanted: Any) -> np.ndarray:
            if leaf.is_fully_addressable or leaf.is_fully_replicated:
                return np.asarray(leaf)[: wanted.shape[0]] if wanted.ndim else np.asarray(leaf)
            from jax.experimental.multihost_utils import process_allgather

            rows, end = max(1, ROW_BLOCK_BYTES // (leaf.nbytes // len(leaf))), wanted.shape[0]
            blocks = [leaf[i : min(i + rows, end)] for i in range(0, end, rows)]
            return np.concatenate([process_allgather(block, tiled=True) for block in blocks])

        return tree if self.mesh is None else jax.tree.map(fetched, tree, like)

    def from_host(self, tree: Tree) -> Tree:
        """Put a state as it is saved onto the devices; sharded tables are padded with zeros."""

        def placed(leaf: Any, sharding: NamedSharding) -> jax.Array:
            # A copy: a step takes its state's memory, and must not be handed the caller's.
            host = np.array(leaf)
            if sharding.spec == Spec(AXIS):
                host = np.pad(host, ((0, -len(host) % self.size), (0, 0)))
            return jax.make_array_from_callback(host.shape, sharding, lambda index: host[index])

        return tree if self.mesh is None else jax.tree.map(placed, tree, self._shardings(tree))

    def initialise_on_host(self) -> AbstractContextManager[Any]:
        """Return a context in which a state is made that need not fit one device."""
        try:
            return (
                jax.default_device(jax.local_devices(backend="cpu")[0])
                if self.shard_tables
                else nullcontext()
            )
        except RuntimeError:  # JAX_PLATFORMS leaves the CPU out
            return nullcontext()

    def out_shardings(self, shapes: Tree) -> tuple[Tree, NamedSharding] | None:
        """Return ``out_shardings`` of a jitted step, which gives a state and losses. Without them
        the next step would be compiled again.
        """
        return None if self.mesh is None else (self._shardings(shapes), self._sharding(Spec()))

    def value_and_gradient(
        self,
        loss: ShardLoss,
        transform: Callable[[Any], Any],
        parameters: Tree,
        batch: Batch,
        content: Any,
        dropout: Any,
    ) -> tuple[jax.Array, jax.Array | None, Tree]:
        """Return the mean of a loss over the shards of a batch, the vectors of the item slots, and
        the gradient. On several devices there are no vectors.

        Called while ``jax.jit`` traces.

        Args:
            transform: applied to each device's own computation, for its precision.
        """
        if self.mesh is None:
            alone = jax.value_and_grad(
                lambda parameters: loss(parameters, batch, content, dropout, WHOLE), has_aux=True
            )
            (value, items_VxD), gradient = transform(alone)(parameters)
            return value, items_VxD, gradient
        specs = self._specs(parameters)

        def on_device(
            parameters: Tree, batch: Batch, content: Any, dropout: Any
        ) -> tuple[jax.Array, Tree]:
            def own(parameters: Tree) -> jax.Array:
                held, *rows = self._held(parameters, batch)
                connected = WHOLE[:2] if self.shares_locally else (gather, self.size)
                shard = Shard(*connected, *rows)
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
        mapped: Any = jax.shard_map(
            on_device,
            mesh=self.mesh,
            in_specs=(specs, of_batch, Spec(), Spec()),
            out_specs=(Spec(), specs),
            check_vma=False,
        )
        value, gradient = mapped(parameters, batch, content, dropout)
        return value, None, gradient

    def _held(
        self, parameters: Tree, batch: Batch
    ) -> tuple[Tree, jax.Array | None, jax.Array | None]:
        """Fetch the parameters that a device needs; return them, and the rows in fetched tables of
        the batch's items and of its users.
        """
        if not self.shard_tables:
            return parameters, None, None

        def held(path: Any, leaf: jax.Array) -> jax.Array:
            match self._table(path):
                case None:
                    return leaf
                case "words":
                    return gather(leaf)
                case nodes:
                    return fetch_rows(leaf, batch.users if nodes == "users" else batch.items)

        users, items = (jnp.arange(len(ids), dtype=jnp.int32) for ids in (batch.users, batch.items))
        return (
            jax.tree.map_with_path(held, parameters),
            items if self.item_tables or FREE_ITEMS in parameters else None,
            users if self.user_tables else None,
        )

    def _table(self, path: Any) -> str | None:
        """Return what the rows of a sharded table are: users, items or words; None of an array that
        every device holds. A leaf of parameters or of Adam's moments.
        """
        names = [str(key.key) for key in path if isinstance(key, jax.tree_util.DictKey)]
        if not self.shard_tables or names[-1:] != ["embedding"]:
            return None
        tower, *inner = names
        if tower == USER_TOWER and not {*self.user_tables}.isdisjoint(inner):
            return "users"
        if tower == ENCODER and not {*self.item_tables}.isdisjoint(inner):
            return "items"
        return "items" if tower == FREE_ITEMS else "words"

    def _specs(self, tree: Tree) -> Tree:
        """Return the partition of each array of a tree of parameters, or of a state."""
        return jax.tree.map_with_path(
            lambda path, _: Spec(AXIS) if self._table(path) else Spec(), tree
        )

    def _shardings(self, tree: Tree) -> Tree:
        return jax.tree.map(self._sharding, self._specs(tree))

    def _sharding(self, spec: Spec) -> NamedSharding:
        assert self.mesh is not None
        return NamedSharding(self.mesh, spec)

    def _place(self, array: Any, spec: Spec) -> jax.Array:
        """Put this process's part of an array onto its devices."""
        whole: jax.Array = jax.make_array_from_process_local_data(
            self._sharding(spec), np.asarray(array)
        )
        return whole
