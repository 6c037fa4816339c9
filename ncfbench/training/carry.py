"""The carry: state that iterations leave for later ones besides parameters and moments.

A run has one kind of it, mostly :class:`Carry` itself: none. A further kind is a subclass that
:func:`make_carry` names; the step, the loop, checkpoints and the curve follow from that.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ncfbench.catalog import find_sampler
from ncfbench.config import RunConfig
from ncfbench.data.graph import BipartiteGraph
from ncfbench.rng import Streams
from ncfbench.sampling import Sampler, make_sampler
from ncfbench.sampling.batch import Batch, Remembered
from ncfbench.sampling.listed import NegativeSampler
from ncfbench.sampling.shared import MISSING
from ncfbench.storage.schemas import STALENESS
from ncfbench.training.inference import Embedder, best_items
from ncfbench.training.state import Parameters, TrainState


class Carry:
    """No carry, and the base of its kinds."""

    every = 0
    """Iterations from one refresh to the next; 0: none."""
    first = 0
    """The iteration before which it is refreshed first."""

    def __init__(self, config: RunConfig, graph: BipartiteGraph) -> None:
        self.config, self.graph = config, graph

    def initial(self) -> Any:
        """Return the carry before the first iteration, a tree of arrays."""
        return None

    def refreshed(self, parameters: Parameters, embedder: Embedder) -> Any:
        """Return the carry made anew from the parameters, every :attr:`every` iterations from
        :attr:`first` on.
        """
        raise NotImplementedError

    def hand_over(self, carry: Any, sampler: Sampler) -> None:
        """Give the sampler what it needs of the carry; after a refresh, and on resuming."""

    def inputs(self, carry: Any, batch: Batch) -> tuple[Batch, jax.Array | None]:
        """Return the batch as the loss takes it, and constant vectors of its first item slots.

        None in place of these: all slots are embedded. Called while the step is traced.
        """
        return batch, None

    def given_slots(self, batch: Batch) -> int:
        """Return how many first item slots of a batch have vectors that :meth:`inputs` gives."""
        return 0

    def after_step(self, carry: Any, batch: Batch, items_VxD: jax.Array | None) -> Any:
        """Return the carry for the next iteration. Called while the step is traced.

        Args:
            items_VxD: vectors of the batch's item slots; None on several devices.
        """
        return carry

    def observe(self, state: TrainState, embedder: Embedder) -> tuple[dict[str, Any], str] | None:
        """Return columns of the curve at an epoch's end, and a sentence; None without any."""
        return None


class Memory(Carry):
    """Vectors of the last M positive links' items, float32[M, D], the oldest first, for samplers
    whose first item slots are those items. They lie on one device.
    """

    def initial(self) -> jax.Array:
        """See :meth:`Carry.initial`."""
        return jnp.zeros((self.config.memory, self.config.dimension))

    def given_slots(self, batch: Batch) -> int:
        """See :meth:`Carry.given_slots`."""
        return int(self.config.memory) if isinstance(batch.negatives, Remembered) else 0

    def inputs(self, carry: jax.Array, batch: Batch) -> tuple[Batch, jax.Array | None]:
        """See :meth:`Carry.inputs`."""
        return batch, carry if isinstance(batch.negatives, Remembered) else None

    def after_step(self, carry: jax.Array, batch: Batch, items_VxD: jax.Array | None) -> jax.Array:
        """See :meth:`Carry.after_step`."""
        assert items_VxD is not None
        return jnp.concatenate([carry, items_VxD[batch.pos_item]])[-len(carry) :]

    def observe(self, state: TrainState, embedder: Embedder) -> tuple[dict[str, Any], str] | None:
        """Return the mean distance of remembered vectors from the present ones, over the length of
        these, for the last batch's links and for as many of the oldest.

        Remembered vectors have dropout, present ones none: age adds the difference of both.
        """
        # A sampler of its own, since the loop's may be at work: the next batch names the items.
        sampler = make_sampler(self.graph, self.config, Streams(self.config.seed))
        ids = sampler.draw(int(state.iteration), 1)[0].items[0]
        known, b = ids != MISSING, self.config.batch_size
        if not known.any():
            return None
        present = np.asarray(embedder.items(state.parameters, ids[known]))
        away = np.linalg.norm(np.asarray(state.carry)[known] - present, axis=1)
        share = away / np.maximum(np.linalg.norm(present, axis=1), 1e-12)
        newest, oldest = float(share[-b:].mean()), float(share[:b].mean())
        age = -(-len(share) // b)
        text = (
            f"Remembered item vectors: those of the last batch are {100 * newest:.1f} % of"
            f" their length from the present ones (one update, and dropout), those {age}"
            f" updates old {100 * oldest:.1f} %."
        )
        return dict(zip(STALENESS, (newest, oldest, age), strict=True)), text


class MinedItems(Carry):
    """The items that hard negatives are drawn from, int32[n_users, M], the highest score first.

    Each user's items of the highest exact scores of all items in use, dropout off, without a
    training link (ANCE: Xiong et al. 2020, arXiv 2007.00808).
    """

    def __init__(self, config: RunConfig, graph: BipartiteGraph) -> None:
        super().__init__(config, graph)
        self.every, self.first = config.mine_every, config.first_hard

    def initial(self) -> jax.Array:
        """See :meth:`Carry.initial`."""
        return jnp.zeros((self.graph.n_users, self.config.mined), jnp.int32)

    def refreshed(self, parameters: Parameters, embedder: Embedder) -> jax.Array:
        """See :meth:`Carry.refreshed`."""
        graph, skip = self.graph, self.config.mine_skip
        best = best_items(
            embedder.interaction(parameters),
            embedder.users(parameters).scored,
            embedder.items(parameters, graph.items_in_use),
            skip + self.config.mined,
            graph.user_offsets,
            graph.index_in_use[graph.link_item],
        )
        mined = np.concatenate([graph.items_in_use[index[:, skip:]] for _, index in best])
        return jnp.array(mined)

    def hand_over(self, carry: jax.Array, sampler: Sampler) -> None:
        """See :meth:`Carry.hand_over`."""
        assert isinstance(sampler, NegativeSampler)
        sampler.hard_items = np.array(carry)  # a copy: the step takes over the carry's memory


def make_carry(config: RunConfig, graph: BipartiteGraph) -> Carry:
    """Return the carry of a run."""
    if find_sampler(config.sampler).keeps_vectors:
        return Memory(config, graph)
    return MinedItems(config, graph) if config.mines else Carry(config, graph)
