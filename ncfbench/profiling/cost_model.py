"""The cost model: seconds of an iteration, from counts of nodes and interactions and their costs.

KDD 2017, section 3.6 and table 2: an iteration takes ``t_f`` for each user node, ``t_g`` for each
item node and ``t_i`` for each interaction. Here they are *marginal* costs: what one more of them
adds to a whole training step. A step is not the sum of parts that are compiled and timed by
themselves, since XLA fuses across their borders and the caches hold other data. What no count
changes (the optimiser, the dispatch, work on whole tables; with histories f of the positive links,
as many in every batch) is the ``fixed`` part. Pure NumPy and SciPy.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ncfbench.sampling.batch import Batch, Listed

AXES = ("users", "items", "vectors", "matrix")
"""Counts that have a cost: interactions come as vectors' products, or as a matrix of the batch's
users.
"""
PARTS = ("users", "items", "interactions", "fixed")
"""Parts of a predicted step."""


@dataclass(frozen=True)
class Counts:
    """The work of a batch."""

    users: int
    """User slots whose vectors are looked up."""
    items: int
    """Item slots, padding included."""
    interactions: int
    """Scores of positive links, and of listed negative links or of all cells of the matrix."""
    kind: str
    """``vectors`` or ``matrix``."""

    @classmethod
    def of(cls, batch: Batch) -> Counts:
        """Count by a batch's shapes."""
        negatives = batch.negatives
        b, n = negatives.weight.shape
        kind = "vectors" if isinstance(negatives, Listed) else "matrix"
        return cls(len(batch.users), len(batch.items), b * (n + 1), kind)

    def on(self, axis: str) -> int:
        """Return the count on one of :data:`AXES`; 0 for the other kind of interaction."""
        if axis in ("users", "items"):
            return self.users if axis == "users" else self.items
        return self.interactions if axis == self.kind else 0


@dataclass(frozen=True)
class Costs:
    """Marginal costs for a machine, a model and a loss."""

    fixed: float
    """Seconds that no count changes."""
    units: Mapping[str, float]
    """Seconds of one more node or interaction, by those of :data:`AXES` that the steps have."""

    @classmethod
    def fit(cls, steps: Sequence[Counts], seconds: Sequence[float]) -> Costs:
        """Fit a line on each axis to steps of several counts: all together, to the smallest sum of
        squared relative errors with none below 0.

        Args:
            steps, seconds: one for each step.
        """
        from scipy.optimize import nnls

        axes = [axis for axis in AXES if any(each.on(axis) for each in steps)]
        counts = np.array([[1, *(each.on(axis) for axis in axes)] for each in steps], float)
        # Relative errors count: a step's own time is its unit.
        found, _ = nnls(counts / np.array(seconds)[:, None], np.ones(len(steps)))
        fixed, *units = map(float, found)
        return cls(fixed, dict(zip(axes, units, strict=True)))

    def parts(self, counts: Counts) -> dict[str, float]:
        """Predict the seconds of each of :data:`PARTS`; their sum is the step's."""
        return {
            "users": self.units["users"] * counts.users,
            "items": self.units["items"] * counts.items,
            "interactions": self.units[counts.kind] * counts.interactions,
            "fixed": self.fixed,
        }


def predict_full(step: float, sampling: float, *, accelerator: bool) -> float:
    """Predict the seconds of an iteration with the sampler running beside it.

    On an accelerator the two overlap. On a CPU a step keeps all cores busy, and each of its
    operations waits for the slowest thread: time that the sampler takes from one core delays all.

    Args:
        step: seconds of the step alone.
        sampling: seconds of building a batch and moving it to the device, alone.
    """
    return max(sampling, step) if accelerator else step + sampling
