"""Train the cells of a sweep in turn.

The cells of a group take turns, one epoch each, so that a disturbance of the machine meets all of
them. All cells of a group are open at once, with their states on the device. A cell that fails or
diverges leaves its group, and the others continue.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext

import jax

from ncfbench.config import Locations
from ncfbench.data import Dataset
from ncfbench.errors import DivergedError, NcfbenchError
from ncfbench.models.towers import DeviceContent
from ncfbench.runs import signals
from ncfbench.storage import locks
from ncfbench.sweeps.cells import Cell, group_cells, read_progress
from ncfbench.sweeps.progress import SweepProgress
from ncfbench.training.run import first_line
from ncfbench.training.session import Session
from ncfbench.training.turns import Turns

STOPPING = (
    "Stopping after this iteration, then saving. Ctrl-C again stops at once, back to the last"
    " checkpoints."
)


def train(
    cells: Sequence[Cell],
    datasets: Mapping[str, Dataset],
    locations: Locations,
    progress: SweepProgress,
    *,
    is_alone: bool = True,
) -> None:
    """Train all cells that are not over, in turn, and resume those that were begun.

    Each cell keeps how it ended: its status, message and exit code.

    Args:
        datasets: the data sets of all cells, by name.
        is_alone: refuse to train beside another sweep in the folder, whose cells would be these.

    Raises:
        DataError: the folder of the runs cannot be written.
        KeyboardInterrupt: interrupted; the open cells were saved, and the same call resumes.
        UsageError: another process runs a sweep in this folder.
    """
    fingerprints = {name: dataset.fingerprint for name, dataset in datasets.items()}
    with (
        locks.held(locations.runs_dir, "running a sweep in") if is_alone else nullcontext(),
        signals.deferred_signals(progress.say, STOPPING) as interrupted,
    ):
        for problem in read_progress(cells, locations.runs_dir, fingerprints):
            progress.say(problem)
        progress.begin(cells)
        try:
            for group in group_cells(cells):
                if left := [cell for cell in group if not cell.is_over]:
                    dataset = datasets[left[0].config.dataset]
                    _train_group(left, dataset, locations, progress, interrupted)
        finally:
            progress.end()


def _train_group(
    cells: Sequence[Cell],
    dataset: Dataset,
    locations: Locations,
    progress: SweepProgress,
    interrupted: Callable[[], bool],
) -> None:
    def fail(cell: Cell, error: BaseException) -> None:
        has_diverged = isinstance(error, DivergedError)
        cell.status = "diverged" if has_diverged else "failed"
        cell.message = str(error) if has_diverged else first_line(error)
        cell.exit_code = getattr(error, "exit_code", NcfbenchError.exit_code)
        progress.finish(cell)

    configs = [cell.config for cell in cells]
    content = jax.block_until_ready(DeviceContent.of(dataset, configs))
    with Turns(dataset, content, locations, interrupted, fail) as turns:
        for cell in cells:
            turns.open(cell, cell.config, cell.folder, progress.follow(cell))
        turns.catch_up()
        # After an interruption, cells that are behind catch up first.
        while (behind := turns.behind(lambda run: run.epoch)) is not None:
            if turns.take(behind, Session.advance_epoch):
                behind.status = "done"
                progress.finish(behind)
