"""The cost model: seconds of an iteration, from counts of nodes and interactions and their costs.

KDD 2017, section 3.6 and table 2: an iteration takes ``t_f`` for each user node, ``t_g`` for each
item node and ``t_i`` for each interaction. Here they are *marginal* costs: what one more of them
adds to a whole training step. A step is not the sum of parts that are compiled and timed by
themselves, since XLA fuses across their borders and the caches hold other data. The ``fixed`` cost
is the rest: the optimiser, the dispatch, work on whole tables; with histories f of the positive
links, as many in every batch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ncfbench.config import identity_of
from ncfbench.sampling import Sampler
from ncfbench.sampling.batch import Batch, Listed
from ncfbench.sampling.contents import batch_counts
from ncfbench.statistics.intervals import ratio_of_medians

AXES = ("users", "items", "vectors", "matrix")
"""Counts that have a cost: interactions come as vectors' products, or as a matrix of the batch's
users.
"""
PARTS = ("users", "items", "interactions", "fixed")
"""Parts of a predicted step."""
SAMPLING = ("draw", "assemble", "transfer")
"""Parts of the sampler's work."""
COUNTED_BATCHES = 50

Row = dict[str, Any]
Points = Mapping[str, Sequence["Counts"]]
"""Counts of the steps on each of :data:`AXES`, ascending. The base is on the first three."""


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
    """Seconds of a step whatever its counts."""
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

        axes = [axis for axis in AXES if any(step.on(axis) for step in steps)]
        counts = np.array([[1, *(step.on(axis) for axis in axes)] for step in steps], float)
        # Relative errors count: a step's time is its unit.
        solution, _ = nnls(counts / np.array(seconds)[:, None], np.ones(len(steps)))
        fixed, *units = map(float, solution)
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
    """Predict the seconds of an iteration with a concurrent sampler.

    On an accelerator the two overlap. On a CPU a step keeps all cores busy, and each of its
    operations waits for the slowest thread: time that the sampler takes from one core delays all.

    Args:
        step: seconds of the step alone.
        sampling: seconds of building a batch and moving it to the device, alone.
    """
    return max(sampling, step) if accelerator else step + sampling


def labels(points: Points) -> dict[Counts, tuple[str, int]]:
    """Return the part and the size that name each step in the raw samples."""
    names: dict[Counts, tuple[str, int]] = {}
    for axis in ("items", "users", "vectors", "matrix"):
        for counts in points.get(axis, ()):
            names.setdefault(counts, (f"step by {axis}", counts.on(axis)))
    return names


def unit_costs(samples: Sequence[Row], points: Points) -> tuple[Costs, list[Row]]:
    """Fit the costs to the steps of a calibration; each also as a row of the table UNITCOST."""
    medians = {
        counts: _median(samples, part, None, size)
        for counts, (part, size) in labels(points).items()
    }
    costs = Costs.fit(list(medians), list(medians.values()))
    rows: list[Row] = [{"part": "fixed", "unit_seconds": costs.fixed}]
    for axis in filter(points.get, AXES):
        rows.append(
            {
                "part": axis,
                "unit_seconds": costs.units[axis],
                "sizes": [counts.on(axis) for counts in points[axis]],
                "step_seconds": [medians[counts] for counts in points[axis]],
            }
        )
    return costs, rows


def cost_row(
    sampler: Sampler,
    counts: Counts,
    samples: Sequence[Row],
    costs: Costs,
    *,
    on_accelerator: bool,
) -> Row:
    """Return the counts and the seconds of a sampler, columns of
    :data:`ncfbench.storage.schemas.COSTMODEL`.
    """
    name, identity = sampler.config.sampler, identity_of(sampler.config)
    nominal, contents = sampler.claims().nominal, batch_counts(sampler, COUNTED_BATCHES)
    seconds = {part: _median(samples, part, name) for part in ("full", "step", *SAMPLING)}
    predicted = costs.parts(counts)
    step = sum(predicted.values())
    sampling = sum(seconds[part] for part in SAMPLING)
    full = predict_full(step, sampling, accelerator=on_accelerator)
    return {
        "sampler": name,
        **{key: identity[key] for key in ("strata", "negatives", "stratum_size")},
        "nominal_users": nominal and nominal.users,
        "nominal_items": nominal and nominal.items,
        "nominal_negatives": nominal and nominal.negatives,
        **{key: contents[key] for key in ("distinct_users", "distinct_items")},
        "user_slots": counts.users,
        "item_slots": counts.items,
        "interactions": counts.interactions,
        "interaction_kind": counts.kind,
        **{f"predicted_{part}_seconds": value for part, value in predicted.items()},
        "predicted_step_iteration_seconds": step,
        "measured_step_iteration_seconds": seconds["step"],
        "predicted_full_iteration_seconds": full,
        "measured_full_iteration_seconds": seconds["full"],
        **{f"{part}_seconds": seconds[part] for part in SAMPLING},
        "rounds": len({row["round"] for row in samples}),
        "links": sampler.graph.n_links,
    }


def speedup_columns(row: Row, baseline: Row, samples: Sequence[Row]) -> Row:
    """Return the speedups of a row over the baseline's."""
    columns: Row = {"baseline": baseline["sampler"]}
    for account in ("step", "full"):
        name = f"predicted_{account}_iteration_seconds"
        columns[f"predicted_{account}_speedup"] = baseline[name] / row[name]
        blocks = (_per_call(samples, account, arm["sampler"]) for arm in (baseline, row))
        ratio = ratio_of_medians(*blocks)
        for way, value in zip(("measured", "lower", "upper"), ratio, strict=True):
            columns[f"{way}_{account}_speedup"] = value
    return columns


def _per_call(
    samples: Sequence[Row], part: str, sampler: str | None, size: int | None = None
) -> list[float]:
    """Return the seconds of one call in each block."""
    return [
        row["seconds"] / row["calls"]
        for row in samples
        if row["part"] == part and row["sampler"] == sampler and size in (None, row["size"])
    ]


def _median(
    samples: Sequence[Row], part: str, sampler: str | None, size: int | None = None
) -> float:
    return float(np.median(_per_call(samples, part, sampler, size)))
