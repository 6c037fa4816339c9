"""Sweeps as they are trained: the cells of a group in turn, one epoch each, so that a disturbance
meets all of them.

All cells of a group are open at once, with their states on the device. A cell that fails or
diverges leaves its group, and the others go on.
"""

from __future__ import annotations

import gc
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
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
from ncfbench.sweeps.grid import groups
from ncfbench.sweeps.overview import Overview
from ncfbench.sweeps.status import State, survey
from ncfbench.timing.ledger import Ledger
from ncfbench.training import run as training
from ncfbench.training.session import OpenRun

STOPPING = (
    "Stopping after this iteration, then saving all cells. Ctrl-C again stops at once, back to"
    " their last checkpoints."
)
FAILURES = (NcfbenchError, MemoryError, OSError, jax.errors.JaxRuntimeError)
"""What may befall one cell and leave the others whole: out of memory, a full disk, a folder that
another process holds.
"""


@dataclass
class Outcome:
    """What became of a sweep; messages by cell. Cells that are in neither are done."""

    diverged: dict[RunConfig, str] = field(default_factory=dict)
    failed: dict[RunConfig, str] = field(default_factory=dict)
    exit_code: int = 0
    """0; 5 where cells diverged and none failed; else that of the first failure."""

    def fail(self, config: RunConfig, error: BaseException) -> None:
        """Keep a failure."""
        self.failed[config] = _message(error)
        if not self.exit_code or self.exit_code == DivergedError.exit_code:
            self.exit_code = (
                error.exit_code if isinstance(error, NcfbenchError) else NcfbenchError.exit_code
            )

    def diverge(self, config: RunConfig, message: str) -> None:
        """Keep a divergence."""
        self.diverged[config] = message
        self.exit_code = self.exit_code or DivergedError.exit_code


def run(
    cells: Sequence[RunConfig],
    datasets: Mapping[str, Dataset],
    places: Locations,
    overview: Overview | None = None,
) -> Outcome:
    """Train all cells that are not done; go on with those that were begun.

    Args:
        datasets: by name, those of all cells.

    Raises:
        DataError: the folder of the runs cannot be written.
        KeyboardInterrupt: interrupted; what is open was saved, and the same call goes on.
        UsageError: another process sweeps in this folder.
    """
    overview = overview or Overview()
    outcome = Outcome()
    with (
        locks.held(places.runs_dir, "running a sweep in"),
        signals.deferred_signals(overview.say, STOPPING) as interrupted,
    ):
        fingerprints = {name: dataset.fingerprint for name, dataset in datasets.items()}
        found = survey(places.runs_dir, cells, fingerprints)
        for problem in found.problems:
            overview.say(problem)
        overview.begin(found.states)
        try:
            for config, state in found.states.items():
                if state.status == "diverged" and state.summary is not None:
                    outcome.diverge(config, str(state.summary["message"]))
            for group in groups(cells):
                left = {
                    config: found.states[config]
                    for config in group.cells
                    if not found.states[config].is_over
                }
                if left:
                    dataset = datasets[group.cells[0].dataset]
                    _Turns(dataset, places, overview, interrupted, outcome).train(left)
        finally:
            overview.end()
    return outcome


class _Cell:
    """A cell that is open. What it does is counted by a ledger of its own, in its turns only."""

    def __init__(self, config: RunConfig) -> None:
        self.config = config
        self.ledger = Ledger()
        self.stack = ExitStack()
        self.run: OpenRun

    @property
    def is_saved(self) -> bool:
        """Whether it is open and a checkpoint holds everything that was trained."""
        return hasattr(self, "run") and self.run.is_saved

    def advance(self) -> None:
        """One epoch; and the end, where it is reached."""
        with self.ledger.turn():
            self.run.advance_epoch()
            if self.run.done:
                self.run.finish()
                self.stack.close()

    def save(self) -> None:
        """Save it, so that it can go on from here."""
        with self.ledger.turn():
            self.run.save()

    def close(self) -> None:
        """Give back what it holds."""
        with self.ledger.turn():
            self.stack.close()


class _Turns:
    """The cells of one group, which take turns."""

    def __init__(
        self,
        dataset: Dataset,
        places: Locations,
        overview: Overview,
        interrupted: Callable[[], bool],
        outcome: Outcome,
    ) -> None:
        self.dataset, self.places, self.overview = dataset, places, overview
        self.interrupted, self.outcome = interrupted, outcome
        self.session = uuid.uuid4().hex[:12]
        self.cells: list[_Cell] = []
        self.at_work: _Cell | None = None

    def train(self, states: Mapping[RunConfig, State]) -> None:
        """Train the cells of these states to their ends."""
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
                # Those that are behind, after an interruption, catch up first.
                epoch = min(cell.run.epoch for cell in self.cells)
                for cell in [cell for cell in self.cells if cell.run.epoch == epoch]:
                    self._stop_if_interrupted()
                    if self._attempt(cell, cell.advance) and cell.run.done:
                        self.cells.remove(cell)
                        self.overview.over(cell.config, "done")
        except KeyboardInterrupt:
            # A second Ctrl-C has cut the cell at work: then nothing more is saved.
            if self.at_work is None or self.at_work.is_saved:
                self._save_all()
            raise
        finally:
            for cell in self.cells:
                self._close(cell)
            self.cells.clear()
            gc.collect()  # the next group needs the memory

    def _open(self, cell: _Cell, state: State, content: Content) -> None:
        """Open a cell's run, in the folder that it has or in a new one."""
        with cell.ledger.turn():
            make_sampler(
                self.dataset.graph, cell.config, Streams(cell.config.seed)
            )  # refuses before a folder is made
            folder = state.folder or runs.create(
                self.places.runs_dir, cell.config, self.dataset.fingerprint
            )
            opened = training.opened(
                cell.config,
                self.dataset,
                folder,
                self.overview.of(cell.config),
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
        """Do something with a cell; whether it went well. Else it leaves the group, and its failure
        is kept.
        """
        self.at_work = cell
        self.overview.at_work(cell.config)
        try:
            action()
        except DivergedError as error:
            self.outcome.diverge(cell.config, str(error))
            self.overview.over(cell.config, "diverged", str(error))
        except FAILURES as error:
            self.outcome.fail(cell.config, error)
            self.overview.over(cell.config, "failed", _message(error))
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
            self.overview.say(f"What closes a run failed: {_message(error)}")

    def _save_all(self) -> None:
        for cell in self.cells:
            if not cell.is_saved:
                try:
                    cell.save()
                except FAILURES as error:
                    self.outcome.fail(cell.config, error)
                    self.overview.over(cell.config, "failed", _message(error))


def _message(error: BaseException) -> str:
    """The first line of what went wrong; XLA tells pages."""
    text = next(iter(str(error).splitlines()), "")[:300]
    return text if isinstance(error, NcfbenchError) else f"{type(error).__name__}: {text}"
