"""The rows of the cost tables, from the raw samples of a profile."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ncfbench.config import RunConfig
from ncfbench.data import Dataset
from ncfbench.distributed.bytes_sent import Sizes
from ncfbench.profiling import roofline
from ncfbench.profiling.cost_model import Costs, Counts, UnitCost, predict_full, residuals
from ncfbench.registry import find_sampler
from ncfbench.sampling.batch import Batch
from ncfbench.sampling.batch_stats import xray
from ncfbench.timing import statistics as analysis

PRODUCT_SIZES = (32, 64, 128, 256, 512)
XRAY_BATCHES = 50
BOOTSTRAPS = 400

Row = dict[str, Any]


def per_call(
    samples: Sequence[Row], part: str, sampler: str | None, size: int | None = None
) -> list[float]:
    """Return the seconds of one call in each round."""
    return [
        row["seconds"] / row["calls"]
        for row in samples
        if row["part"] == part and row["sampler"] == sampler and size in (None, row["size"])
    ]


def unit_costs(samples: Sequence[Row]) -> tuple[Costs, list[Row]]:
    """Fit unit costs to raw samples; each also as a row of the table UNITCOST."""
    fits: dict[str, UnitCost] = {}
    rows: list[Row] = []
    sent = any(row["part"] == "collectives" for row in samples)
    for part in ("users", "items", "vectors", "matrix", *(["collectives"] if sent else [])):
        own = [row for row in samples if row["part"] == part and row["sampler"] is None]
        sizes = sorted({row["size"] for row in own})
        by_size = np.array([per_call(samples, part, None, size) for size in sizes])
        fits[part] = UnitCost.fit(sizes, np.median(by_size, axis=1))
        resampled = np.random.default_rng(0).integers(
            0, by_size.shape[1], (BOOTSTRAPS, by_size.shape[1])
        )
        slopes = [
            UnitCost.fit(sizes, np.median(by_size[:, rounds], axis=1)).slope for rounds in resampled
        ]
        lower, upper = np.quantile(slopes, [0.025, 0.975])
        low, high = np.quantile(by_size, [0.25, 0.75], axis=1)
        rows.append(
            {
                "part": part,
                "unit_seconds": fits[part].slope,
                "unit_lower": float(lower),
                "unit_upper": float(upper),
                "overhead_seconds": fits[part].overhead,
                "is_linear": fits[part].is_linear,
                "spread": float(np.median(high / low - 1)),
                "sizes": sizes,
                "seconds": fits[part].seconds.tolist(),
            }
        )
    single = {}
    for part in ("optimiser", "dispatch"):
        single[part], lower, upper = analysis.centre(per_call(samples, part, None))
        row = {
            "part": part,
            "unit_seconds": single[part],
            "unit_lower": lower,
            "unit_upper": upper,
            "is_linear": True,
        }
        rows.append(row | {"overhead_seconds": 0.0, "sizes": [1], "seconds": [single[part]]})
    for part in ("matrix product", "element-wise product"):
        medians = [float(np.median(per_call(samples, part, None, size))) for size in PRODUCT_SIZES]
        rows.append({"part": part, "sizes": list(PRODUCT_SIZES), "seconds": medians})
    costs = Costs(
        users=fits["users"],
        items=fits["items"],
        vectors=fits["vectors"],
        matrix=fits["matrix"],
        optimiser=single["optimiser"],
        dispatch=single["dispatch"],
        collectives=fits.get("collectives"),
    )
    return costs, rows


def cost_row(
    dataset: Dataset,
    name: str,
    configs: Mapping[str, RunConfig],
    batches: Mapping[str, Batch],
    samples: Sequence[Row],
    costs: Costs,
    described: Mapping[str, Any],
    demand: roofline.Demand | None,
    peaks: roofline.Peaks,
    sizes: Sizes | None = None,
) -> Row:
    """Return a row of :data:`ncfbench.storage.schemas.COSTMODEL`, without the speedups.

    Args:
        sizes: elements that devices send each other; None for one device.
    """
    config = configs[name]
    counts = counts_of(batches[name], config, sizes)
    contents, effective = xray(dataset, config, XRAY_BATCHES), config.effective()
    seconds = {
        part: float(np.median(per_call(samples, part, name)))
        for part in ("full", "step", "draw", "assemble", "transfer")
    }
    predicted = costs.parts(counts)
    own = {"users": "users", "items": "items", "interactions": counts.kind}
    if sizes is not None:
        own["collectives"] = "collectives"
    isolated = {part: float(np.median(per_call(samples, kind, name))) for part, kind in own.items()}
    measured = {part: max(value - costs.dispatch, 0.0) for part, value in isolated.items()}
    # A part that was not measured on the sampler's own batch has no error.
    measured = {part: measured.get(part, predicted[part]) for part in predicted}
    step = sum(predicted.values())
    accelerator = any(device["platform"] != "cpu" for device in described["devices"])
    sampling = seconds["draw"] + seconds["assemble"] + seconds["transfer"]
    full = predict_full(step, sampling, accelerator=accelerator)
    off_clock = seconds["draw"] if find_sampler(name).drawn_off_paper_clock else 0.0
    limit = demand and demand.seconds(peaks)
    return {
        "sampler": name,
        **{key: effective[key] for key in ("strata", "negatives", "stratum_size")},
        "baseline": next(iter(configs)),
        **{key: contents[key] for key in ("nominal_users", "nominal_items", "nominal_negatives")},
        **{key: contents[key] for key in ("distinct_users", "distinct_items")},
        **sent(sizes, config),
        "simulated": None if sizes is None else not accelerator,
        "user_slots": counts.users,
        "item_slots": counts.items,
        "interactions": counts.interactions,
        "interaction_kind": counts.kind,
        **{f"predicted_{part}_seconds": value for part, value in predicted.items()},
        **{f"measured_{part}_seconds": value for part, value in measured.items()},
        "predicted_step_iteration_seconds": step,
        "measured_step_iteration_seconds": seconds["step"],
        "predicted_full_iteration_seconds": full,
        "measured_full_iteration_seconds": seconds["full"],
        "serial_iteration_seconds": seconds["step"] + sampling,
        "paper_iteration_seconds": seconds["step"] + sampling - off_clock,
        "residuals": residuals(predicted, measured, full, seconds["step"], seconds["full"]),
        **{f"{part}_seconds": seconds[part] for part in ("draw", "assemble", "transfer")},
        "step_flops": demand and demand.flops,
        "step_bytes": demand and demand.bytes,
        "limit_seconds": limit,
        "limit_share": limit and limit / seconds["step"],
        "bound": demand and demand.bound(peaks),
        "drift": analysis.drift(per_call(samples, "full", name)),
        "rounds": len(per_call(samples, "full", name)),
        "links": dataset.graph.n_links,
    }


def counts_of(batch: Batch, config: RunConfig, sizes: Sizes | None) -> Counts:
    """Count the work of all devices together: simulated ones share the cores of one."""
    counts = Counts.of(batch, config.devices if config.shares_locally else 1)
    return (
        counts
        if sizes is None
        else replace(counts, sent_bytes=sum(sizes.sent(config.share).values()))
    )


def sent(sizes: Sizes | None, config: RunConfig) -> Row:
    """Return the columns of what each device sends in an iteration, and would send by other ways.

    Null for one device.
    """
    columns = [f"{way}_sent_bytes" for way in ("global", "local", "texts")]
    if sizes is None:
        return dict.fromkeys(("devices", "share", "gradient_sent_bytes", *columns))
    ways = dict(
        zip(
            columns,
            (sum(sizes.sent(way).values()) for way in ("global", "local", "texts")),
            strict=True,
        )
    )
    return {
        "devices": sizes.devices,
        "share": config.share,
        "gradient_sent_bytes": sizes.sent("local")["gradients"],
        **ways,
    }


def compare(row: Row, baseline: Row, samples: Sequence[Row]) -> None:
    """Add the speedups over the baseline to a row."""
    for account in ("step", "full"):
        name = f"predicted_{account}_iteration_seconds"
        row[f"predicted_{account}_speedup"] = baseline[name] / row[name]
        blocks = [per_call(samples, account, each["sampler"]) for each in (baseline, row)]
        found = analysis.ratio_of_medians(*blocks)
        row |= dict(
            zip(
                (f"{way}_{account}_speedup" for way in ("measured", "lower", "upper")),
                found,
                strict=True,
            )
        )
    for clock in ("serial", "paper"):
        row[f"{clock}_speedup"] = (
            baseline[f"{clock}_iteration_seconds"] / row[f"{clock}_iteration_seconds"]
        )
