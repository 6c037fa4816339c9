"""The cost model: seconds of an iteration, from counts of nodes and interactions and their costs.

KDD 2017, section 3.6 and table 2: an iteration takes ``t_f`` for each user node, ``t_g`` for each
item node and ``t_i`` for each interaction. Here each of the three is a function of its count,
fitted to isolated measurements, and what an iteration needs besides, the optimiser and the
dispatch, is a part of its own. Pure NumPy and SciPy.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ncfbench.sampling.batch import Batch, Listed

LINEAR_TOLERANCE = 0.1
"""A part's cost is a straight line if that is off by no more than this share at any size; else it
is a curve.
"""
RESIDUAL_TOLERANCE = 0.15
"""A prediction that is off by more than this names the part that is responsible."""
SPREAD_TOLERANCE = 0.5
"""A part whose middle half of rounds spreads by more than this marks a noisy machine."""
DRIFT_TOLERANCE = 0.1
"""Halves of a measurement that differ by more than this mark one, too."""
PARTS = ("users", "items", "interactions", "collectives", "optimiser", "dispatch")


@dataclass(frozen=True)
class Counts:
    """The work of a batch."""

    users: int
    """User slots."""
    items: int
    """Item slots, padding included."""
    interactions: int
    """Scores of positive links, and of listed negative links or of all cells of the matrix."""
    kind: str
    """``vectors`` or ``matrix``."""
    sent_bytes: float = 0.0
    """Bytes that each of several devices sends the others."""

    @classmethod
    def of(cls, batch: Batch, parts: int = 1) -> Counts:
        """Count by a batch's shapes.

        Args:
            parts: shards that share negatives within themselves only: each has its scores with its
                own item slots.
        """
        b, n = batch.negatives.weight.shape
        kind = "vectors" if isinstance(batch.negatives, Listed) else "matrix"
        return cls(len(batch.users), len(batch.items), b * (n // parts + 1), kind)


@dataclass(frozen=True)
class UnitCost:
    """Seconds of one part as a function of a count, through the medians of isolated measurements.

    A curve is linear between measured sizes, and extends its last segment past the largest.
    """

    sizes: NDArray[np.float64]
    """Ascending."""
    seconds: NDArray[np.float64]
    slope: float
    """Seconds per node or interaction, of the line with the smallest relative error; at least 0."""
    overhead: float
    """Seconds of the line at a count of 0; at least 0."""
    is_linear: bool

    @classmethod
    def fit(
        cls, sizes: Sequence[float], seconds: Sequence[float] | NDArray[np.float64]
    ) -> UnitCost:
        """Fit to one or more measurements of each size."""
        from scipy.optimize import nnls

        x = np.unique(np.asarray(sizes, float))
        y = np.array(
            [
                np.median([s for size, s in zip(sizes, seconds, strict=True) if size == each])
                for each in x
            ]
        )
        # Relative errors count: a size's own time is its unit.
        design = np.stack([np.ones_like(x), x], axis=1) / y[:, None]
        (overhead, slope), _ = nnls(design, np.ones_like(x))
        error = np.abs((overhead + slope * x) / y - 1)
        return cls(x, y, float(slope), float(overhead), bool(error.max() <= LINEAR_TOLERANCE))

    def __call__(self, count: float) -> float:
        """Return the seconds at a count."""
        if self.is_linear:
            return self.overhead + self.slope * count
        if count > self.sizes[-1] and len(self.sizes) > 1:
            rise = (self.seconds[-1] - self.seconds[-2]) / (self.sizes[-1] - self.sizes[-2])
            return float(self.seconds[-1] + max(rise, 0) * (count - self.sizes[-1]))
        return float(np.interp(count, self.sizes, self.seconds))


@dataclass(frozen=True)
class Costs:
    """Unit costs for a machine, a model and a loss."""

    users: UnitCost
    items: UnitCost
    vectors: UnitCost
    matrix: UnitCost
    optimiser: float
    """Seconds of an update."""
    dispatch: float
    """Seconds of calling a compiled function that does nothing; part of every measurement."""
    collectives: UnitCost | None = None
    """Seconds by the bytes that a device sends; None for one device."""

    def parts(self, counts: Counts) -> dict[str, float]:
        """Predict the seconds of each of :data:`PARTS`, with the dispatch counted once."""
        interaction = self.matrix if counts.kind == "matrix" else self.vectors
        whole = {
            "users": self.users(counts.users),
            "items": self.items(counts.items),
            "interactions": interaction(counts.interactions),
            "collectives": self.collectives(counts.sent_bytes) if self.collectives else 0.0,
            "optimiser": self.optimiser,
        }
        return {name: max(seconds - self.dispatch, 0.0) for name, seconds in whole.items()} | {
            "dispatch": self.dispatch
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
    predicted: Mapping[str, float],
    measured: Mapping[str, float],
    predicted_full: float,
    step: float,
    full: float,
) -> dict[str, float]:
    """Return the error of a predicted iteration, part by part, as shares of the measured one.

    The shares add up to the whole error. Besides the error of each unit cost (:data:`PARTS`) there
    are ``composition``, for a step is not the sum of its parts, and ``sampling``, what the sampler
    adds to the step.

    Args:
        predicted: seconds of each part by the unit costs.
        measured: the same, measured in isolation on the sampler's own batch.
        predicted_full, step, full: seconds of an iteration: predicted, and measured in both
            accounts.
    """
    missed = {name: measured[name] - predicted[name] for name in predicted}
    missed["composition"] = step - sum(measured.values())
    missed["sampling"] = (full - step) - (predicted_full - sum(predicted.values()))
    return {name: value / full for name, value in missed.items()}


def responsible(own: Mapping[str, float], baseline: Mapping[str, float]) -> str:
    """Return the part with the largest share of an error: the iteration's or the speedup's.

    Whichever is further off counts. The error of a speedup is the difference of both samplers'
    errors, so that what they share cancels. Only a part whose error has the sign of the whole
    explains it.

    Args:
        own, baseline: :func:`residuals` of the sampler and of its baseline.
    """
    difference = {name: value - baseline[name] for name, value in own.items()}
    shares = max((own, difference), key=lambda each: abs(sum(each.values())))
    sign = 1 if sum(shares.values()) >= 0 else -1
    return max(shares, key=lambda name: sign * shares[name])
