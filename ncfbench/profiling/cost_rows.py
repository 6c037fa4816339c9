"""The rows of the cost tables, from the raw samples of a profile.

On a shared machine neighbours can double the time of everything for some seconds. Such a stretch
shows in blocks of different programs, measured one after another in random order: all take longer
than they usually do. That common factor, the machine's pace, is taken out of each block before
medians are formed.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ncfbench.catalog import find_sampler
from ncfbench.config import RunConfig, identity_of
from ncfbench.data import Dataset
from ncfbench.profiling.calibration import Points, labels
from ncfbench.profiling.cost_model import AXES, Costs, Counts, predict_full, residuals
from ncfbench.reporting.contents import batch_counts
from ncfbench.rng import Streams
from ncfbench.sampling import make_sampler
from ncfbench.timing.intervals import percentiles, ratio_of_medians

NEIGHBOURS = 5
"""Blocks on either side whose median gives a block its pace: one to two seconds. On a machine
whose times varied by 29 % (standard deviation) predictions missed by up to 19 % without it, and by
4 to 7 % with 3 to 20 neighbours (CiteULike, CNN, 5 rounds, 2026-11-22).
"""
REPEATS = 3
"""The usual time of a block is the median of its times without the pace, so both are found in
turn.
"""
COUNTED_BATCHES = 50
BOOTSTRAPS = 400
SAMPLING = ("draw", "assemble", "transfer")
"""Work of the sampler, beside the step."""
RANDOM_ITEMS = "step on random items"
"""The step on a sampler's batches with random items in their slots."""
SENT = ("global", "local", "texts")
"""Ways of sharing whose bytes are counted."""

Row = dict[str, Any]


def pace(
    names: Sequence[Hashable], seconds: Sequence[float], votes: Sequence[bool]
) -> NDArray[np.float64]:
    """Return how many times its usual time each block would take by its neighbours.

    Args:
        names, seconds: of blocks in the order in which they were measured; blocks of one name do
            the same.
        votes: whether a block says something about the pace: it comes often, and uses all cores.
    """
    logs, indices = np.log(np.asarray(seconds, float)), np.arange(len(seconds))
    voters = np.flatnonzero(votes)
    first = np.searchsorted(voters, indices)
    alike: dict[Hashable, list[int]] = {}
    for position, name in enumerate(names):
        alike.setdefault(name, []).append(position)
    paces = np.zeros(len(logs))
    for _ in range(REPEATS):
        usual = np.empty(len(logs))
        for blocks in alike.values():
            usual[blocks] = np.median((logs - paces)[blocks])
        slower = logs - usual
        for index in indices:
            near = voters[max(first[index] - NEIGHBOURS, 0) : first[index] + NEIGHBOURS + 1]
            near = near[near != index]
            paces[index] = np.median(slower[near]) if len(near) else 0.0
    return np.exp(paces)


def at_usual_pace(samples: Sequence[Row]) -> list[Row]:
    """Return samples in the order of their measurement without the changes of the machine's pace,
    which training steps tell.
    """
    factors = pace(
        [(row["part"], row["sampler"], row["size"]) for row in samples],
        [row["seconds"] / row["calls"] for row in samples],
        [row["part"] == "full" or row["part"].startswith("step") for row in samples],
    )
    return [
        row | {"seconds": row["seconds"] / float(factor)}
        for row, factor in zip(samples, factors, strict=True)
    ]


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
    refitted = [
        Costs.fit(steps, np.median(by_step[:, rounds], axis=1), costs.lines) for rounds in resamples
    ]
    rows: list[Row] = [
        {
            "part": "fixed",
            "unit_seconds": costs.fixed,
            **_ends(percentiles([fit.fixed for fit in refitted])),
            "is_linear": True,
        }
    ]
    for axis in filter(points.get, AXES):
        sizes = [counts.on(axis) for counts in points[axis]]
        seconds = by_step[[steps.index(counts) for counts in points[axis]]]
        low, high = np.quantile(seconds, [0.25, 0.75], axis=1)
        rows.append(
            {
                "part": axis,
                "unit_seconds": costs.units[axis].unit(sizes),
                **_ends(percentiles([fit.units[axis].unit(sizes) for fit in refitted])),
                "is_linear": costs.units[axis].is_linear,
                "spread": float(np.median(high / low - 1)),
                "sizes": sizes,
                "seconds": [costs.units[axis](size) for size in sizes],
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
    serial = seconds["step"] + sampling
    off_clock = seconds["draw"] if find_sampler(name).drawn_off_paper_clock else 0.0
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
        "serial_iteration_seconds": serial,
        "paper_iteration_seconds": serial - off_clock,
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
    for clock in ("serial", "paper"):
        name = f"{clock}_iteration_seconds"
        columns[f"{clock}_speedup"] = baseline[name] / row[name]
    return columns


def sent_columns(
    sent_bytes: Mapping[str, Mapping[str, float]] | None,
    config: RunConfig,
    samples: Sequence[Row],
    *,
    is_simulated: bool,
) -> Row:
    """Return what each of several devices sends in an iteration, and would send by other ways.

    Args:
        sent_bytes: bytes by way of :data:`SENT` and purpose; None for one device, whose columns are
            null.
    """
    names = ("devices", "share", "simulated", "measured_collectives_seconds", "gradient_sent_bytes")
    columns: Row = dict.fromkeys((*names, *(f"{way}_sent_bytes" for way in SENT)))
    if sent_bytes is None:
        return columns
    collectives = float(np.median(per_call(samples, "collectives", config.sampler)))
    values = config.devices, config.share, is_simulated, collectives
    columns |= dict(zip(names, (*values, sent_bytes["local"]["gradients"]), strict=True))
    return columns | {f"{way}_sent_bytes": sum(sent_bytes[way].values()) for way in SENT}


def _ends(ends: Sequence[float]) -> Row:
    return dict(zip(("unit_lower", "unit_upper"), ends, strict=True))
