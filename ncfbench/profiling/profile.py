"""The profile: what each part of an iteration costs, measured by itself; what that predicts; and
what samplers really take.

Everything is compiled first. Then rounds: in each, every part at every size, every sampler's loop
in both accounts, and its draws, batches and transfers by themselves, in turn, so that a disturbance
of the machine meets all of them.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import numpy as np

from ncfbench.config import RunConfig, cache_dir, complete
from ncfbench.data import Dataset
from ncfbench.distributed import signals
from ncfbench.distributed.bytes_sent import Sizes
from ncfbench.distributed.mesh import MeshLayout, make_layout
from ncfbench.errors import UsageError
from ncfbench.models.precision import require
from ncfbench.models.towers import Content
from ncfbench.profiling import roofline
from ncfbench.profiling.cost_model import Counts, responsible
from ncfbench.profiling.cost_rows import PRODUCT_SIZES, Row, compare, cost_row, unit_costs
from ncfbench.profiling.parts import Call, Parts, listed_batch, products, shared_batch
from ncfbench.registry import baseline_sampler, find_sampler
from ncfbench.rng import Streams
from ncfbench.runs.progress import Progress
from ncfbench.sampling import Sampler, make_sampler, plan_capacity
from ncfbench.sampling.base import BatchSource
from ncfbench.sampling.batch import Batch, rounded_up
from ncfbench.timing import environment
from ncfbench.training.interleave import timed_loops
from ncfbench.training.loop import TimedLoop
from ncfbench.training.step import Trainer

FEWEST_ROUNDS = 3
BLOCK_SECONDS = 0.06
"""A block of calls of a part takes about this long, one call at least."""
LOOP_SECONDS = 1.0
"""A block of training iterations takes about this long, ``LOOP_ITERATIONS`` at least."""
LOOP_ITERATIONS = 8


@dataclass(frozen=True)
class Measured:
    """A part that is called over and over: its name, its size, whose batch it is, and how many
    calls fill a block.
    """

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
    """A profile as rows of the tables of :mod:`ncfbench.storage.schemas`."""

    profile: list[Row]
    unitcost: list[Row]
    costmodel: list[Row]

    @property
    def tables(self) -> dict[str, list[Row]]:
        """By their names in :data:`ncfbench.storage.schemas.PROFILE_TABLES`."""
        return {"profile": self.profile, "unitcost": self.unitcost, "costmodel": self.costmodel}


def run(
    dataset: Dataset,
    configs: Mapping[str, RunConfig],
    *,
    rounds: int = 11,
    progress: Progress | None = None,
) -> Record:
    """Profile some samplers, and the parts that they share.

    Args:
        configs: complete settings by sampler; alike but for the sampler. The first is the baseline.

    Raises:
        UsageError: too few rounds, no sampler, or a precision that the device has not.
    """
    if rounds < FEWEST_ROUNDS or not configs:
        raise UsageError(
            f"A profile needs one sampler or more, and {FEWEST_ROUNDS} rounds or more."
        )
    if any(config.shard_tables for config in configs.values()):
        raise UsageError(
            "A profile measures what devices send that have all tables each. Leave out"
            " --shard-tables."
        )
    precision = next(iter(configs.values())).precision
    require(precision)
    progress = progress or Progress()
    content = Content.of(dataset)
    layout = make_layout(next(iter(configs.values())))
    described = environment.describe(layout.describe())
    made = {
        name: make_sampler(dataset.graph, config, Streams(config.seed))
        for name, config in configs.items()
    }
    batches = {
        name: next(sampler.batches(0, plan_capacity(dataset.graph, configs[name])))
        for name, sampler in made.items()
    }
    progress.say("Measuring the machine's peaks: a large matrix product, and a large copy.")
    peaks = roofline.peaks(cache_dir(), described["key"], precision)
    progress.say(f"Compiling the steps of {len(configs)} samplers, and their parts.")
    alone = {name: config.on_one_device() for name, config in configs.items()}
    demands = {
        name: roofline.demand(config, dataset, content, batches[name])
        for name, config in alone.items()
    }
    with timed_loops(dataset, content, configs) as loops:
        iterations = {name: _warm_up(loop) for name, loop in loops.items()}
        # The loops donate their states, so the parts need one that stays.
        parts = Parts(*Trainer.create(next(iter(alone.values())), dataset), content)
        measured = _measured(dataset, next(iter(configs.values())), parts, batches)
        sizes = {
            name: None
            if layout.size == 1
            else loop.trainer.sizes(made[name], len(batches[name].items), dataset)
            for name, loop in loops.items()
        }
        measured += _collectives(loops, batches, sizes)
        samples: list[Row] = []
        with signals.deferred_signals(
            progress.say, "Stopping; whole rounds are kept. Ctrl-C again stops at once."
        ) as stop:
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
    rows = [
        cost_row(
            dataset,
            name,
            configs,
            batches,
            samples,
            costs,
            described,
            demands[name],
            peaks,
            sizes[name],
        )
        for name in configs
    ]
    baseline = rows[0]
    for row in rows:
        compare(row, baseline, samples)
    for row in rows:
        row["responsible"] = responsible(row["residuals"], baseline["residuals"])
    for row in rows:
        row["residuals"] = [
            {"part": name, "share": share} for name, share in row["residuals"].items()
        ]
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
    loop.take_samples()
    count, together = (
        int(np.clip(LOOP_SECONDS / seconds, LOOP_ITERATIONS, 2000)),
        loop.trainer.per_dispatch,
    )
    return -(-count // (2 * together)) * 2 * together  # whole dispatches, also in half a block


def sizes_between(smallest: int, largest: int) -> list[int]:
    """Doubling sizes from half the smallest to the largest."""
    sizes = [max(smallest // 2, 1)]
    while 1.4 * sizes[-1] < largest:
        sizes.append(min(2 * sizes[-1], largest))
    return sizes


def _measured(
    dataset: Dataset, config: RunConfig, parts: Parts, batches: Mapping[str, Batch]
) -> list[Measured]:
    graph, rng = dataset.graph, np.random.default_rng(0)
    n_parts = config.devices if config.shares_locally else 1
    counts = {name: Counts.of(batch, n_parts) for name, batch in batches.items()}
    found = []
    users, items = (
        [getattr(count, name) for count in counts.values()] for name in ("users", "items")
    )
    for size in sizes_between(min(users), max(users)):
        ids = graph.link_user[rng.integers(graph.n_links, size=size)]
        found.append(Measured.ready("users", size, parts.user(ids)))
    for size in sizes_between(min(items), max(items)):
        # As many distinct items as there are, and then again.
        ids = graph.items_in_use[
            rng.permutation(max(size, len(graph.items_in_use)))[:size] % len(graph.items_in_use)
        ]
        found.append(Measured.ready("items", size, parts.item(ids)))
    b, k = config.batch_size, config.negatives
    for rows in sizes_between(max(b // 4, 1), b):
        found.append(
            Measured.ready(
                "vectors", rows * (1 + k), parts.interaction(listed_batch(config, rows, rng))
            )
        )
    shared = [count.items // n_parts for count in counts.values() if count.kind == "matrix"] or [b]
    for columns in sizes_between(min(shared), max(shared)):
        found.append(
            Measured.ready(
                "matrix", b * (1 + columns), parts.interaction(shared_batch(b, columns, rng))
            )
        )
    for name, batch in batches.items():
        count = counts[name]
        found.append(Measured.ready("users", count.users, parts.user(batch.users), name))
        found.append(Measured.ready("items", count.items, parts.item(batch.items), name))
        # Parts that share within themselves have their scores with their own items only.
        own = batch if n_parts == 1 else shared_batch(b, count.items // n_parts, rng)
        found.append(Measured.ready(count.kind, count.interactions, parts.interaction(own), name))
    found.append(Measured.ready("optimiser", 1, parts.optimiser()))
    found.append(Measured.ready("dispatch", 1, parts.dispatch(next(iter(batches.values())))))
    for size in PRODUCT_SIZES:
        for part, call in zip(
            ("matrix product", "element-wise product"),
            products(config, size),
            strict=True,
        ):
            found.append(Measured.ready(part, size, call))
    return found


def _collectives(
    loops: Mapping[str, TimedLoop], batches: Mapping[str, Batch], sizes: Mapping[str, Sizes | None]
) -> list[Measured]:
    """What the devices send each other, by itself: of each sampler, and at sizes between them;
    nothing for one device.
    """
    found = []
    slots = [len(batch.items) for batch in batches.values()]
    between: list[tuple[str | None, int]] = [
        (None, size) for size in sizes_between(min(slots), max(slots))
    ]
    loop, of = next(iter(loops.values())), next(iter(sizes.values()))
    layout, config, shapes = (
        loop.trainer.layout,
        loop.trainer.config,
        loop.trainer.shapes.parameters,
    )
    if isinstance(layout, MeshLayout) and of is not None:
        for sampler, items in (*between, *zip(batches, slots, strict=True)):
            whole = rounded_up(items, layout.size)
            sent = replace(of, vectors=whole * config.dimension).sent(config.share)
            call = layout.collective(shapes, whole, config.dimension)
            found.append(Measured.ready("collectives", round(sum(sent.values())), call, sampler))
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
        rows.append(
            {
                "round": number,
                "sampler": sampler,
                "part": part,
                "size": size,
                "calls": calls,
                "seconds": seconds,
            }
        )

    for each in measured:
        if stop():
            return rows
        add(each.part, each.size, each.calls, each.block(), each.sampler)
    for name, loop in loops.items():
        loop.full_block(iterations[name], stop=stop)
        if stop():
            return rows
        loop.step_block(max(iterations[name] // 2, 4))
        for sample in loop.take_samples():
            if sample.kind in ("full", "step"):
                add(sample.kind, loop.item_slots, sample.iterations, sample.seconds, name)
        count = max(2, min(32, iterations[name] // 4))
        source = loop.trainer.layout.shard(samplers[name])
        for part, seconds in _sampling(
            source, loop.item_slots, number * count, count, loop.trainer.layout.put
        ).items():
            add(part, loop.item_slots, count, seconds, name)
    return rows


def _sampling(
    source: BatchSource, slots: int, start: int, count: int, put: Callable[[Batch], Batch]
) -> dict[str, float]:
    """Seconds of drawing, assembling and transferring some batches, with nothing beside it."""
    times = [time.perf_counter()]
    draws = source.draw(start, count)
    times.append(time.perf_counter())
    batches = [source.assemble(draw, slots) for draw in draws]
    times.append(time.perf_counter())
    [put(batch) for batch in batches]
    times.append(time.perf_counter())
    return dict(zip(("draw", "assemble", "transfer"), np.diff(times).tolist(), strict=True))


def settings_digest(config: RunConfig) -> str:
    """Twelve hexadecimal digits of all settings but the sampler."""
    text = json.dumps(
        {key: value for key, value in config.to_dict().items() if key != "sampler"}, sort_keys=True
    )
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def configurations(settings: Mapping[str, Any], samplers: Sequence[str]) -> dict[str, RunConfig]:
    """Complete settings by sampler, the baseline of the loss first; those that cannot serve the
    loss are left out.

    Raises:
        UsageError: none can, or a setting is impossible.
    """
    first = complete(dict(settings) | {"sampler": "ns"})
    if settings.get("share") == "local":
        samplers = [name for name in samplers if find_sampler(name).shares_items]
    order = sorted(dict.fromkeys(samplers), key=lambda name: name != baseline_sampler(first.loss))
    strata = str(settings.get("strata", RunConfig.strata))
    served = [name for name in order if first.family in find_sampler(name).families_with(strata)]
    if not served and order:
        complete(dict(settings) | {"sampler": order[0]})
    return {name: complete(dict(settings) | {"sampler": name}) for name in served}
