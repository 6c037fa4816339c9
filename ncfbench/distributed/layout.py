"""The layout of a training step: where its arrays live, and how its devices communicate.

A step is written once. It runs on one device (:class:`Layout`) or on several
(:class:`ncfbench.distributed.mesh.MeshLayout`).
"""

from __future__ import annotations

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


class Layout:
    """The home of a step's arrays on JAX's first device; layouts of several devices extend it."""

    def __init__(self) -> None:
        self._every_user: tuple[Any, tuple[Any, Any]] = None, (None, None)

    @property
    def size(self) -> int:
        """Devices."""
        return 1

    @property
    def is_simulated(self) -> bool:
        """True for several devices on one CPU; their threads wait for each other."""
        return False

    def describe(self) -> dict[str, Any] | None:
        """Describe the devices for ``environment.json``; None for one device."""
        return None

    def sizes(self, shapes: Tree, user_slots: int, item_slots: int, words: int) -> Sizes:
        """Return what the devices send each other in a step.

        Args:
            shapes: shapes of the parameters.
            user_slots, item_slots: slots of all shards of a batch.
            words: the length of a text.
        """
        return Sizes(1, 0, 0)

    def shard(self, sampler: Sampler) -> BatchSource:
        """Return a sampler's batches as :meth:`put` takes them: this process's shards."""
        return sampler

    def put(self, batch: Batch) -> Batch:
        """Move a batch of :meth:`shard` where the step takes it, and wait until it is there.

        What batches that meet every user have in common is moved once. A CPU takes a batch from the
        host's memory.
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
        """Move batches of :meth:`put` into the devices' memory, for steps that repeat them."""
        kept: list[Batch] = jax.device_put(batches)
        return kept

    def replicate(self, tree: Tree) -> Tree:
        """Copy a tree, such as the texts, to every device."""
        return tree

    def to_one_device(self, parameters: Tree) -> Tree:
        """Return a state's parameters for computations on one device."""
        return parameters

    def to_host(self, tree: Tree, like: Tree) -> Tree:
        """Return a state as it is saved, on every process: whole tables, without padding.

        Args:
            like: a tree with the shapes of the saved arrays.
        """
        return tree

    def from_host(self, tree: Tree) -> Tree:
        """Put a state as it is saved onto the devices."""
        return tree

    def initialise_on_host(self) -> AbstractContextManager[Any]:
        """Return a context in which a state is made that need not fit one device."""
        return nullcontext()

    def out_shardings(self, shapes: Tree) -> Any:
        """Return ``out_shardings`` of a jitted step, which gives a state and losses."""
        return None

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
        by_parameters = jax.value_and_grad(
            lambda parameters: loss(parameters, batch, content, dropout, WHOLE), has_aux=True
        )
        (value, items_VxD), gradient = transform(by_parameters)(parameters)
        return value, items_VxD, gradient
