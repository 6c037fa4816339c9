"""The rows of the cost tables, from the raw samples of a profile."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ncfbench.catalog import find_sampler
from ncfbench.config import RunConfig, identity_of
from ncfbench.data import Dataset
from ncfbench.profiling import roofline
from ncfbench.profiling.calibration import Points, labels
from ncfbench.profiling.cost_model import AXES, Costs, Counts, mean_rise, predict_full, residuals
from ncfbench.profiling.pace import pace
from ncfbench.reporting.contents import xray
from ncfbench.timing.intervals import hodges_lehmann, percentiles, ratio_of_medians

PRODUCT_SIZES = (32, 64, 128, 256, 512)
XRAY_BATCHES = 50
BOOTSTRAPS = 400
ALONE = ("optimiser", "dispatch")
"""Parts that no count changes, and that are timed alone."""
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


def at_usual_pace(samples: Sequence[Row]) -> list[Row]:
    """Return samples in the order of their measurement without the changes of the machine's pace.

    Training steps tell the pace; see :mod:`ncfbench.profiling.pace`.
    """
    found = pace(
        [(row["part"], row["sampler"], row["size"]) for row in samples],
        [row["seconds"] / row["calls"] for row in samples],
        [row["part"] == "full" or row["part"].startswith("step") for row in samples],
    )
    return [
        row | {"seconds": row["seconds"] / float(factor)}
        for row, factor in zip(samples, found, strict=True)
    ]


def unit_costs(samples: Sequence[Row], points: Points) -> tuple[Costs, list[Row]]:
    """Fit the costs to the steps of a calibration; each also as a row of the table UNITCOST."""
    by_step = np.array(
        [per_call(samples, part, None, size) for part, size in labels(points).values()]
    )
    steps = list(labels(points))
    costs = Costs.fit(steps, np.median(by_step, axis=1))
    resampled = np.random.default_rng(0).integers(
        0, by_step.shape[1], (BOOTSTRAPS, by_step.shape[1])
    )
    refitted = [
        Costs.fit(steps, np.median(by_step[:, rounds], axis=1), costs.lines) for rounds in resampled
    ]
    single = {part: hodges_lehmann(per_call(samples, part, None)) for part in ALONE}
    rows: list[Row] = [
        {
            "part": "fixed",
            "unit_seconds": costs.fixed,
            **_interval([each.fixed for each in refitted]),
            "alone_unit_seconds": sum(seconds for seconds, _, _ in single.values()),
            "is_linear": True,
        }
    ]
    for axis in filter(points.get, AXES):
        sizes = [counts.on(axis) for counts in points[axis]]
        own = by_step[[steps.index(counts) for counts in points[axis]]]
        alone = [_median(samples, axis, None, size) for size in sizes]
        low, high = np.quantile(own, [0.25, 0.75], axis=1)
        rows.append(
            {
                "part": axis,
                "unit_seconds": costs.units[axis].unit(sizes),
                **_interval([each.units[axis].unit(sizes) for each in refitted]),
                "alone_unit_seconds": mean_rise(sizes, alone),
                "is_linear": costs.units[axis].is_linear,
                "spread": float(np.median(high / low - 1)),
                "sizes": sizes,
                "seconds": [costs.units[axis](size) for size in sizes],
                "step_seconds": np.median(own, axis=1).tolist(),
                "alone_seconds": alone,
            }
        )
    for part, (seconds, lower, upper) in single.items():
        row: Row = {"part": part, "unit_seconds": None, "is_linear": True}
        interval = {"unit_lower": lower, "unit_upper": upper}
        rows.append(row | interval | {"alone_unit_seconds": seconds})
    for part in ("matrix product", "element-wise product"):
        medians = [_median(samples, part, None, size) for size in PRODUCT_SIZES]
        rows.append({"part": part, "sizes": list(PRODUCT_SIZES), "seconds": medians})
    return costs, rows


def cost_row(
    dataset: Dataset,
    name: str,
    configs: Mapping[str, RunConfig],
    counts: Counts,
    samples: Sequence[Row],
    costs: Costs,
    described: Mapping[str, Any],
    demand: roofline.Demand | None,
    peaks: roofline.Peaks,
    sent_bytes: Mapping[str, Mapping[str, float]] | None = None,
) -> Row:
    """Return a row of :data:`ncfbench.storage.schemas.COSTMODEL`, without the speedups.

    Args:
        sent_bytes: by way of sharing and purpose, see :func:`sent`.
    """
    config = configs[name]
    contents, effective = xray(dataset, config, XRAY_BATCHES), identity_of(config)
    seconds = {
        part: _median(samples, part, name)
        for part in ("full", "step", RANDOM_ITEMS, "draw", "assemble", "transfer")
    }
    predicted = costs.parts(counts)
    step = sum(predicted.values())
    accelerator = any(device["platform"] != "cpu" for device in described["devices"])
    sampling = seconds["draw"] + seconds["assemble"] + seconds["transfer"]
    full = predict_full(step, sampling, accelerator=accelerator)
    random_items = seconds[RANDOM_ITEMS]
    off_clock = seconds["draw"] if find_sampler(name).drawn_off_paper_clock else 0.0
    limit = demand and demand.seconds(peaks)
    return {
        "sampler": name,
        **{key: effective[key] for key in ("strata", "negatives", "stratum_size")},
        "baseline": next(iter(configs)),
        **{key: contents[key] for key in ("nominal_users", "nominal_items", "nominal_negatives")},
        **{key: contents[key] for key in ("distinct_users", "distinct_items")},
        **sent(sent_bytes, config),
        "simulated": None if sent_bytes is None else not accelerator,
        "user_slots": counts.users,
        "item_slots": counts.items,
        "interactions": counts.interactions,
        "interaction_kind": counts.kind,
        **{f"predicted_{part}_seconds": value for part, value in predicted.items()},
        "measured_collectives_seconds": sent_bytes and _median(samples, "collectives", name),
        "random_items_step_iteration_seconds": random_items,
        "predicted_step_iteration_seconds": step,
        "measured_step_iteration_seconds": seconds["step"],
        "predicted_full_iteration_seconds": full,
        "measured_full_iteration_seconds": seconds["full"],
        "serial_iteration_seconds": seconds["step"] + sampling,
        "paper_iteration_seconds": seconds["step"] + sampling - off_clock,
        "residuals": residuals(step, full, random_items, seconds["step"], seconds["full"]),
        **{f"{part}_seconds": seconds[part] for part in ("draw", "assemble", "transfer")},
        "step_flops": demand and demand.flops,
        "step_bytes": demand and demand.bytes,
        "limit_seconds": limit,
        "limit_share": limit and limit / seconds["step"],
        "bound": demand and demand.bound(peaks),
        "rounds": len({row["round"] for row in samples}),
        "links": dataset.graph.n_links,
    }


def sent(sent_bytes: Mapping[str, Mapping[str, float]] | None, config: RunConfig) -> Row:
    """Return the columns of what each device sends in an iteration, and would send by other ways.

    Null for one device.

    Args:
        sent_bytes: bytes by way (global, local or texts) and purpose; None for one device.
    """
    ways = ("global", "local", "texts")
    row: Row = dict.fromkeys(
        ("devices", "share", "gradient_sent_bytes", *(f"{way}_sent_bytes" for way in ways))
    )
    if sent_bytes is None:
        return row
    row |= {f"{way}_sent_bytes": sum(sent_bytes[way].values()) for way in ways}
    gradients = sent_bytes["local"]["gradients"]
    return row | {
        "devices": config.devices,
        "share": config.share,
        "gradient_sent_bytes": gradients,
    }


def compare(row: Row, baseline: Row, samples: Sequence[Row]) -> None:
    """Add the speedups over the baseline to a row."""
    for account in ("step", "full"):
        name = f"predicted_{account}_iteration_seconds"
        row[f"predicted_{account}_speedup"] = baseline[name] / row[name]
        blocks = [per_call(samples, account, each["sampler"]) for each in (baseline, row)]
        found = ratio_of_medians(*blocks)
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


def _median(
    samples: Sequence[Row], part: str, sampler: str | None, size: int | None = None
) -> float:
    return float(np.median(per_call(samples, part, sampler, size)))


def _interval(resamples: Sequence[float]) -> dict[str, float]:
    return dict(zip(("unit_lower", "unit_upper"), percentiles(resamples), strict=True))
