"""A round of a profile: every step, every part and every sampler's loop, measured in turn.

A disturbance of the machine lasts for seconds. So blocks are short, a round goes over the steps
several times, and each time in another order: nothing always follows the same neighbour. Where
steps take seconds, so do their blocks, and a round goes over them fewer times.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as Spec

from ncfbench.distributed.collectives import AXIS, gather, reduce_scatter
from ncfbench.profiling.calibration import BATCHES, Points, StepTimer, labels
from ncfbench.profiling.constructed import BatchMaker
from ncfbench.profiling.cost_rows import PRODUCT_SIZES, RANDOM_ITEMS, Row
from ncfbench.profiling.parts import Call, Parts, products
from ncfbench.runs.schedule import STEP_BATCHES
from ncfbench.sampling import Sampler
from ncfbench.sampling.base import BatchSource
from ncfbench.sampling.batch import Batch, rounded_up
from ncfbench.training import pilot
from ncfbench.training.loop import TimedLoop
from ncfbench.training.state import Parameters
from ncfbench.training.step import Trainer

BLOCK_SECONDS = 0.05
"""A block takes about this long, one call at least."""
LOOP_SECONDS = 0.25
"""A block of training iterations takes about this long, ``LOOP_ITERATIONS`` at least; a block of
steps on batches that are ready has half as many.
"""
LOOP_ITERATIONS = 2
MOST_CALLS = 2000
MOST_PASSES = 4
"""Passes of a round over steps and loops; all else is in one of them."""
ROUND_SECONDS = 60.0
"""A round has fewer passes, one at least, where more would take longer than this."""

Block: TypeAlias = Callable[[int, Callable[[], bool]], Mapping[str, tuple[int, float]]]
"""Takes the round's number, and a function that says when to stop early. Returns calls and seconds,
by part.
"""


@dataclass(frozen=True)
class Timed:
    """Something that is measured in blocks.

    Args:
        sampler: the sampler whose batches it works on; None for what all share.
        seconds: of a block, about.
        in_every_pass: else it is in one pass of each round.
    """

    size: int
    sampler: str | None
    block: Block
    seconds: float
    in_every_pass: bool = False


def plan_round(timed: Sequence[Timed]) -> tuple[int, float]:
    """Return how many passes a round has, and the seconds that it takes, about."""
    every, once = (
        sum(each.seconds for each in timed if each.in_every_pass == often)
        for often in (True, False)
    )
    fitting = (ROUND_SECONDS - once) / max(every, 1e-9)
    passes = int(np.clip(fitting, 1, MOST_PASSES))
    return passes, passes * every + once


def measure_round(
    number: int, timed: Sequence[Timed], passes: int, stop: Callable[[], bool]
) -> list[Row]:
    """Return one row for each block; nothing once ``stop()`` is true."""
    rng = np.random.default_rng(number)
    own_pass = rng.integers(passes, size=len(timed))
    rows: list[Row] = []
    for turn in range(passes):
        for index in rng.permutation(len(timed)):
            each = timed[index]
            if not (each.in_every_pass or own_pass[index] == turn):
                continue
            for part, (calls, seconds) in each.block(number, stop).items():
                row: Row = {"round": number, "sampler": each.sampler, "part": part}
                rows.append(row | {"size": each.size, "calls": calls, "seconds": seconds})
            if stop():
                return []
    return rows


def timed_part(part: str, size: int, call: Call, sampler: str | None = None) -> Timed:
    """Compile a function that is called over and over; choose how many calls fill a block."""

    def block(count: int) -> float:
        begin = time.perf_counter()
        for _ in range(count):
            result = call()
        jax.block_until_ready(result)
        return time.perf_counter() - begin

    block(1)
    once = block(1)
    calls = _calls(once)
    return Timed(size, sampler, lambda number, stop: {part: (calls, block(calls))}, calls * once)


def timed_step(
    timer: StepTimer,
    trainer: Trainer,
    batches: Sequence[Batch],
    part: str,
    size: int,
    sampler: str | None = None,
) -> Timed:
    """Compile a trainer's step for batches on the devices; choose how many fill a block."""
    timer.block(trainer, batches, 1)
    once = timer.block(trainer, batches, 1)
    dispatches = _calls(once)
    iterations = dispatches * trainer.per_dispatch

    def block(number: int, stop: Callable[[], bool]) -> Mapping[str, tuple[int, float]]:
        return {part: (iterations, timer.block(trainer, batches, dispatches))}

    return Timed(size, sampler, block, dispatches * once, in_every_pass=True)


def timed_steps(
    points: Points, maker: BatchMaker, timer: StepTimer, trainer: Trainer
) -> list[Timed]:
    """Compile the step for constructed batches of each of the calibration's counts."""
    layout = trainer.layout
    found = []
    for counts, (part, size) in labels(points).items():
        batches = layout.keep([layout.put(maker.batch(counts)) for _ in range(BATCHES)])
        found.append(timed_step(timer, trainer, batches, part, size))
    return found


def timed_parts(parts: Parts, points: Points, maker: BatchMaker) -> list[Timed]:
    """Compile the parts of a step, each alone, at the calibration's counts.

    Args:
        maker: of batches for one device.
    """
    found = [
        timed_part("optimiser", 1, parts.optimiser()),
        timed_part("dispatch", 1, parts.dispatch(maker.batch(points["items"][0]))),
    ]
    for each in points["users"]:
        found.append(timed_part("users", each.users, parts.user(maker.users(each.users))))
    for each in points["items"]:
        found.append(timed_part("items", each.items, parts.item(maker.items(each.items))))
    for each in (*points["vectors"], *points["matrix"], *points.get("all_users", ())):
        # Shards that share within themselves have scores with their own items only.
        is_matrix = each.kind == "matrix"
        columns = each.interactions // maker.rows - 1 if is_matrix else each.items
        call = parts.interaction(maker.batch(replace(each, items=columns)))
        found.append(timed_part(each.kind, each.interactions, call))
    for size in PRODUCT_SIZES:
        matrix, pairs = products(parts.trainer.config, size)
        found.append(timed_part("matrix product", size, matrix))
        found.append(timed_part("element-wise product", size, pairs))
    return found


