"""The rows of the cost tables: medians of the raw samples of a profile."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ncfbench.config import RunConfig, identity_of
from ncfbench.data import Dataset
from ncfbench.profiling.calibration import Points, labels
from ncfbench.profiling.cost_model import AXES, Costs, Counts, predict_full
from ncfbench.rng import Streams
from ncfbench.sampling import make_sampler
from ncfbench.sampling.contents import batch_counts
from ncfbench.statistics.intervals import ratio_of_medians

COUNTED_BATCHES = 50
SAMPLING = ("draw", "assemble", "transfer")
"""Work of the sampler, beside the step."""

Row = dict[str, Any]


def per_call(
    samples: Sequence[Row], part: str, sampler: str | None, size: int | None = None
) -> list[float]:
    """Return the seconds of one call in each block."""
    return [
        row["seconds"] / row["calls"]
        for row in samples
        if row["part"] == part and row["sampler"] == sampler and size in (None, row["size"])
    ]


def unit_costs(samples: Sequence[Row], points: Points) -> tuple[Costs, list[Row]]:
    """Fit the costs to the steps of a calibration; each also as a row of the table UNITCOST."""
    medians = {
        counts: float(np.median(per_call(samples, part, None, size)))
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
    dataset: Dataset,
    config: RunConfig,
    counts: Counts,
    samples: Sequence[Row],
    costs: Costs,
    *,
    on_accelerator: bool,
) -> Row:
    """Return the counts and the seconds of a sampler, columns of
    :data:`ncfbench.storage.schemas.COSTMODEL`.
    """
    name, identity = config.sampler, identity_of(config)
    sampler = make_sampler(dataset.graph, config, Streams(config.seed))
    nominal, contents = sampler.claims().nominal, batch_counts(sampler, COUNTED_BATCHES)
    seconds = {
        part: float(np.median(per_call(samples, part, name)))
        for part in ("full", "step", *SAMPLING)
    }
    predicted = costs.parts(counts)
    step = sum(predicted.values())
    sampling = sum(seconds[part] for part in SAMPLING)
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
        "predicted_full_iteration_seconds": predict_full(
            step, sampling, accelerator=on_accelerator
        ),
        "measured_full_iteration_seconds": seconds["full"],
        **{f"{part}_seconds": seconds[part] for part in SAMPLING},
        "rounds": len({row["round"] for row in samples}),
        "links": dataset.graph.n_links,
    }


def speedup_columns(row: Row, baseline: Row, samples: Sequence[Row]) -> Row:
    """Return the speedups of a row over the baseline's."""
    columns: Row = {"baseline": baseline["sampler"]}
    for account in ("step", "full"):
        name = f"predicted_{account}_iteration_seconds"
        columns[f"predicted_{account}_speedup"] = baseline[name] / row[name]
        blocks = (per_call(samples, account, arm["sampler"]) for arm in (baseline, row))
        ratio = ratio_of_medians(*blocks)
        for way, value in zip(("measured", "lower", "upper"), ratio, strict=True):
            columns[f"{way}_{account}_speedup"] = value
    return columns
