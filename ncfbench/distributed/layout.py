"""The layout of a training step: where its arrays live, and how its devices communicate.

A step is written once. It runs on one device (:class:`SingleDevice`) or on several
(:class:`ncfbench.distributed.mesh.MeshLayout`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple, TypeAlias

import jax

from ncfbench.distributed.bytes_sent import Sizes
from ncfbench.models.device import transferred
from ncfbench.sampling.base import BatchSource, Sampler
from ncfbench.sampling.batch import Batch, EveryUser

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


class Layout(ABC):
    """The home of a step's arrays, and the communication of its devices."""

    @property
    @abstractmethod
    def size(self) -> int:
        """Devices."""

    @property
    @abstractmethod
    def is_simulated(self) -> bool:
        """True for several devices on one CPU; their threads wait for each other."""

    @abstractmethod
    def describe(self) -> dict[str, Any] | None:
        """Describe the devices for ``environment.json``; None for one device."""

    @abstractmethod
    def sizes(self, shapes: Tree, user_slots: int, item_slots: int, words: int) -> Sizes:
        """Return what the devices send each other in a step.

        Args:
            shapes: shapes of the parameters.
            user_slots, item_slots: slots of all shards of a batch.
            words: the length of a text.
        """

    @abstractmethod
    def shard(self, sampler: Sampler) -> BatchSource:
        """Return a sampler's batches as :meth:`put` takes them: this process's shards."""

    @abstractmethod
    def put(self, batch: Batch) -> Batch:
        """Move a batch of :meth:`shard` where the step takes it, and wait until it is there."""

    @abstractmethod
    def keep(self, batches: list[Batch]) -> list[Batch]:
        """Move batches of :meth:`put` into the devices' memory, for steps that repeat them."""

    @abstractmethod
    def replicate(self, tree: Tree) -> Tree:
        """Copy a tree, such as the texts, to every device."""

    @abstractmethod
    def to_one_device(self, parameters: Tree) -> Tree:
        """Return a state's parameters for computations on one device."""

    @abstractmethod
    def to_host(self, tree: Tree, like: Tree) -> Tree:
        """Return a state as it is saved, on every process: whole tables, without padding.

        Args:
            like: a tree with the shapes of the saved arrays.
        """

    @abstractmethod
    def from_host(self, tree: Tree) -> Tree:
        """Put a state as it is saved onto the devices."""

    @abstractmethod
    def initialise_on_host(self) -> AbstractContextManager[Any]:
        """Return a context in which a state is made that need not fit one device."""

    @abstractmethod
    def out_shardings(self, shapes: Tree) -> Any:
        """Return ``out_shardings`` of a jitted step, which gives a state and losses."""

    @abstractmethod
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


class SingleDevice(Layout):
    """One device, JAX's first; arrays are where JAX puts them."""

    size = 1
    is_simulated = False

    def __init__(self) -> None:
        self._every_user: tuple[Any, tuple[Any, Any]] = None, (None, None)

    def describe(self) -> None:
        """See :meth:`Layout.describe`."""

    def sizes(self, shapes: Tree, user_slots: int, item_slots: int, words: int) -> Sizes:
        """See :meth:`Layout.sizes`; one device sends nothing."""
        return Sizes(1, 0, 0)

    def shard(self, sampler: Sampler) -> BatchSource:
        """See :meth:`Layout.shard`."""
        return sampler

    def put(self, batch: Batch) -> Batch:
        """See :meth:`Layout.put`; a CPU takes a batch from the host's memory.

        What batches that meet every user have in common is moved once.
        """
        negatives = batch.negatives
        if not isinstance(negatives, EveryUser):
            return transferred(batch)
        if self._every_user[0] is not negatives.user_weight:
            moved = transferred((batch.users, negatives.user_weight))
            self._every_user = negatives.user_weight, moved
        users, weight = self._every_user[1]
        own = batch._replace(users=users, negatives=negatives._replace(user_weight=weight))
        return transferred(own)

    def keep(self, batches: list[Batch]) -> list[Batch]:
        """See :meth:`Layout.keep`."""
        kept: list[Batch] = jax.device_put(batches)
        return kept

    def replicate(self, tree: Tree) -> Tree:
        """See :meth:`Layout.replicate`."""
        return tree

    def to_one_device(self, parameters: Tree) -> Tree:
        """See :meth:`Layout.to_one_device`."""
        return parameters

    def to_host(self, tree: Tree, like: Tree) -> Tree:
        """See :meth:`Layout.to_host`."""
        return tree

    def from_host(self, tree: Tree) -> Tree:
        """See :meth:`Layout.from_host`."""
        return tree

    def initialise_on_host(self) -> AbstractContextManager[Any]:
        """See :meth:`Layout.initialise_on_host`; a state fits the device that trains it."""
        return nullcontext()

    def out_shardings(self, shapes: Tree) -> None:
        """See :meth:`Layout.out_shardings`; JAX chooses."""

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
        by_parameters = jax.value_and_grad(
            lambda parameters: loss(parameters, batch, content, dropout, WHOLE), has_aux=True
        )
        (value, items_VxD), gradient = transform(by_parameters)(parameters)
        return value, items_VxD, gradient
