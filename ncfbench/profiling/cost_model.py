"""The cost model: seconds of an iteration from counts of nodes and interactions, and what each of
them costs.

KDD 2017, section 3.6 and table 2: an iteration takes ``t_f`` for each user node, ``t_g`` for each
item node and ``t_i`` for each interaction. Here each of the three is a function of its count,
fitted to isolated measurements, and what an iteration needs besides, the optimiser and the
dispatch, is a part of its own. Pure NumPy.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ncfbench.sampling.batch import Batch, Listed

LINEAR_TOLERANCE = 0.1
"""A part's cost is a straight line where that misses no measured size by more than this share; else
it is a curve.
"""
RESIDUAL_TOLERANCE = 0.15
"""A prediction further off than this names the part that is responsible."""
SPREAD_TOLERANCE = 0.5
"""A part whose rounds differ by more, in the middle half of them, marks one too."""
DRIFT_TOLERANCE = 0.1
"""Halves of a measurement that differ by more than this mark a noisy machine."""
PARTS = ("users", "items", "interactions", "collectives", "optimiser", "dispatch")


@dataclass(frozen=True)
class Counts:
    """What a batch makes the device do."""

    users: int
    """Slots that f embeds."""
    items: int
    """Slots that g embeds, padding included."""
    interactions: int
    """Scores: positive and listed negative links, or the cells of the matrix product and the
    positive links.
    """
    kind: str
    """``vectors`` or ``matrix``."""
    sent_bytes: float = 0.0
    """That each of several devices sends the others."""

    @classmethod
    def of(cls, batch: Batch, parts: int = 1) -> Counts:
        """The counts of a batch's shapes.

        Args:
            parts: that share negatives within themselves only: each has its scores with its own
                item slots.
        """
        b, n = batch.negatives.weight.shape
        kind = "vectors" if isinstance(batch.negatives, Listed) else "matrix"
        return cls(len(batch.users), len(batch.items), b * (n // parts + 1), kind)


@dataclass(frozen=True)
class UnitCost:
    """Seconds of one part as a function of a count, through the medians of isolated measurements.

    Between measured sizes a curve is linear, past the largest it goes on as its last stretch does.
    """

    sizes: NDArray[np.float64]
    """Ascending."""
    seconds: NDArray[np.float64]
    slope: float
    """Seconds for each node or interaction: of the straight line with the smallest relative error;
    never negative.
    """
    overhead: float
    """Seconds of the line at a count of nothing; never negative."""
    is_linear: bool

    @classmethod
    def fit(
        cls, sizes: Sequence[float], seconds: Sequence[float] | NDArray[np.float64]
    ) -> UnitCost:
        """Fit to one measurement, or more, of each size."""
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
        """Seconds at a count."""
        if self.is_linear:
            return self.overhead + self.slope * count
        if count > self.sizes[-1] and len(self.sizes) > 1:
            rise = (self.seconds[-1] - self.seconds[-2]) / (self.sizes[-1] - self.sizes[-2])
            return float(self.seconds[-1] + max(rise, 0) * (count - self.sizes[-1]))
        return float(np.interp(count, self.sizes, self.seconds))


@dataclass(frozen=True)
class Costs:
    """Unit costs of a machine, a model and a loss."""

    users: UnitCost
    items: UnitCost
    vectors: UnitCost
    matrix: UnitCost
    optimiser: float
    """Seconds of an update."""
    dispatch: float
    """Seconds of calling a compiled function that does nothing, which every isolated measurement
    holds once.
    """
    collectives: UnitCost | None = None
    """By the bytes that a device sends; None for one device."""

    def parts(self, counts: Counts) -> dict[str, float]:
        """Predicted seconds of each of :data:`PARTS`; the dispatch is taken out of the others and
        counted once.
        """
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
    """Seconds of an iteration with the sampler at work beside it.

    On an accelerator the two overlap. On a CPU a step keeps all cores busy, and each of its
    operations waits for the slowest thread: what the sampler takes from one core delays them all.

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
    """What a prediction of an iteration misses, part by part, as shares of what it takes; they add
    up to the whole miss.

    Besides :data:`PARTS`, each the miss of a unit cost: ``composition``, for a step is not the sum
    of its parts, and ``sampling``, what the sampler beside a step adds to it.

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
    """The part that a wrong prediction is due to most: of the iteration, or of the speedup,
    whichever is further off.

    A speedup misses by the difference of both samplers' misses, so that what they share cancels.
    Only a part that misses in the direction of the whole explains it.

    Args:
        own, baseline: :func:`residuals` of the sampler and of its baseline.
    """
    difference = {name: value - baseline[name] for name, value in own.items()}
    shares = max((own, difference), key=lambda each: abs(sum(each.values())))
    sign = 1 if sum(shares.values()) >= 0 else -1
    return max(shares, key=lambda name: sign * shares[name])
