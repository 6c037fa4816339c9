"""Train the cells of a sweep: in turn, or each in a process of its own.

The cells of a group take turns, one epoch each, so that a disturbance of the machine meets all of
them. All cells of a group are open at once, with their states on the device. A cell that fails or
diverges leaves its group, and the others continue.
"""

from __future__ import annotations

import gc
import shutil
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

import jax

from ncfbench.config import Locations, RunConfig
from ncfbench.data import Dataset
from ncfbench.distributed import signals
from ncfbench.distributed.process_group import AgreedInterrupt
from ncfbench.errors import DivergedError, NcfbenchError
from ncfbench.models.towers import DeviceContent
from ncfbench.storage import locks
from ncfbench.sweeps import jobs
from ncfbench.sweeps.grid import CellState, group_cells, read_status
from ncfbench.sweeps.progress import SweepProgress
from ncfbench.training.run import FAILURES, first_line
from ncfbench.training.session import Session

STOPPING = (
    "Stopping after this iteration, then saving. Ctrl-C again stops at once, back to the last"
    " checkpoints."
)
POLL_SECONDS = 0.2
"""Between two looks at a process that trains a cell."""


Done = TypeVar("Done")


@dataclass
class Outcome:
    """The result of training a sweep: messages by cell. All other cells are done."""

    diverged: dict[RunConfig, str] = field(default_factory=dict)
    failed: dict[RunConfig, str] = field(default_factory=dict)
    exit_code: int = 0
    """0; 5 if cells diverged and none failed; else the exit code of the first failure."""

    def fail(self, config: RunConfig, message: str, exit_code: int) -> None:
        """Keep a failure."""
        self.failed[config] = message
        if self.exit_code in (0, DivergedError.exit_code):
            self.exit_code = exit_code

    def diverge(self, config: RunConfig, message: str) -> None:
        """Keep a divergence."""
        self.diverged[config] = message
        self.exit_code = self.exit_code or DivergedError.exit_code


def run(
    cells: Sequence[RunConfig],
    datasets: Mapping[str, Dataset],
    locations: Locations,
    progress: SweepProgress | None = None,
) -> Outcome:
    """Train all cells that are not over, in turn, and resume those that were begun.

    Args:
        datasets: the data sets of all cells, by name.

    Raises:
        DataError: the folder of the runs cannot be written.
        KeyboardInterrupt: interrupted; the open cells were saved, and the same call resumes.
        UsageError: another process runs a sweep in this folder.
    """
    progress = progress or SweepProgress()
    with (
        _begin(cells, datasets, locations, progress) as (left, outcome),
        signals.deferred_signals(progress.say, STOPPING) as interrupted,
    ):
        for group in group_cells(cells):
            states = {config: left[config] for config in group.cells if config in left}
            if states:
                dataset = datasets[group.cells[0].dataset]
                _Turns(dataset, locations, progress, interrupted, outcome).train(states)
    return outcome


def run_in_processes(
    cells: Sequence[RunConfig],
    datasets: Mapping[str, Dataset],
    locations: Locations,
    progress: SweepProgress | None = None,
) -> Outcome:
    """Train all cells that are not over like :func:`run`, each in a process, one after the other.

    Raises:
        KeyboardInterrupt: interrupted; the cell at work was saved, and the same call resumes.
    """
    jobs.require_submitit("local")
    progress = progress or SweepProgress()
    with (
        _begin(cells, datasets, locations, progress) as (left, outcome),
        signals.deferred_signals(progress.say, STOPPING) as interrupted,
    ):
        for config in left:
            progress.start(config)
            job = jobs.start_process(config, locations)
            is_interrupted = False
            try:
                while not job.done():
                    if interrupted() and not is_interrupted:
                        is_interrupted = jobs.interrupt(job)
                    time.sleep(POLL_SECONDS)
            except KeyboardInterrupt:  # the second Ctrl-C
                jobs.interrupt(job)
                raise
            if interrupted():
                raise KeyboardInterrupt
            message, exit_code = jobs.read_failure(job.paths) or ("", 0)
            if exit_code in (0, DivergedError.exit_code):
                shutil.rmtree(job.paths.folder)
            if exit_code == DivergedError.exit_code:
                outcome.diverge(config, message)
                progress.finish(config, "diverged", message)
            elif exit_code:
                outcome.fail(config, message, exit_code)
                progress.finish(config, "failed", message)
            else:
                progress.finish(config, "done")
    return outcome


