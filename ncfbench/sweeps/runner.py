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
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial

import jax

from ncfbench.config import Locations, RunConfig
from ncfbench.data import Dataset
from ncfbench.distributed import signals
from ncfbench.errors import DivergedError, NcfbenchError
from ncfbench.models.towers import Content
from ncfbench.rng import Streams
from ncfbench.runs import folder as runs
from ncfbench.sampling import make_sampler
from ncfbench.storage import locks
from ncfbench.sweeps import launcher
from ncfbench.sweeps.grid import CellState, group_cells, read_status
from ncfbench.sweeps.progress import SweepProgress
from ncfbench.timing.ledger import Ledger
from ncfbench.training import run as training
from ncfbench.training.session import OpenRun

STOPPING = (
    "Stopping after this iteration, then saving all cells. Ctrl-C again stops at once, back to"
    " their last checkpoints."
)
FAILURES = (NcfbenchError, MemoryError, OSError, jax.errors.JaxRuntimeError)
"""Failures of one cell that leave the others whole: out of memory, a full disk, a held folder."""
POLL_SECONDS = 0.2
"""Between two looks at a process that trains a cell."""


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
        KeyboardInterrupt: interrupted; the same call resumes from the last checkpoint.
    """
    launcher.require_submitit("local")
    progress = progress or SweepProgress()
    with _begin(cells, datasets, locations, progress) as (left, outcome):
        for config in left:
            progress.start(config)
            job = launcher.start_process(config, locations)
            try:
                while not job.done():
                    time.sleep(POLL_SECONDS)
            except KeyboardInterrupt:
                job.cancel()
                job.wait()
                raise
            message, exit_code = launcher.read_failure(job.paths) or ("", 0)
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


class _Cell:
    """An open cell. Its own ledger charges what happens in its turns only."""

    def __init__(self, config: RunConfig) -> None:
        self.config = config
        self.ledger = Ledger()
        self.stack = ExitStack()
        self.run: OpenRun

    @property
    def is_saved(self) -> bool:
        """True if it is open and a checkpoint holds everything that was trained."""
        return hasattr(self, "run") and self.run.is_saved

    def advance(self) -> None:
        """Train one epoch, and finish the run after the last."""
        with self.ledger.turn():
            self.run.advance_epoch()
            if self.run.done:
                self.run.finish()
                self.stack.close()

    def save(self) -> None:
        """Save a checkpoint."""
        with self.ledger.turn():
            self.run.save()

    def close(self) -> None:
        """Release the run's folder and memory."""
        with self.ledger.turn():
            self.stack.close()


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
        self.session = uuid.uuid4().hex[:12]
        self.cells: list[_Cell] = []
        self.at_work: _Cell | None = None

    def train(self, states: Mapping[RunConfig, CellState]) -> None:
        """Train cells, which are in these states, to their ends."""
        content = jax.block_until_ready(Content.of(self.dataset))
        try:
            for config, state in states.items():
                self._stop_if_interrupted()
                cell = _Cell(config)
                self.cells.append(cell)
                self._attempt(cell, partial(self._open, cell, state, content))
            furthest = max((cell.run.epoch for cell in self.cells), default=0)
            for cell in self.cells:
                cell.run.alone_until = furthest
            while self.cells:
                # After an interruption, cells that are behind catch up first.
                epoch = min(cell.run.epoch for cell in self.cells)
                for cell in [cell for cell in self.cells if cell.run.epoch == epoch]:
                    self._stop_if_interrupted()
                    if self._attempt(cell, cell.advance) and cell.run.done:
                        self.cells.remove(cell)
                        self.progress.finish(cell.config, "done")
        except KeyboardInterrupt:
            # A second Ctrl-C cut an iteration of the cell at work: then nothing more is saved.
            if self.at_work is None or self.at_work.is_saved:
                self._save_all()
            raise
        finally:
            for cell in self.cells:
                self._close(cell)
            self.cells.clear()
            gc.collect()  # the next group needs the memory

    def _open(self, cell: _Cell, state: CellState, content: Content) -> None:
        """Open a cell's run, in its folder or in a new one."""
        with cell.ledger.turn():
            make_sampler(
                self.dataset.graph, cell.config, Streams(cell.config.seed)
            )  # refuses before a folder is made
            folder = state.folder or runs.create(
                self.locations.runs_dir, cell.config, self.dataset.fingerprint
            )
            opened = training.opened(
                cell.config,
                self.dataset,
                folder,
                self.progress.follow(cell.config),
                self.interrupted,
                cell.ledger,
                content=content,
                session=self.session,
            )
            cell.run = cell.stack.enter_context(opened)

    def _stop_if_interrupted(self) -> None:
        if self.interrupted():
            raise KeyboardInterrupt

    def _attempt(self, cell: _Cell, action: Callable[[], None]) -> bool:
        """Do something with a cell, and return True.

        If that fails, keep the failure, take the cell out of its group, and return False.
        """
        self.at_work = cell
        self.progress.start(cell.config)
        try:
            action()
        except DivergedError as error:
            self.outcome.diverge(cell.config, str(error))
            self.progress.finish(cell.config, "diverged", str(error))
        except FAILURES as error:
            self.outcome.fail(cell.config, first_line(error), _exit_code(error))
            self.progress.finish(cell.config, "failed", first_line(error))
        else:
            self.at_work = None
            return True
        self.at_work = None
        self.cells.remove(cell)
        self._close(cell)
        return False

    def _close(self, cell: _Cell) -> None:
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
                    self.outcome.fail(cell.config, first_line(error), _exit_code(error))
                    self.progress.finish(cell.config, "failed", first_line(error))


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message; XLA's messages have pages."""
    text = next(iter(str(error).splitlines()), "")[:300]
    return text if isinstance(error, NcfbenchError) else f"{type(error).__name__}: {text}"


def _exit_code(error: BaseException) -> int:
    return error.exit_code if isinstance(error, NcfbenchError) else NcfbenchError.exit_code
