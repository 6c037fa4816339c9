"""The rows of the cost tables: medians of the raw samples of a profile."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ncfbench.config import RunConfig, identity_of
from ncfbench.data import Dataset
from ncfbench.profiling.calibration import Points, labels
from ncfbench.profiling.cost_model import AXES, Costs, Counts, predict_full, residuals
from ncfbench.reporting.contents import batch_counts
from ncfbench.rng import Streams
from ncfbench.sampling import make_sampler
from ncfbench.timing.intervals import percentiles, ratio_of_medians

COUNTED_BATCHES = 50
BOOTSTRAPS = 400
SAMPLING = ("draw", "assemble", "transfer")
"""Work of the sampler, beside the step."""
RANDOM_ITEMS = "step on random items"
"""The step on a sampler's batches with random items in their slots."""

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
    steps = list(labels(points))
    by_step = np.array(
        [per_call(samples, part, None, size) for part, size in labels(points).values()]
    )
    costs, n_rounds = Costs.fit(steps, np.median(by_step, axis=1)), by_step.shape[1]
    resamples = np.random.default_rng(0).integers(0, n_rounds, (BOOTSTRAPS, n_rounds))
    refitted = [Costs.fit(steps, np.median(by_step[:, rounds], axis=1)) for rounds in resamples]
    rows: list[Row] = [
        {
            "part": "fixed",
            "unit_seconds": costs.fixed,
            **_ends(percentiles([fit.fixed for fit in refitted])),
        }
    ]
    for axis in filter(points.get, AXES):
        sizes = [counts.on(axis) for counts in points[axis]]
        seconds = by_step[[steps.index(counts) for counts in points[axis]]]
        low, high = np.quantile(seconds, [0.25, 0.75], axis=1)
        rows.append(
            {
                "part": axis,
                "unit_seconds": costs.units[axis],
                **_ends(percentiles([fit.units[axis] for fit in refitted])),
                "spread": float(np.median(high / low - 1)),
                "sizes": sizes,
                "seconds": [costs.units[axis] * size for size in sizes],
                "step_seconds": np.median(seconds, axis=1).tolist(),
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
        for part in ("full", "step", RANDOM_ITEMS, *SAMPLING)
    }
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
        "random_items_step_iteration_seconds": seconds[RANDOM_ITEMS],
        "predicted_step_iteration_seconds": step,
        "measured_step_iteration_seconds": seconds["step"],
        "predicted_full_iteration_seconds": full,
        "measured_full_iteration_seconds": seconds["full"],
        **{f"{part}_seconds": seconds[part] for part in SAMPLING},
        "residuals": residuals(step, full, seconds[RANDOM_ITEMS], seconds["step"], seconds["full"]),
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


def _ends(ends: Sequence[float]) -> Row:
    return dict(zip(("unit_lower", "unit_upper"), ends, strict=True))
