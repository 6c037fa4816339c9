"""A sweep: its cells with their data, trained in turn.

The cells of a group take turns, one epoch each, so that a disturbance of the machine meets all of
them. All cells of a group are open at once, with their states on the device. A cell that fails or
diverges leaves its group, and the others continue. JAX is imported when a cell is to be trained.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from os import PathLike
from typing import Any

from ncfbench.config import Folder, Locations, RunConfig
from ncfbench.data import Dataset, open_dataset
from ncfbench.distributed import simulate
from ncfbench.errors import DataError, DivergedError, UsageError
from ncfbench.rng import Streams
from ncfbench.runs import signals
from ncfbench.sampling import make_sampler
from ncfbench.storage import locks
from ncfbench.sweeps.grid import Cell, Sweep, expand, group_cells, read_sweep, with_named_files
from ncfbench.sweeps.progress import SweepProgress
from ncfbench.timing.compile_cache import keep_compiled
from ncfbench.timing.contention import OtherPrograms

STOPPING = (
    "Stopping after this iteration, then saving. Ctrl-C again stops at once, back to the last"
    " checkpoints."
)


@dataclass
class SweepRun:
    """A sweep, and what became of it.

    Args:
        datasets: the data sets of all cells, by name.
        chosen: the cells to train, all or one.
        left_out: number of combinations that cannot work, by reason.
    """

    sweep: Sweep
    locations: Locations
    datasets: Mapping[str, Dataset]
    cells: Sequence[Cell]
    chosen: Sequence[Cell]
    left_out: Counter[str]

    @classmethod
    def of(cls, sweep: Sweep, locations: Locations, tell: Callable[[str], None]) -> SweepRun:
        """Expand a sweep and open its data; ``tell`` shows what is left out.

        Raises:
            DataError: a data set is not prepared, or a named file cannot be kept.
            UsageError: no cell can work.
        """
        sweep = with_named_files(sweep, locations.data_dir, tell)
        datasets: dict[str, Dataset] = {}

        def check(config: RunConfig) -> None:
            name = config.dataset
            if name not in datasets:
                datasets[name] = open_dataset(name, data_dir=locations.data_dir, say=tell)
            try:
                make_sampler(datasets[name].graph, config, Streams(config.seed))
            except (DataError, UsageError) as error:
                raise UsageError(f"{name}: {error}") from error

        cells, left_out = expand(sweep.axes, sweep.cells, check)
        for reason, count in left_out.items():
            tell(f"Left out ({count}): {reason}")
        return cls(sweep, locations, datasets, cells, cells, left_out)

    @property
    def exit_code(self) -> int:
        """0, 5 where a cell diverged, or the code of the first other failure."""
        codes = [cell.exit_code for cell in self.chosen if cell.status in ("diverged", "failed")]
        of_failures = (code for code in codes if code != DivergedError.exit_code)
        return next(of_failures, max(codes, default=0))


def read_cells(
    cells: Iterable[Cell], datasets: Mapping[str, Dataset], locations: Locations
) -> None:
    """Read how far cells are."""
    for cell in cells:
        cell.read(locations.runs_dir, datasets[cell.config.dataset].fingerprint)


def sweep(
    source: str | PathLike[str],
    *,
    data_dir: Folder = None,
    runs_dir: Folder = None,
    seeds: int | None = None,
    cell: int | None = None,
    dry_run: bool = False,
    assignments: Sequence[str] = (),
    say: Callable[[str], None] = print,
    progress: Callable[[], SweepProgress] = SweepProgress,
    **settings: Any,
) -> SweepRun:
    """Train the cells of a sweep that are not over, and return what became of them; those that were
    begun are resumed.

    ``settings`` replace those of the sweep; a list makes an axis of the grid.

    Args:
        source, assignments, seeds: see :func:`~ncfbench.sweeps.grid.read_sweep`.
        cell: index of the only cell to train, from 0; by default all take turns. Other processes
            may train other cells of the same folder.
        dry_run: only read how far the cells are.
        progress: makes what shows the training of the cells.

    Raises:
        DataError: a data set is not prepared, or a folder cannot be written.
        KeyboardInterrupt: interrupted; the open cells were saved, and the same call resumes.
        UsageError: the sweep cannot be read, no cell can work, there is no such cell, or another
            process trains here.
    """
    wanted = read_sweep(str(source), flags=settings, assignments=assignments, seeds=seeds)
    programs, locations = OtherPrograms(), Locations.of(data_dir, runs_dir)
    run = SweepRun.of(wanted, locations, say)
    if cell is not None:
        if not 0 <= cell < len(run.cells):
            raise UsageError(
                f"--cell {cell}: the sweep has {len(run.cells)} cells, 0 to {len(run.cells) - 1}."
            )
        run.chosen = [run.cells[cell]]
    simulate(max(chosen.config.devices for chosen in run.chosen))
    if not dry_run:
        programs.warn(say)
        train_cells(run.chosen, run.datasets, locations, progress(), is_alone=cell is None)
        programs.warn(say)
    read_cells(run.cells, run.datasets, locations)
    return run


def train_cells(
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
    with (
        locks.held(locations.runs_dir, "running a sweep in") if is_alone else nullcontext(),
        signals.deferred_signals(progress.say, STOPPING) as interrupted,
    ):
        read_cells(cells, datasets, locations)
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
        cell.fail(error)
        progress.finish(cell)

    keep_compiled(progress.say)
    import jax

    from ncfbench.models.towers import DeviceContent
    from ncfbench.training.train import train_epoch
    from ncfbench.training.turns import Turns

    content = jax.block_until_ready(DeviceContent.of(dataset, [cell.config for cell in cells]))
    with Turns(dataset, content, locations, interrupted, fail) as turns:
        for cell in cells:
            turns.open(cell, cell.config, progress.follow(cell))
        furthest = max((run.epochs // 1 for run in turns.runs.values()), default=0)
        for run in turns.runs.values():
            run.catch_up_until(furthest)
        # After an interruption, cells that are behind catch up first.
        while turns.runs:
            last = min(turns.runs, key=lambda cell: turns.runs[cell].epochs // 1)
            if turns.take(last, train_epoch):
                last.status = "done"
                progress.finish(last)
