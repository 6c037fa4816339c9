"""A round of a profile: every step and every sampler's loop, measured in turn.

A disturbance of the machine lasts for seconds. So blocks are short, a round goes over the steps
several times, and each time in another order: nothing always follows the same neighbour. Where
steps take seconds, so do their blocks, and a round goes over them fewer times.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count, cycle
from typing import Any, TypeAlias

import jax
import numpy as np

from ncfbench.models.towers import DeviceContent
from ncfbench.profiling.batches import BatchMaker
from ncfbench.profiling.costs import SAMPLING, Points, Row, labels
from ncfbench.runs.progress import Progress
from ncfbench.sampling import Sampler
from ncfbench.sampling.batch import Batch, rounded_up
from ncfbench.timing.clock import format_duration
from ncfbench.training.loop import TimedLoop
from ncfbench.training.state import TrainState
from ncfbench.training.step import Trainer

BLOCK_SECONDS = 0.05
"""A block takes about this long, one call at least."""
LOOP_SECONDS = 0.25
"""A block of training iterations takes about this long, ``LOOP_ITERATIONS`` at least; a block of
steps on batches that are ready has half as many.
"""
LOOP_ITERATIONS = 2
TRIED_SECONDS, TRIED_ITERATIONS = 0.5, (3, 100)
"""A loop is tried for so long, within bounds of its iterations, to know how many fill a block."""
LONG_SECONDS = 5.0
"""An iteration that takes longer is timed once: a user waits for it."""
MOST_CALLS = 2000
MOST_PASSES = 4
"""Passes of a round over all programs."""
ROUND_SECONDS = 60.0
"""A round has fewer passes, one at least, where more would take longer than this."""
BATCHES = 4
"""Batches of a size, which take turns."""
WARM_UP = 4
"""A block of this many steps begins with one untimed step, as other programs ran before it. It
would cost a shorter block too much.
"""

Call: TypeAlias = Callable[[], Any]
"""Runs a program once; returns an array, or a tree of them, to wait for."""
Block: TypeAlias = Callable[[], Mapping[str, tuple[int, float]]]
"""Returns calls and seconds, by part."""


@dataclass(frozen=True)
class Timed:
    """Something that is measured in blocks.

    Args:
        sampler: the sampler whose batches it works on; None for what all share.
        seconds: of a block, about.
    """

    size: int
    sampler: str | None
    block: Block
    seconds: float


@dataclass
class Steps:
    """Training steps of a trainer on given batches.

    One state goes from call to call, as in training: a step takes over the state's memory.

    Args:
        content: the texts.
    """

    trainer: Trainer
    state: TrainState
    content: DeviceContent

    def call(self, batches: Sequence[Batch]) -> Call:
        """Return the step on batches, which take turns."""
        source = cycle(batches)

        def call() -> TrainState:
            self.state, _ = self.trainer.step(self.state, next(source), self.content)
            return self.state

        return call


def plan_round(programs: Sequence[Timed]) -> tuple[int, float]:
    """Return how many passes a round has, and the seconds that it takes, about."""
    seconds = sum(program.seconds for program in programs)
    passes = int(np.clip(ROUND_SECONDS / max(seconds, 1e-9), 1, MOST_PASSES))
    return passes, passes * seconds


def measure_rounds(programs: Sequence[Timed], n_rounds: int, progress: Progress) -> list[Row]:
    """Return the rows of some rounds."""
    passes, seconds = plan_round(programs)
    progress.say(f"{n_rounds} rounds of about {format_duration(seconds)} each.")
    samples: list[Row] = []
    for number in range(n_rounds):
        begin = time.perf_counter()
        samples += measure_round(number, programs, passes)
        progress.say(f"Round {number + 1} of {n_rounds}: {time.perf_counter() - begin:.1f} s")
    return samples


def measure_round(number: int, programs: Sequence[Timed], passes: int) -> list[Row]:
    """Return one row for each block."""
    rng = np.random.default_rng(number)
    rows: list[Row] = []
    for _ in range(passes):
        for index in rng.permutation(len(programs)):
            program = programs[index]
            for part, (calls, seconds) in program.block().items():
                row: Row = {"round": number, "sampler": program.sampler, "part": part}
                rows.append(row | {"size": program.size, "calls": calls, "seconds": seconds})
    return rows


def timed(part: str, size: int, call: Call) -> Timed:
    """Compile a step that is called over and over; choose how many calls fill a block."""

    def block(calls: int) -> float:
        if calls >= WARM_UP:
            jax.block_until_ready(call())
        begin = time.perf_counter()
        for _ in range(calls):
            result = call()
        jax.block_until_ready(result)
        return time.perf_counter() - begin

    block(1)
    once = block(1)
    calls = int(np.clip(BLOCK_SECONDS / max(once, 1e-6), 1, MOST_CALLS))

    return Timed(size, None, lambda: {part: (calls, block(calls))}, calls * once)


def timed_steps(points: Points, maker: BatchMaker, steps: Steps) -> list[Timed]:
    """Compile the step for constructed batches of each of the calibration's counts."""
    layout, programs = steps.trainer.layout, []
    for counts, (part, size) in labels(points).items():
        batches = layout.keep([layout.put(maker.batch(counts)) for _ in range(BATCHES)])
        programs.append(timed(part, size, steps.call(batches)))
    return programs


