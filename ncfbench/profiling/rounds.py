"""A round of a profile: every part at every size, and every sampler's loop, measured once in turn.

A disturbance of the machine meets all that is measured in a round.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import jax
import numpy as np

from ncfbench.config import RunConfig
from ncfbench.data import Dataset
from ncfbench.distributed.bytes_sent import Sizes
from ncfbench.distributed.mesh import MeshLayout
from ncfbench.profiling.cost_model import Counts
from ncfbench.profiling.cost_rows import PRODUCT_SIZES, Row
from ncfbench.profiling.parts import Call, Parts, listed_batch, products, shared_batch
from ncfbench.sampling import Sampler
from ncfbench.sampling.base import BatchSource
from ncfbench.sampling.batch import Batch, rounded_up
from ncfbench.training.loop import TimedLoop

BLOCK_SECONDS = 0.06
"""A block of calls of a part takes about this long, one call at least."""
LOOP_SECONDS = 1.0
"""A block of training iterations takes about this long, ``LOOP_ITERATIONS`` at least."""
LOOP_ITERATIONS = 8
MOST_CALLS = 2000


@dataclass(frozen=True)
class TimedPart:
    """A part that is called over and over."""

    name: str
    size: int
    sampler: str | None
    """The sampler whose batch it works on; None for a part that all share."""
    call: Call
    calls: int
    """Calls that fill a block."""

    @classmethod
    def compile(cls, name: str, size: int, call: Call, sampler: str | None = None) -> TimedPart:
        """Compile a part, and choose how many calls fill a block."""
        jax.block_until_ready(call())
        begin = time.perf_counter()
        jax.block_until_ready(call())
        seconds = max(time.perf_counter() - begin, 1e-6)
        return cls(name, size, sampler, call, int(np.clip(BLOCK_SECONDS / seconds, 1, MOST_CALLS)))

    def block(self) -> float:
        """Return the seconds of a block of calls."""
        begin = time.perf_counter()
        for _ in range(self.calls):
            result = self.call()
        jax.block_until_ready(result)
        return time.perf_counter() - begin


def choose_iterations(loop: TimedLoop) -> int:
    """Compile a loop's step, and return how many iterations fill a block."""
    loop.full_block(2)
    loop.full_block(4)
    seconds = loop.samples[-1].seconds / 4
    loop.step_block(2)
    loop.take_samples()
    count = int(np.clip(LOOP_SECONDS / seconds, LOOP_ITERATIONS, MOST_CALLS))
    together = loop.trainer.per_dispatch
    return -(-count // (2 * together)) * 2 * together  # whole dispatches, also in half a block


def sizes_between(smallest: int, largest: int) -> list[int]:
    """Return doubling sizes from half the smallest to the largest."""
    sizes = [max(smallest // 2, 1)]
    while 1.4 * sizes[-1] < largest:
        sizes.append(min(2 * sizes[-1], largest))
    return sizes


def timed_parts(
    dataset: Dataset, config: RunConfig, parts: Parts, batches: Mapping[str, Batch]
) -> list[TimedPart]:
    """Compile the parts of a step: at doubling sizes, and on each sampler's own batch."""
    graph, rng = dataset.graph, np.random.default_rng(0)
    n_shards = config.devices if config.shares_locally else 1
    counts = {name: Counts.of(batch, n_shards) for name, batch in batches.items()}
    found = []

    def add(name: str, size: int, call: Call, sampler: str | None = None) -> None:
        found.append(TimedPart.compile(name, size, call, sampler))

    users, items = (
        [getattr(count, name) for count in counts.values()] for name in ("users", "items")
    )
    for size in sizes_between(min(users), max(users)):
        ids = graph.link_user[rng.integers(graph.n_links, size=size)]
        add("users", size, parts.user(ids))
    n_items = len(graph.items_in_use)
    for size in sizes_between(min(items), max(items)):
        # As many distinct items as there are, and then again.
        ids = graph.items_in_use[rng.permutation(max(size, n_items))[:size] % n_items]
        add("items", size, parts.item(ids))
    b, k = config.batch_size, config.negatives
    for rows in sizes_between(max(b // 4, 1), b):
        add("vectors", rows * (1 + k), parts.interaction(listed_batch(config, rows, rng)))
    shared = [count.items // n_shards for count in counts.values() if count.kind == "matrix"] or [b]
    for columns in sizes_between(min(shared), max(shared)):
        add("matrix", b * (1 + columns), parts.interaction(shared_batch(b, columns, rng)))
    for name, batch in batches.items():
        count = counts[name]
        add("users", count.users, parts.user(batch.users), name)
        add("items", count.items, parts.item(batch.items), name)
        # Shards that share within themselves have scores with their own items only.
        own = batch if n_shards == 1 else shared_batch(b, count.items // n_shards, rng)
        add(count.kind, count.interactions, parts.interaction(own), name)
    add("optimiser", 1, parts.optimiser())
    add("dispatch", 1, parts.dispatch(next(iter(batches.values()))))
    for size in PRODUCT_SIZES:
        matrix, pairs = products(config, size)
        add("matrix product", size, matrix)
        add("element-wise product", size, pairs)
    return found


def timed_collectives(
    loops: Mapping[str, TimedLoop], batches: Mapping[str, Batch], sizes: Mapping[str, Sizes | None]
) -> list[TimedPart]:
    """Compile what the devices send each other: for each sampler, and at sizes between them.

    Returns:
        Nothing for one device.
    """
    found: list[TimedPart] = []
    trainer, sent = next(iter(loops.values())).trainer, next(iter(sizes.values()))
    layout, config = trainer.layout, trainer.config
    if not isinstance(layout, MeshLayout) or sent is None:
        return found
    slots = {name: len(batch.items) for name, batch in batches.items()}
    between = sizes_between(min(slots.values()), max(slots.values()))
    for sampler, items in (*((None, size) for size in between), *slots.items()):
        whole = rounded_up(items, layout.size)
        size = sum(replace(sent, vectors=whole * config.dimension).sent(config.share).values())
        call = layout.collective(trainer.shapes.parameters, whole, config.dimension)
        found.append(TimedPart.compile("collectives", round(size), call, sampler))
    return found


def measure_round(
    number: int,
    parts: Sequence[TimedPart],
    loops: Mapping[str, TimedLoop],
    iterations: Mapping[str, int],
    samplers: Mapping[str, Sampler],
    stop: Callable[[], bool],
) -> list[Row]:
    """Return one sample of everything; those there are so far once ``stop()`` is true."""
    rows: list[Row] = []

    def add(part: str, size: int, calls: int, seconds: float, sampler: str | None = None) -> None:
        row: Row = {"round": number, "sampler": sampler, "part": part, "size": size}
        rows.append(row | {"calls": calls, "seconds": seconds})

    for each in parts:
        if stop():
            return rows
        add(each.name, each.size, each.calls, each.block(), each.sampler)
    for name, loop in loops.items():
        loop.full_block(iterations[name], stop=stop)
        if stop():
            return rows
        loop.step_block(max(iterations[name] // 2, 4))
        for sample in loop.take_samples():
            if sample.kind in ("full", "step"):
                add(sample.kind, loop.item_slots, sample.iterations, sample.seconds, name)
        count = max(2, min(32, iterations[name] // 4))
        layout = loop.trainer.layout
        source = layout.shard(samplers[name])
        seconds = sampling_seconds(source, loop.item_slots, number * count, count, layout.put)
        for part, value in seconds.items():
            add(part, loop.item_slots, count, value, name)
    return rows


def sampling_seconds(
    source: BatchSource, slots: int, start: int, count: int, put: Callable[[Batch], Batch]
) -> dict[str, float]:
    """Time drawing, assembling and transferring some batches, with nothing beside it."""
    times = [time.perf_counter()]
    draws = source.draw(start, count)
    times.append(time.perf_counter())
    batches = [source.assemble(draw, slots) for draw in draws]
    times.append(time.perf_counter())
    for batch in batches:
        put(batch)
    times.append(time.perf_counter())
    return dict(zip(("draw", "assemble", "transfer"), np.diff(times).tolist(), strict=True))
