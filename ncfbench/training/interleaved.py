"""Runs, and timed loops without records, that are open at the same time and train in turn."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import jax

from ncfbench.config import Locations, RunConfig
from ncfbench.data import Dataset
from ncfbench.errors import NcfbenchError
from ncfbench.models.towers import DeviceContent
from ncfbench.rng import Streams
from ncfbench.runs.progress import Progress
from ncfbench.runs.recorder import Recorder
from ncfbench.runs.schedule import STEP_BATCHES
from ncfbench.sampling import make_sampler, plan_capacity
from ncfbench.timing.ledger import Ledger
from ncfbench.training.loop import TimedLoop
from ncfbench.training.plan import RunPlan
from ncfbench.training.run import open_recorder
from ncfbench.training.session import Session
from ncfbench.training.step import Trainer

FAILURES = (NcfbenchError, MemoryError, OSError, jax.errors.JaxRuntimeError)
"""Failures of one run that leave the others whole: out of memory, a full disk, a held folder."""


@dataclass
class OpenRun:
    """A run that trains in turn with others. Its own ledger charges its turns only."""

    config: RunConfig
    ledger: Ledger
    stack: ExitStack
    session: Session
    recorder: Recorder

    @classmethod
    def open(
        cls,
        config: RunConfig,
        locations: Locations,
        dataset: Dataset,
        *,
        folder: Path | None,
        progress: Progress,
        interrupted: Callable[[], bool],
        content: DeviceContent,
        turns: str,
    ) -> OpenRun:
        """Open a run, in the folder that it has or in a new one.

        Args:
            turns: see :class:`ncfbench.training.session.Session`, as for the other arguments.
        """
        ledger = Ledger()
        with ledger.turn(), ExitStack() as stack:
            plan = RunPlan.of(config, locations, dataset=dataset)
            recorder = stack.enter_context(open_recorder(plan, ledger, progress, folder=folder))
            with ledger.line("initialising"):
                session = Session(plan, recorder, interrupted, content=content, turns=turns)
            stack.enter_context(session)
            return cls(config, ledger, stack.pop_all(), session, recorder)

    @property
    def train_seconds(self) -> float:
        """Seconds of all iterations that changed the parameters."""
        return self.recorder.train_seconds

    def advance_epoch(self) -> bool:
        """Train one epoch, and finish the run after the last."""
        return self._advance(self.session.advance_epoch)

    def advance(self) -> bool:
        """Train to the next probe, and finish the run after the last."""
        return self._advance(self.session.advance)

    def evaluate(self) -> None:
        """Evaluate at the last probe, if no epoch ended there."""
        with self.ledger.turn():
            self.session.evaluate()

    def save(self) -> None:
        """Save a checkpoint."""
        with self.ledger.turn():
            self.session.save()

    def close(self) -> None:
        """Release the run's folder and memory."""
        with self.ledger.turn():
            self.stack.close()

    def _advance(self, train: Callable[[], None]) -> bool:
        with self.ledger.turn():
            train()
            if self.session.is_done:
                self.session.finish()
                self.stack.close()
        return True


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message; XLA's messages have pages."""
    text = next(iter(str(error).splitlines()), "")[:300]
    return text if isinstance(error, NcfbenchError) else f"{type(error).__name__}: {text}"


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
