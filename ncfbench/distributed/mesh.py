"""One step over several devices: how its arrays lie on them, and what the devices tell each other.

Every device holds all parameters and all texts, and an equal part of each batch
(:mod:`ncfbench.distributed.shards`). It encodes its own item slots; with global sharing the item
vectors of all, V x D numbers, are gathered, never the texts; it scores its own rows. Gradients go
back the same way, those of the vectors by a reduce-scatter, and those of the parameters are summed.
With local sharing only that last sum is left.

With ``shard_tables`` a device holds an equal share of the rows of each embedding table, and of
Adam's moments of them. Rows of users and of items are fetched from the devices that have them.
Tables of words, of which a batch needs a good part, are put together for the step, and their
gradients taken apart.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as Spec

from ncfbench.config import RunConfig
from ncfbench.distributed.bytes_sent import Sizes
from ncfbench.distributed.collectives import AXIS, fetched_rows, gathered, summed_part
from ncfbench.errors import UsageError
from ncfbench.registry import find_encoder, load
from ncfbench.sampling.batch import Batch, rounded_up

ROW_BLOCK_BYTES = 2**26
"""Of a table's rows that pass from all devices to the host at a time."""

Tree: TypeAlias = Any


class Part(NamedTuple):
    """What a device's share of a step needs to know of the others."""

    gather: Callable[[jax.Array], jax.Array]
    """The item vectors that negatives are among, from the device's own."""
    weight_factor: int
    """What makes weights that were normalised for the whole batch those of a mean over this part's
    rows.
    """
    item_rows: jax.Array | None
    """int32[V]: rows of the item slots in tables by item, where these were fetched; None where rows
    are item ids.
    """


WHOLE = Part(lambda vectors: vectors, 1, None)
"""All of a batch, on one device."""


