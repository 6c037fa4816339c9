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

from ncfbench.sampling.batch import Batch, Listed, remembered

RESIDUAL_TOLERANCE = 0.15
"""A prediction that is off by more than this names what is responsible."""
SPREAD_TOLERANCE = 0.5
"""A part whose middle half of rounds spreads by more than this marks a noisy machine."""
DRIFT_TOLERANCE = 0.1
"""Halves of a measurement that differ by more than this mark one, too."""
AXES = ("users", "items", "vectors", "matrix")
"""Counts that have a cost: interactions come as vectors' products, or as a matrix of the batch's
users.
"""
PARTS = ("users", "items", "interactions", "fixed")
"""Parts of a predicted step."""
CAUSES = ("items", "composition", "sampling")
"""Origins of a prediction's error; see :func:`residuals`."""


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
        items = len(batch.items) - remembered(batch)
        return cls(len(batch.users), items, b * (n + 1), kind)

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


def residuals(
    predicted_step: float,
    predicted_full: float,
    random_items_step: float,
    step: float,
    full: float,
) -> dict[str, float]:
    """Return the error of a predicted iteration by :data:`CAUSES`, as shares of the measured one.

    The shares add up to the whole error.

    - ``items``: the sampler's own items take longer than random ones in the same slots, by their
      texts.
    - ``composition``: with random items too the step is off: its costs do not add up at these
      counts, or its links lie otherwise than those of constructed batches.
    - ``sampling``: what the sampler adds to the step.

    Args:
        predicted_step, predicted_full: seconds of an iteration by the unit costs.
        random_items_step: seconds of the step on the sampler's batches with random items.
        step, full: seconds of an iteration, measured in both accounts.
    """
    missed = {
        "items": step - random_items_step,
        "composition": random_items_step - predicted_step,
        "sampling": (full - step) - (predicted_full - predicted_step),
    }
    return {name: value / full for name, value in missed.items()}


def responsible(own: Mapping[str, float], baseline: Mapping[str, float]) -> str:
    """Return the cause with the largest share of an error: the iteration's or the speedup's.

    Whichever is further off counts. The error of a speedup is the difference of both samplers'
    errors, so that what they share cancels. Only a cause whose share has the sign of the whole
    explains it.

    Args:
        own, baseline: :func:`residuals` of the sampler and of its baseline.
    """
    difference = {name: value - baseline[name] for name, value in own.items()}
    shares = max((own, difference), key=lambda each: abs(sum(each.values())))
    sign = 1 if sum(shares.values()) >= 0 else -1
    return max(shares, key=lambda name: sign * shares[name])
