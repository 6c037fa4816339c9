"""Pilots: a few iterations of some settings, to know what a run of them takes."""

from __future__ import annotations

import time
from dataclasses import dataclass

import jax

from ncfbench.config import RunConfig
from ncfbench.data import Dataset
from ncfbench.models.towers import DeviceContent
from ncfbench.training.evaluation import EvaluationCost, measure_evaluation_cost
from ncfbench.training.loop import TimedLoop, timed_loops

BLOCK_SECONDS = 0.5
"""A pilot's block takes about this long, within the bounds of ``BLOCK_ITERATIONS``."""
BLOCK_ITERATIONS = (3, 100)
LONG_SECONDS = 5.0
"""An iteration that takes longer is timed once: a user waits for it."""


@dataclass(frozen=True)
class Pilot:
    """Seconds and bytes that a run of some settings takes.

    ``start_seconds`` are those of opening the run, compilation and first iteration among them.
    ``state_bytes`` are held while it is open, ``step_bytes`` while it trains; both are on the
    device, and exclude the content, which runs share. ``evaluation`` is None unless asked for.
    """

    start_seconds: float
    iteration_seconds: float
    state_bytes: int
    step_bytes: int
    evaluation: EvaluationCost | None = None


def time_iteration(loop: TimedLoop) -> float:
    """Return the seconds of an iteration by a block of a loop, whose step is compiled before."""
    if loop.iteration == loop.start:
        loop.full_block(1)
    first = loop.samples[-1].seconds
    if first < LONG_SECONDS:
        fewest, most = BLOCK_ITERATIONS
        loop.full_block(min(max(int(BLOCK_SECONDS / first), fewest), most))
    sample = loop.samples[-1]
    return sample.seconds / sample.iterations


def run_pilot(
    config: RunConfig,
    dataset: Dataset,
    content: DeviceContent,
    *,
    iteration_seconds: float | None = None,
    evaluates: bool = False,
) -> Pilot:
    """Train some settings for a few iterations, with parameters that are thrown away.

    Args:
        iteration_seconds: where they are known, the step is only compiled.
        evaluates: measure a probe and an evaluation too.
    """
    begin = time.perf_counter()
    with timed_loops(dataset, content, {"": config}) as loops:
        loop = loops[""]
        state_bytes = sum(leaf.nbytes for leaf in jax.tree.leaves(loop.state))
        loop.full_block(1)
        start_seconds = time.perf_counter() - begin
        if iteration_seconds is None:
            iteration_seconds = time_iteration(loop)
        step_bytes = loop.trainer.step_bytes(loop.state, loop.recent_batches()[-1], loop.content)
        evaluation = None
        if evaluates:
            parameters = loop.trainer.layout.to_one_device(loop.state.parameters)
            evaluation = measure_evaluation_cost(loop.trainer, dataset, content, parameters)
    return Pilot(start_seconds, iteration_seconds, state_bytes, step_bytes, evaluation)
