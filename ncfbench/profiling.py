"""The profile: what each part of an iteration costs, measured by itself; what that predicts; and what samplers really take.

Everything is compiled first. Then rounds: in each, every part at every size, every sampler's loop in both accounts, and its
draws, batches and transfers by themselves, in turn, so that a disturbance of the machine meets all of them.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from ncfbench import analysis, environment, interrupts, limits
from ncfbench.batch import Batch
from ncfbench.config import RunConfig, cache_dir, complete
from ncfbench.costmodel import Costs, Counts, UnitCost, predict_full, residuals, responsible
from ncfbench.datasets import Dataset
from ncfbench.device import transferred
from ncfbench.errors import UsageError
from ncfbench.model import Content
from ncfbench.parts import Call, Parts, listed_batch, products, shared_batch
from ncfbench.precision import require
from ncfbench.progress import Progress
from ncfbench.registry import find_loss, find_sampler
from ncfbench.samplers import Sampler, make_sampler, plan_capacity
from ncfbench.step import copy_state
from ncfbench.streams import Streams
from ncfbench.timing import TimedLoop, timed_loops
from ncfbench.xray import xray

FEWEST_ROUNDS = 3
BLOCK_SECONDS = 0.06
"""A block of calls of a part takes about this long, one call at least."""
LOOP_SECONDS = 1.0
"""A block of training iterations takes about this long, ``LOOP_ITERATIONS`` at least."""
LOOP_ITERATIONS = 8
PRODUCT_SIZES = (32, 64, 128, 256, 512)
XRAY_BATCHES = 50
BOOTSTRAPS = 400
PAPER_DRAWS_OFF_CLOCK = ("iid", "ns", "strat-ns")
"""Samplers whose draws the authors' program made before its timer started: shuffling, and IID's negatives."""

Row = dict[str, Any]


@dataclass(frozen=True)
class Measured:
    """A part that is called over and over: its name, its size, whose batch it is, and how many calls fill a block."""

    part: str
    size: int
    sampler: str | None
    call: Call
    calls: int

    @classmethod
    def ready(cls, part: str, size: int, call: Call, sampler: str | None = None) -> Measured:
        """Compiled, and with as many calls as fill a block."""
        jax.block_until_ready(call())
        begin = time.perf_counter()
        jax.block_until_ready(call())
        seconds = max(time.perf_counter() - begin, 1e-6)
        return cls(part, size, sampler, call, int(np.clip(BLOCK_SECONDS / seconds, 1, 2000)))

    def block(self) -> float:
        """Seconds of a block of calls."""
        begin = time.perf_counter()
        for _ in range(self.calls):
            result = self.call()
        jax.block_until_ready(result)
        return time.perf_counter() - begin


@dataclass(frozen=True)
class Record:
    """A profile as rows of the tables of :mod:`ncfbench.schemas`."""

    profile: list[Row]
    unitcost: list[Row]
    costmodel: list[Row]

    @property
    def tables(self) -> dict[str, list[Row]]:
        """By their names in :data:`ncfbench.schemas.PROFILE_TABLES`."""
        return {"profile": self.profile, "unitcost": self.unitcost, "costmodel": self.costmodel}


def run(dataset: Dataset, configs: Mapping[str, RunConfig], *, rounds: int = 11, progress: Progress | None = None) -> Record:
    """Profile some samplers, and the parts that they share.

    Args:
        configs: complete settings by sampler; alike but for the sampler. The first is the baseline.

    Raises:
        UsageError: too few rounds, no sampler, or a precision that the device has not.
    """
    if rounds < FEWEST_ROUNDS or not configs:
        raise UsageError(f"A profile needs one sampler or more, and {FEWEST_ROUNDS} rounds or more.")
    precision = next(iter(configs.values())).precision
    require(precision)
    progress = progress or Progress()
    content = Content.of(dataset)
    described = environment.describe()
    made = {name: make_sampler(dataset.graph, config, Streams(config.seed)) for name, config in configs.items()}
    batches = {name: next(sampler.batches(0, plan_capacity(dataset.graph, configs[name]))) for name, sampler in made.items()}
    progress.say("Measuring the machine's peaks: a large matrix product, and a large copy.")
    peaks = limits.peaks(cache_dir(), described["key"], precision)
    progress.say(f"Compiling the steps of {len(configs)} samplers, and their parts.")
    demands = {name: limits.demand(config, dataset, content, batches[name]) for name, config in configs.items()}
    with timed_loops(dataset, content, configs) as loops:
        iterations = {name: _warm_up(loop) for name, loop in loops.items()}
        first = next(iter(loops.values()))
        # The loops donate their states, so the parts need one that stays.
        parts = Parts(first.trainer, copy_state(first.state), content)
        measured = _measured(dataset, next(iter(configs.values())), parts, batches)
        samples: list[Row] = []
        with interrupts.noted(progress.say, "Stopping; whole rounds are kept. Ctrl-C again stops at once.") as stop:
            for number in range(rounds):
                begin = time.perf_counter()
                rows = _round(number, measured, loops, iterations, made, stop)
                if stop():
                    break
                samples += rows
                progress.say(f"Round {number + 1} of {rounds}: {time.perf_counter() - begin:.1f} s")
        whole = len({row["round"] for row in samples})
        if whole < min(rounds, FEWEST_ROUNDS):
            raise KeyboardInterrupt
    costs, unit_rows = unit_costs(samples)
    rows = [_cost_row(dataset, name, configs, batches, samples, costs, described, demands[name], peaks) for name in configs]
    baseline = rows[0]
    for row in rows:
        _compare(row, baseline, samples)
    for row in rows:
        row["responsible"] = responsible(row["residuals"], baseline["residuals"])
    for row in rows:
        row["residuals"] = [{"part": name, "share": share} for name, share in row["residuals"].items()]
    example = next(iter(configs.values())).effective()
    common = {name: example[name] for name in ("dataset", "encoder", "loss", "batch_size")}
    common |= {
        "settings": settings_digest(next(iter(configs.values()))),
        "data_fingerprint": dataset.fingerprint,
        "environment_key": described["key"],
    }
    strata = {name: config.effective()["strata"] for name, config in configs.items()}
    return Record(
        [{**common, "strata": strata.get(row["sampler"] or ""), **row} for row in samples],
        [{**common, **row} for row in unit_rows],
        [{**common, **row} for row in rows],
    )


def _warm_up(loop: TimedLoop) -> int:
    """Compile a loop's step, and choose how many iterations fill a block."""
    loop.full_block(2)
    loop.full_block(4)
    seconds = loop.samples[-1].seconds / 4
    loop.step_block(2)
    loop.samples.clear()
    count, together = int(np.clip(LOOP_SECONDS / seconds, LOOP_ITERATIONS, 2000)), loop.trainer.per_dispatch
    return -(-count // (2 * together)) * 2 * together  # whole dispatches, also in half a block


def sizes_between(smallest: int, largest: int) -> list[int]:
    """Doubling sizes from half the smallest to the largest."""
    sizes = [max(smallest // 2, 1)]
    while 1.4 * sizes[-1] < largest:
        sizes.append(min(2 * sizes[-1], largest))
    return sizes


def _measured(dataset: Dataset, config: RunConfig, parts: Parts, batches: Mapping[str, Batch]) -> list[Measured]:
    graph, rng = dataset.graph, np.random.default_rng(0)
    counts = {name: Counts.of(batch) for name, batch in batches.items()}
    found = []
    users, items = ([getattr(count, name) for count in counts.values()] for name in ("users", "items"))
    for size in sizes_between(min(users), max(users)):
        ids = graph.link_user[rng.integers(graph.n_links, size=size)]
        found.append(Measured.ready("users", size, parts.user(ids)))
    for size in sizes_between(min(items), max(items)):
        # As many distinct items as there are, and then again.
        ids = graph.items_in_use[rng.permutation(max(size, len(graph.items_in_use)))[:size] % len(graph.items_in_use)]
        found.append(Measured.ready("items", size, parts.item(ids)))
    b, k = config.batch_size, config.negatives
    for rows in sizes_between(max(b // 4, 1), b):
        found.append(Measured.ready("vectors", rows * (1 + k), parts.interaction(listed_batch(config, rows, rng))))
    shared = [count.items for count in counts.values() if count.kind == "matrix"] or [b]
    for columns in sizes_between(min(shared), max(shared)):
        found.append(Measured.ready("matrix", b * (1 + columns), parts.interaction(shared_batch(b, columns, rng))))
    for name, batch in batches.items():
        count = counts[name]
        found.append(Measured.ready("users", count.users, parts.user(batch.users), name))
        found.append(Measured.ready("items", count.items, parts.item(batch.items), name))
        found.append(Measured.ready(count.kind, count.interactions, parts.interaction(batch), name))
    found.append(Measured.ready("optimiser", 1, parts.optimiser()))
    found.append(Measured.ready("dispatch", 1, parts.dispatch(next(iter(batches.values())))))
    for size in PRODUCT_SIZES:
        for part, call in zip(
            ("matrix product", "element-wise product"), products(size, config.dimension, config.precision), strict=True
        ):
            found.append(Measured.ready(part, size, call))
    return found


def _round(
    number: int,
    measured: Sequence[Measured],
    loops: Mapping[str, TimedLoop],
    iterations: Mapping[str, int],
    samplers: Mapping[str, Sampler],
    stop: Callable[[], bool],
) -> list[Row]:
    """One sample of everything; what is there so far where ``stop()`` is true."""
    rows: list[Row] = []

    def add(part: str, size: int, calls: int, seconds: float, sampler: str | None = None) -> None:
        rows.append({"round": number, "sampler": sampler, "part": part, "size": size, "calls": calls, "seconds": seconds})

    for each in measured:
        if stop():
            return rows
        add(each.part, each.size, each.calls, each.block(), each.sampler)
    for name, loop in loops.items():
        loop.full_block(iterations[name], stop=stop)
        if stop():
            return rows
        loop.step_block(max(iterations[name] // 2, 4))
        for sample in loop.samples:
            if sample.kind in ("full", "step"):
                add(sample.kind, loop.item_slots, sample.iterations, sample.seconds, name)
        loop.samples.clear()
        count = max(2, min(32, iterations[name] // 4))
        for part, seconds in _sampling(samplers[name], loop.item_slots, number * count, count).items():
            add(part, loop.item_slots, count, seconds, name)
    return rows


def _sampling(sampler: Sampler, slots: int, start: int, count: int) -> dict[str, float]:
    """Seconds of drawing, assembling and transferring some batches, with nothing beside it."""
    times = [time.perf_counter()]
    draws = sampler.draw(start, count)
    times.append(time.perf_counter())
    batches = [sampler.assemble(draw, slots) for draw in draws]
    times.append(time.perf_counter())
    [transferred(batch) for batch in batches]
    times.append(time.perf_counter())
    return dict(zip(("draw", "assemble", "transfer"), np.diff(times).tolist(), strict=True))


def per_call(samples: Sequence[Row], part: str, sampler: str | None, size: int | None = None) -> list[float]:
    """Seconds of one call in each round."""
    return [
        row["seconds"] / row["calls"]
        for row in samples
        if row["part"] == part and row["sampler"] == sampler and size in (None, row["size"])
    ]


def unit_costs(samples: Sequence[Row]) -> tuple[Costs, list[Row]]:
    """Unit costs from raw samples, and each as a row of :data:`ncfbench.schemas.UNITCOST`."""
    fits: dict[str, UnitCost] = {}
    rows: list[Row] = []
    for part in ("users", "items", "vectors", "matrix"):
        own = [row for row in samples if row["part"] == part and row["sampler"] is None]
        sizes = sorted({row["size"] for row in own})
        by_size = np.array([per_call(samples, part, None, size) for size in sizes])
        fits[part] = UnitCost.fit(sizes, np.median(by_size, axis=1))
        resampled = np.random.default_rng(0).integers(0, by_size.shape[1], (BOOTSTRAPS, by_size.shape[1]))
        slopes = [UnitCost.fit(sizes, np.median(by_size[:, rounds], axis=1)).slope for rounds in resampled]
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
        row = {"part": part, "unit_seconds": single[part], "unit_lower": lower, "unit_upper": upper, "is_linear": True}
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
    )
    return costs, rows


def _cost_row(
    dataset: Dataset,
    name: str,
    configs: Mapping[str, RunConfig],
    batches: Mapping[str, Batch],
    samples: Sequence[Row],
    costs: Costs,
    described: Mapping[str, Any],
    demand: limits.Demand | None,
    peaks: limits.Peaks,
) -> Row:
    config, counts = configs[name], Counts.of(batches[name])
    contents, effective = xray(dataset, config, XRAY_BATCHES), config.effective()
    seconds = {
        part: float(np.median(per_call(samples, part, name))) for part in ("full", "step", "draw", "assemble", "transfer")
    }
    predicted = costs.parts(counts)
    own = {"users": "users", "items": "items", "interactions": counts.kind}
    isolated = {part: float(np.median(per_call(samples, kind, name))) for part, kind in own.items()}
    measured = {part: max(value - costs.dispatch, 0.0) for part, value in isolated.items()}
    measured |= {part: predicted[part] for part in ("optimiser", "dispatch")}
    step = sum(predicted.values())
    accelerator = any(device["platform"] != "cpu" for device in described["devices"])
    sampling = seconds["draw"] + seconds["assemble"] + seconds["transfer"]
    full = predict_full(step, sampling, accelerator=accelerator)
    off_clock = seconds["draw"] if name in PAPER_DRAWS_OFF_CLOCK else 0.0
    limit = demand and demand.seconds(peaks)
    return {
        "sampler": name,
        **{key: effective[key] for key in ("strata", "negatives", "stratum_size")},
        "baseline": next(iter(configs)),
        **{key: contents[key] for key in ("nominal_users", "nominal_items", "nominal_negatives")},
        **{key: contents[key] for key in ("distinct_users", "distinct_items")},
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


def _compare(row: Row, baseline: Row, samples: Sequence[Row]) -> None:
    """Add the speedups over the baseline."""
    for account in ("step", "full"):
        name = f"predicted_{account}_iteration_seconds"
        row[f"predicted_{account}_speedup"] = baseline[name] / row[name]
        blocks = [per_call(samples, account, each["sampler"]) for each in (baseline, row)]
        found = analysis.ratio_of_medians(*blocks)
        row |= dict(zip((f"{way}_{account}_speedup" for way in ("measured", "lower", "upper")), found, strict=True))
    for clock in ("serial", "paper"):
        row[f"{clock}_speedup"] = baseline[f"{clock}_iteration_seconds"] / row[f"{clock}_iteration_seconds"]


def settings_digest(config: RunConfig) -> str:
    """Twelve hexadecimal digits of all settings but the sampler."""
    text = json.dumps({key: value for key, value in config.to_dict().items() if key != "sampler"}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def configurations(settings: Mapping[str, Any], samplers: Sequence[str]) -> dict[str, RunConfig]:
    """Complete settings by sampler, the baseline of the loss first; those that cannot serve the loss are left out.

    Raises:
        UsageError: none can, or a setting is impossible.
    """
    first = complete(dict(settings) | {"sampler": "ns"})
    order = sorted(dict.fromkeys(samplers), key=lambda name: name != find_loss(first.loss).baseline_sampler)
    strata = str(settings.get("strata", RunConfig.strata))
    served = [name for name in order if first.family in find_sampler(name).families_with(strata)]
    if not served and order:
        complete(dict(settings) | {"sampler": order[0]})
    return {name: complete(dict(settings) | {"sampler": name}) for name in served}
