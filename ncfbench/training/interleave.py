"""Timed loops side by side: made from settings, and measured in turn."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager

from ncfbench.config import RunConfig
from ncfbench.data import Dataset
from ncfbench.models.towers import DeviceContent
from ncfbench.rng import Streams
from ncfbench.runs.schedule import STEP_BATCHES
from ncfbench.sampling import make_sampler, plan_capacity
from ncfbench.training.loop import TimedLoop
from ncfbench.training.step import Trainer


@contextmanager
def timed_loops(
    dataset: Dataset,
    content: DeviceContent,
    configs: Mapping[str, RunConfig],
    *,
    on_one_device: bool = False,
) -> Iterator[dict[str, TimedLoop]]:
    """Open a loop for each of some settings, from the initial parameters and the first batch.

    Args:
        configs: settings by the names of their loops.
        on_one_device: train on one device, with the batches that the settings give.
    """
    with ExitStack() as stack:
        loops = {}
        for name, config in configs.items():
            here = config.on_one_device() if on_one_device else config
            trainer, state = Trainer.create(here, dataset)
            sampler = make_sampler(dataset.graph, config, Streams(config.seed))
            loop = TimedLoop(trainer, state, content, sampler, plan_capacity(dataset.graph, config))
            loops[name] = stack.enter_context(loop)
        yield loops


def interleave(loops: Sequence[TimedLoop], rounds: int, block: Callable[[TimedLoop], int]) -> None:
    """Measure loops in turn, round after round, so that a disturbance meets all of them.

    Each loop warms up first.

    Args:
        block: returns the iterations of a loop's block.
    """
    for loop in loops:
        loop.warm_up(min(block(loop), STEP_BATCHES))
    for _ in range(rounds):
        for loop in loops:
            loop.full_block(block(loop))
            loop.step_block()
