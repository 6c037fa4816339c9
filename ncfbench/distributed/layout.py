"""The layout of a training step: one device, or a batch that is spread by rows over several.

The step is one program under ``jax.jit``. Each of N devices holds all parameters and texts, and an
equal part of each of a batch's arrays. XLA divides the work by these, and adds what devices must
send each other: the vectors of all items, and sums of gradients.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as Spec

from ncfbench.config import RunConfig
from ncfbench.errors import UsageError
from ncfbench.sampling.batch import Batch, Shared, padded, rounded_up

AXIS = "data"
"""Axis of the mesh, along which a batch is cut."""


def make_layout(config: RunConfig) -> Layout:
    """Return the layout that the settings ask for.

    Raises:
        UsageError: there are not as many devices, or the processes cannot have equal shares of
            them.
    """
    n, processes = config.devices, jax.process_count()
    if n == processes == 1:
        return Layout()
    if n % processes:
        raise UsageError(
            f"--devices {n} cannot be divided among {processes} processes. Use a multiple of"
            f" {processes}."
        )
    by_process = [jax.local_devices(index)[: n // processes] for index in range(processes)]
    fewest = min(map(len, by_process))
    if fewest < n // processes:
        where = f"in each of {processes} processes" if processes > 1 else "here"
        raise UsageError(
            f"--devices {n}, and JAX has {fewest} {jax.devices()[0].device_kind} {where}. Use"
            f" --devices {fewest * processes}, or expose more devices. On a CPU they are"
            " simulated, unless XLA_FLAGS sets their number or JAX was started before."
        )
    return Layout(list(chain(*by_process)))


class Layout:
    """The home of a step's arrays: JAX's first device, or a mesh of several."""

    def __init__(self, devices: Sequence[jax.Device] = ()) -> None:
        self.size = len(devices) or 1
        self.mesh = Mesh(np.array(devices or jax.devices()[:1]), (AXIS,))
        self._replicated = NamedSharding(self.mesh, Spec())
        self.is_simulated = self.size > 1 and jax.default_backend() == "cpu"
        """True for several devices on one CPU; their threads wait for each other."""

    def describe(self) -> dict[str, Any] | None:
        """Describe several devices for ``environment.json``; return None for one."""
        if self.size == 1:
            return None
        return {
            "devices": self.size,
            "processes": jax.process_count(),
            "kind": self.mesh.devices.flat[0].device_kind,
            "simulated": self.is_simulated,
        }

    def put(self, batch: Batch) -> Batch:
        """Move a batch where the step takes it, and wait until it is there.

        Several processes call it with the same batch, and each moves the rows of its own devices.
        """
        if self.size > 1:
            batch = jax.tree.map(self._spread, _divisible(batch, self.size))
        elif jax.default_backend() == "cpu":
            # A compiled function takes NumPy arrays in a tenth of the time that the interpreter
            # needs to move them beforehand.
            return batch
        else:
            batch = jax.device_put(batch)
        moved: Batch = jax.block_until_ready(batch)
        return moved

    def _spread(self, array: np.ndarray) -> jax.Array:
        sharding = NamedSharding(self.mesh, Spec(AXIS)) if np.ndim(array) else self._replicated
        return jax.make_array_from_callback(
            np.shape(array), sharding, np.asarray(array).__getitem__
        )

    def keep(self, batches: list[Batch]) -> list[Batch]:
        """Move batches of :meth:`put` into the devices' memory, for steps that repeat them."""
        kept: list[Batch] = jax.device_put(batches) if self.size == 1 else batches
        return kept

    def replicate(self, tree: Any) -> Any:
        """Copy a tree, such as the texts or a state, to every device."""
        if self.size == 1:
            return tree
        # A copy: a step takes its state's memory, and must not be handed the caller's.
        return multihost_utils.host_local_array_to_global_array(
            jax.tree.map(np.array, tree), self.mesh, Spec()
        )

    def on_each(self, tree: Any) -> Any:
        """Return arrays whole on every device. Called while ``jax.jit`` traces."""
        if self.size == 1:
            return tree
        return jax.lax.with_sharding_constraint(tree, self._replicated)

    def to_one_device(self, parameters: Any) -> Any:
        """Return a state's parameters on this process's first device."""
        if self.size == 1:
            return parameters
        return jax.tree.map(lambda leaf: leaf.addressable_data(0), parameters)

    def to_host(self, tree: Any) -> Any:
        """Return a state as it is saved, on every process."""
        return tree if self.size == 1 else jax.tree.map(np.asarray, tree)

    @property
    def out_shardings(self) -> NamedSharding | None:
        """``out_shardings`` of a jitted step."""
        return None if self.size == 1 else self._replicated


def _divisible(batch: Batch, parts: int) -> Batch:
    """Return a batch whose user slots and item slots are multiples of the number of parts."""
    users, items = (rounded_up(len(ids), parts) for ids in (batch.users, batch.items))
    negatives, more = batch.negatives, items - len(batch.items)
    if isinstance(negatives, Shared):
        negatives = negatives._replace(weight=np.pad(negatives.weight, ((0, 0), (0, more))))
    return batch._replace(
        users=padded(batch.users, users), items=padded(batch.items, items), negatives=negatives
    )