@dataclass(frozen=True)
class Layout:
    """How a step lies on a mesh of devices."""

    mesh: Mesh
    shard_tables: bool
    shares_locally: bool
    item_tables: tuple[str, ...]
    """The encoder's tables whose rows are items."""

    @classmethod
    def of(cls, config: RunConfig) -> Layout | None:
        """The layout that settings ask for; None for one device.

        Raises:
            UsageError: there are not as many devices, or the processes cannot have equal shares of
                them.
        """
        n, processes = config.devices, jax.process_count()
        if n == 1 and processes == 1:
            return None
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
        encoder = load(find_encoder(config.encoder).path)
        return cls(
            Mesh(np.array(chosen), (AXIS,)),
            config.shard_tables,
            config.shares_locally,
            tuple(getattr(encoder, "item_tables", ())),
        )

    @property
    def size(self) -> int:
        """Devices."""
        return int(self.mesh.devices.size)

    def described(self) -> dict[str, Any]:
        """For ``environment.json``; of the settings only what changes nothing but times."""
        return {
            "devices": self.size,
            "processes": jax.process_count(),
            "kind": self.mesh.devices.flat[0].device_kind,
            "shard_tables": self.shard_tables,
            "simulated": self.simulated,
        }

    def sizes(self, shapes: Tree, user_slots: int, item_slots: int, words: int) -> Sizes:
        """What a step sends.

        Args:
            shapes: of the parameters.
            user_slots, item_slots: of all parts of a batch.
            words: the length of a text.
        """
        parameters, tables, rows = 0, 0, []
        for path, leaf in jax.tree_util.tree_flatten_with_path(shapes)[0]:
            names = _names(path)
            if not (self.shard_tables and is_table(path)):
                parameters += leaf.size
            elif names[0] == "users" or names[1] in self.item_tables:
                rows.append((user_slots if names[0] == "users" else item_slots, leaf.shape[1]))
            else:
                tables += rounded_up(leaf.shape[0], self.size) * leaf.shape[1]
        dimension = next(
            leaf.shape[1]
            for path, leaf in jax.tree_util.tree_flatten_with_path(shapes)[0]
            if _names(path)[0] == "users"
        )
        return Sizes(
            self.size, item_slots * dimension, parameters, rows, tables, item_slots * (words + 1)
        )

    def collective(self, shapes: Tree, item_slots: int, dimension: int) -> Callable[[], Any]:
        """What a step with all parameters everywhere sends, by itself: to be called over and
        over.
        """
        vectors = jnp.zeros((item_slots, dimension), jnp.float32)
        gradient = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)

        def on_device(vectors: jax.Array, gradient: Tree) -> tuple[jax.Array, Tree]:
            if not self.shares_locally:
                vectors = summed_part(gathered(vectors)) / self.size
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
        held = jax.device_put(vectors, NamedSharding(self.mesh, Spec(AXIS))), self.spread(gradient)

        def call() -> Any:
            nonlocal held
            held = compiled(*held)
            # On a CPU devices wait for each other in threads of one pool, which must not be full of
            # later calls.
            return jax.block_until_ready(held) if self.simulated else held

        return call

    @property
    def simulated(self) -> bool:
        """Whether the devices are one CPU's cores, which they share."""
        return bool(self.mesh.devices.flat[0].platform == "cpu")

    @property
    def own(self) -> range:
        """The parts of a batch that are this process's."""
        each = self.size // jax.process_count()
        return range(jax.process_index() * each, (jax.process_index() + 1) * each)

    def at_home(self) -> AbstractContextManager[Any]:
        """Where a state is made: tables that are to be spread on the host, for they need not fit
        one device.
        """
        try:
            return (
                jax.default_device(jax.local_devices(backend="cpu")[0])
                if self.shard_tables
                else nullcontext()
            )
        except RuntimeError:  # JAX_PLATFORMS leaves the CPU out
            return nullcontext()

    def specs(self, tree: Tree) -> Tree:
        """Of a tree of parameters, or of a state: how each array lies on the devices."""
        return jax.tree.map_with_path(
            lambda path, leaf: Spec(AXIS) if self.shard_tables and is_table(path) else Spec(), tree
        )

    def shardings(self, tree: Tree) -> Tree:
        """As :meth:`specs`, with the mesh."""
        return jax.tree.map(lambda spec: NamedSharding(self.mesh, spec), self.specs(tree))

    def place(self, tree: Tree) -> Tree:
        """Parameters, or a state, from the host onto the devices; tables that are spread are filled
        up with rows of zeros.
        """

        def placed(leaf: Any, sharding: NamedSharding) -> jax.Array:
            # A copy: a step takes its state's memory, and must not be handed the caller's.
            host = np.array(leaf)
            if sharding.spec == Spec(AXIS):
                host = np.pad(host, ((0, -len(host) % self.size), (0, 0)))
            return jax.make_array_from_callback(host.shape, sharding, lambda index: host[index])

        return jax.tree.map(placed, tree, self.shardings(tree))

    def put(self, batch: Batch) -> Batch:
        """A batch in parts, this process's own, onto its devices."""

        def placed(array: np.ndarray) -> jax.Array:
            sharding = NamedSharding(self.mesh, Spec(AXIS) if np.ndim(array) else Spec())
            whole: jax.Array = jax.make_array_from_process_local_data(sharding, np.asarray(array))
            return whole

        moved: Batch = jax.block_until_ready(jax.tree.map(placed, batch))
        return moved

    def spread(self, tree: Tree) -> Tree:
        """A tree of which every device is to have a copy, such as the texts."""
        sharding = NamedSharding(self.mesh, Spec())
        return jax.tree.map(
            lambda leaf: jax.make_array_from_process_local_data(sharding, np.asarray(leaf)), tree
        )

    def on_one(self, tree: Tree) -> Tree:
        """Parameters for what is computed on one device: this process's first has a copy.

        Tables that are spread stay so, but not on a CPU: there the devices have one memory, and
        their threads one pool, in which operations over several of them can be stuck.
        """
        if not self.shard_tables:
            return jax.tree.map(lambda leaf: leaf.addressable_data(0), tree)
        return self.to_host(tree, tree) if self.simulated else tree

    def to_host(self, tree: Tree, like: Tree) -> Tree:
        """NumPy arrays of a state with the rows that ``like`` has, on every process; a table in
        pieces.
        """

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

    def value_and_gradient(
        self,
        loss: Callable[[Tree, Batch, Any, Any, Part], jax.Array],
        transformed: Callable[[Any], Any],
        parameters: Tree,
        batch: Batch,
        content: Any,
        dropout: Any,
    ) -> tuple[jax.Array, Tree]:
        """The mean of a loss over the parts of a batch, and its gradient; to be traced by
        ``jax.jit``.

        Args:
            loss: of the parameters, a part of the batch, the texts, dropout and a :class:`Part`.
            transformed: applied to each device's own computation, for its precision.
        """
        specs = self.specs(parameters)

        def on_device(
            parameters: Tree, batch: Batch, content: Any, dropout: Any
        ) -> tuple[jax.Array, Tree]:
            def own(parameters: Tree) -> jax.Array:
                held, batch_seen, item_rows = self._held(parameters, batch)
                part = Part(self._gather, 1 if self.shares_locally else self.size, item_rows)
                return loss(held, batch_seen, content, dropout, part) / self.size

            value, gradient = transformed(jax.value_and_grad(own))(parameters)
            # What a spread table's rows get from all devices is theirs by now; of everything else
            # each has its own share.
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
        found: tuple[jax.Array, Tree] = mapped(parameters, batch, content, dropout)
        return found

    def _gather(self, vectors: jax.Array) -> jax.Array:
        return vectors if self.shares_locally else gathered(vectors)

    def _held(self, parameters: Tree, batch: Batch) -> tuple[Tree, Batch, jax.Array | None]:
        """Parameters with which a device can do its part, the batch as it names their rows, and the
        items' rows.
        """
        if not self.shard_tables:
            return parameters, batch, None

        def held(path: Any, leaf: jax.Array) -> jax.Array:
            if not is_table(path):
                return leaf
            if _names(path) == ["users", "embedding"]:
                return fetched_rows(leaf, batch.users)
            if _names(path)[1] in self.item_tables:
                return fetched_rows(leaf, batch.items)
            return gathered(leaf)

        users, items = (jnp.arange(len(ids), dtype=jnp.int32) for ids in (batch.users, batch.items))
        return (
            jax.tree.map_with_path(held, parameters),
            batch._replace(users=users),
            items if self.item_tables else None,
        )


def is_table(path: Any) -> bool:
    """Whether a leaf of a tree of parameters, or of a state, is an embedding table or its
    moments.
    """
    return _names(path)[-1:] == ["embedding"]


def _names(path: Any) -> list[str]:
    return [str(key.key) for key in path if isinstance(key, jax.tree_util.DictKey)]