@contextmanager
def _begin(
    cells: Sequence[RunConfig],
    datasets: Mapping[str, Dataset],
    locations: Locations,
    progress: SweepProgress,
) -> Iterator[tuple[dict[RunConfig, CellState], Outcome]]:
    """Hold the folder of the runs, and yield the cells to train and an outcome to complete."""
    outcome = Outcome()
    with locks.held(locations.runs_dir, "running a sweep in"):
        fingerprints = {name: dataset.fingerprint for name, dataset in datasets.items()}
        found = read_status(locations.runs_dir, cells, fingerprints)
        for problem in found.problems:
            progress.say(problem)
        for config, state in found.states.items():
            if state.status == "diverged" and state.summary is not None:
                outcome.diverge(config, str(state.summary["message"]))
        progress.begin(found.states)
        try:
            yield {c: state for c, state in found.states.items() if not state.is_over}, outcome
        finally:
            progress.end()


class _Turns:
    """Trains the cells of one group in turn."""

    def __init__(
        self,
        dataset: Dataset,
        locations: Locations,
        progress: SweepProgress,
        interrupted: Callable[[], bool],
        outcome: Outcome,
    ) -> None:
        self.dataset, self.locations, self.progress = dataset, locations, progress
        self.interrupted, self.outcome = interrupted, outcome
        self.turns = uuid.uuid4().hex[:12]
        self.cells: list[Session] = []
        self.is_at_work = False
        """True while something is done that a second Ctrl-C may cut."""

    def train(self, states: Mapping[RunConfig, CellState]) -> None:
        """Train cells, which are in these states, to their ends."""
        content = jax.block_until_ready(DeviceContent.of(self.dataset))
        try:
            for config, state in states.items():
                self._stop_if_interrupted()
                opened = self._attempt(config, partial(self._open, config, state, content))
                self.cells += [] if opened is None else [opened]
            furthest = max((cell.epoch for cell in self.cells), default=0)
            for cell in self.cells:
                cell.catch_up_until(furthest)
            while self.cells:
                # After an interruption, cells that are behind catch up first.
                epoch = min(cell.epoch for cell in self.cells)
                for cell in [cell for cell in self.cells if cell.epoch == epoch]:
                    self._stop_if_interrupted()
                    if self._attempt(cell.plan.config, cell.advance_epoch) is None:
                        self.cells.remove(cell)
                        self._close(cell)
                    elif cell.is_done:
                        self.cells.remove(cell)
                        self.progress.finish(cell.plan.config, "done")
        except KeyboardInterrupt as interrupt:
            # A second Ctrl-C cut an iteration of the cell at work: then nothing more is saved.
            if not self.is_at_work or isinstance(interrupt, AgreedInterrupt):
                self._save_all()
            raise
        finally:
            for cell in self.cells:
                self._close(cell)
            self.cells.clear()
            gc.collect()  # the next group needs the memory

    def _open(self, config: RunConfig, state: CellState, content: DeviceContent) -> Session:
        return Session.open(
            config,
            self.locations,
            self.dataset,
            self.progress.follow(config),
            self.interrupted,
            folder=state.folder,
            content=content,
            turns=self.turns,
        )

    def _stop_if_interrupted(self) -> None:
        if self.interrupted():
            raise KeyboardInterrupt

    def _attempt(self, config: RunConfig, action: Callable[[], Done]) -> Done | None:
        """Do something for a cell, and return the result; if it fails, keep the failure."""
        self.is_at_work = True
        self.progress.start(config)
        done: Done | None = None
        try:
            done = action()
        except DivergedError as error:
            self.outcome.diverge(config, str(error))
            self.progress.finish(config, "diverged", str(error))
        except FAILURES as error:
            self.outcome.fail(config, first_line(error), _exit_code(error))
            self.progress.finish(config, "failed", first_line(error))
        self.is_at_work = False
        return done

    def _close(self, cell: Session) -> None:
        try:
            cell.close()
        except FAILURES as error:
            self.progress.say(f"A run could not be closed: {first_line(error)}")

    def _save_all(self) -> None:
        for cell in self.cells:
            if not cell.is_saved:
                try:
                    cell.save()
                except FAILURES as error:
                    self.outcome.fail(cell.plan.config, first_line(error), _exit_code(error))
                    self.progress.finish(cell.plan.config, "failed", first_line(error))


def _exit_code(error: BaseException) -> int:
    return error.exit_code if isinstance(error, NcfbenchError) else NcfbenchError.exit_code