def timed_collectives(sampler: str, trainer: Trainer, batch: Batch) -> Timed:
    """Compile what several devices send each other in a step of a sampler."""
    slots = rounded_up(len(batch.items), trainer.layout.size)
    shapes, share = trainer.shapes.parameters, trainer.config.share
    sent = trainer.layout.sent_bytes(shapes, 0, slots, 0, share)
    size = round(sum(sent.values()))
    return timed_part("collectives", size, _collective(trainer, slots), sampler)


def _collective(trainer: Trainer, item_slots: int) -> Call:
    """Return a function that sends what a step without ``shard_tables`` sends, and computes nothing
    else.
    """
    layout, config = trainer.layout, trainer.config

    def on_device(vectors: jax.Array, gradient: Parameters) -> tuple[jax.Array, Parameters]:
        if not config.shares_locally:
            vectors = reduce_scatter(gather(vectors))
        return vectors, jax.tree.map(lambda leaf: jax.lax.psum(leaf, AXIS), gradient)

    specs = Spec(AXIS), Spec()
    mapped = jax.shard_map(
        on_device, mesh=layout.mesh, in_specs=specs, out_specs=specs, check_vma=False
    )
    compiled = jax.jit(mapped, donate_argnums=(0, 1))
    vectors = jnp.zeros((item_slots, config.dimension), jnp.float32)
    gradient = jax.tree.map(
        lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), trainer.shapes.parameters
    )
    sharded = jax.device_put(vectors, NamedSharding(layout.mesh, Spec(AXIS)))
    held = sharded, layout.replicate(gradient)

    def call() -> Any:
        nonlocal held
        held = compiled(*held)
        # On a CPU devices wait for each other in threads of one pool, which must not be full of
        # later calls.
        return jax.block_until_ready(held) if layout.is_simulated else held

    return call


def timed_sampler(
    name: str, loop: TimedLoop, sampler: Sampler, maker: BatchMaker, timer: StepTimer
) -> list[Timed]:
    """Compile a sampler's loop.

    Args:
        sampler: not the loop's own, whose thread may be at work.

    Returns:
        The loop's two accounts, the sampler alone, and the step with random items in the slots of
        the sampler's batches.
    """
    layout = loop.trainer.layout
    iterations, seconds = choose_iterations(loop)
    source, count = layout.shard(sampler), min(32, iterations)
    slots = loop.item_slots

    def full(number: int, stop: Callable[[], bool]) -> Mapping[str, tuple[int, float]]:
        loop.full_block(iterations, stop=stop)
        return _accounts(loop)

    def step(number: int, stop: Callable[[], bool]) -> Mapping[str, tuple[int, float]]:
        loop.step_block(iterations // 2)
        return _accounts(loop)

    def alone(number: int, stop: Callable[[], bool]) -> Mapping[str, tuple[int, float]]:
        seconds = sampling_seconds(source, slots, number * count, count, layout.put)
        return {part: (count, value) for part, value in seconds.items()}

    own = islice(source.batches(0, slots), STEP_BATCHES)
    placed = [layout.put(maker.with_random_items(batch)) for batch in own]
    # The loop has compiled its step for so many slots; a later batch may need more.
    alike = layout.keep([batch for batch in placed if len(batch.items) == slots])
    return [
        Timed(slots, name, full, iterations * seconds, in_every_pass=True),
        Timed(slots, name, step, iterations // 2 * seconds, in_every_pass=True),
        Timed(slots, name, alone, 0),
        timed_step(timer, loop.trainer, alike[:BATCHES], RANDOM_ITEMS, slots, name),
    ]


def choose_iterations(loop: TimedLoop) -> tuple[int, float]:
    """Compile a loop's step. Return how many iterations fill a block, and the seconds of one."""
    seconds = pilot.time_iteration(loop)
    if seconds < pilot.LONG_SECONDS:
        loop.step_block(2)
    loop.take_samples()
    count = int(np.clip(LOOP_SECONDS / seconds, LOOP_ITERATIONS, MOST_CALLS))
    # Whole dispatches, also in half a block.
    return rounded_up(count, 2 * loop.trainer.per_dispatch), seconds


def sampling_seconds(
    source: BatchSource, slots: int, start: int, count: int, put: Callable[[Batch], Batch]
) -> dict[str, float]:
    """Time drawing, assembling and transferring some batches, with nothing beside it."""
    times = [time.perf_counter()]
    draws = list(source.draws(start, start + count))
    times.append(time.perf_counter())
    batches = [source.assemble(draw, slots) for draw in draws]
    times.append(time.perf_counter())
    for batch in batches:
        put(batch)
    times.append(time.perf_counter())
    return dict(zip(("draw", "assemble", "transfer"), np.diff(times).tolist(), strict=True))


def _accounts(loop: TimedLoop) -> dict[str, tuple[int, float]]:
    samples = [each for each in loop.take_samples() if each.kind in ("full", "step")]
    return {each.kind: (each.iterations, each.seconds) for each in samples}


def _calls(seconds: float) -> int:
    """Return how many calls of so many seconds fill a block."""
    return int(np.clip(BLOCK_SECONDS / max(seconds, 1e-6), 1, MOST_CALLS))