def timed_sampler(name: str, loop: TimedLoop, sampler: Sampler) -> list[Timed]:
    """Compile a sampler's loop. Return the loop's two accounts, and the sampler alone.

    Args:
        sampler: not the loop's own, whose thread may be at work.
    """
    iterations, seconds = choose_iterations(loop)
    slots, n_alone = loop.item_slots, min(32, iterations)
    starts = count(0, n_alone)

    def full() -> Mapping[str, tuple[int, float]]:
        loop.full_block(iterations)
        return _accounts(loop)

    def step() -> Mapping[str, tuple[int, float]]:
        loop.step_block(iterations // 2)
        return _accounts(loop)

    def alone() -> Mapping[str, tuple[int, float]]:
        seconds = sampling_seconds(sampler, slots, next(starts), n_alone, loop.trainer.layout.put)
        return {part: (n_alone, value) for part, value in seconds.items()}

    return [
        Timed(slots, name, full, iterations * seconds),
        Timed(slots, name, step, iterations // 2 * seconds),
        Timed(slots, name, alone, n_alone * seconds),
    ]


def choose_iterations(loop: TimedLoop) -> tuple[int, float]:
    """Compile a loop's step. Return how many iterations fill a block, and the seconds of one."""
    loop.full_block(1)
    seconds = loop.samples[-1].seconds
    if seconds < LONG_SECONDS:
        fewest, most = TRIED_ITERATIONS
        loop.full_block(min(max(int(TRIED_SECONDS / seconds), fewest), most))
        seconds = loop.samples[-1].seconds / loop.samples[-1].iterations
        loop.step_block(2)
    loop.take_samples()
    iterations = int(np.clip(LOOP_SECONDS / seconds, LOOP_ITERATIONS, MOST_CALLS))
    return rounded_up(iterations, 2), seconds


def sampling_seconds(
    sampler: Sampler, slots: int, start: int, n: int, put: Callable[[Batch], Batch]
) -> dict[str, float]:
    """Time drawing, assembling and transferring n batches alone."""
    times = [time.perf_counter()]
    draws = list(sampler.draws(start, start + n))
    times.append(time.perf_counter())
    batches = [sampler.assemble(draw, slots) for draw in draws]
    times.append(time.perf_counter())
    for batch in batches:
        put(batch)
    times.append(time.perf_counter())
    return dict(zip(SAMPLING, np.diff(times).tolist(), strict=True))


def _accounts(loop: TimedLoop) -> dict[str, tuple[int, float]]:
    samples = [sample for sample in loop.take_samples() if sample.kind in ("full", "step")]
    return {sample.kind: (sample.iterations, sample.seconds) for sample in samples}
