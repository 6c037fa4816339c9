"""A whole sweep: its cells with their data, trained in turn."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

from ncfbench.config import Folder, Locations, RunConfig
from ncfbench.data import Dataset, open_dataset
from ncfbench.distributed import simulate
from ncfbench.errors import DataError, UsageError
from ncfbench.rng import Streams
from ncfbench.sampling import make_sampler
from ncfbench.sweeps import runner
from ncfbench.sweeps.cells import Cell, exit_code, expand, read_progress
from ncfbench.sweeps.files import Sweep, read_sweep, with_named_files, write_sweep
from ncfbench.sweeps.progress import SweepProgress
from ncfbench.timing.compile_cache import keep_compiled
from ncfbench.timing.contention import OtherPrograms


@dataclass
class SweepRun:
    """A sweep, and what became of it.

    Args:
        datasets: the data sets of all cells, by name.
        chosen: the cells to train, all or one.
        left_out: number of combinations that cannot work, by reason.
        problems: messages on run folders that cannot be used.
        file: the sweep's own file below the runs; None where nothing was trained.
    """

    sweep: Sweep
    locations: Locations
    datasets: Mapping[str, Dataset]
    cells: Sequence[Cell]
    chosen: Sequence[Cell]
    left_out: Counter[str]
    problems: Sequence[str] = ()
    file: Path | None = None

    @classmethod
    def of(cls, sweep: Sweep, locations: Locations, tell: Callable[[str], None]) -> SweepRun:
        """Expand a sweep and open its data; ``tell`` shows what is left out.

        Raises:
            DataError: a data set is not prepared.
            UsageError: no cell can work.
        """
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
        used = {cell.config.dataset for cell in cells}
        datasets = {name: dataset for name, dataset in datasets.items() if name in used}
        return cls(sweep, locations, datasets, cells, cells, left_out)

    @property
    def exit_code(self) -> int:
        """The exit code of the command."""
        return exit_code(self.chosen)

    def read(self) -> None:
        """Read how far the cells are."""
        fingerprints = {name: dataset.fingerprint for name, dataset in self.datasets.items()}
        self.problems = read_progress(self.cells, self.locations.runs_dir, fingerprints)


def sweep(
    source: str | PathLike[str],
    *,
    data_dir: Folder = None,
    runs_dir: Folder = None,
    seeds: int | None = None,
    dry_run: bool = False,
    say: Callable[[str], None] = print,
    **settings: Any,
) -> SweepRun:
    """Train the cells of a sweep that are not finished, and return what became of them.

    ``settings`` replace those of the sweep; a list makes an axis of the grid.

    Raises:
        DataError, KeyboardInterrupt, UsageError: see :func:`run_sweep` and :func:`read_sweep`.
    """
    locations = Locations.of(data_dir, runs_dir)
    wanted = read_sweep(str(source), flags=settings, seeds=seeds)
    wanted = with_named_files(wanted, locations.data_dir, say)
    return run_sweep(wanted, locations, dry_run=dry_run, tell=say)


def run_sweep(
    sweep: Sweep,
    locations: Locations,
    *,
    cell: int | None = None,
    dry_run: bool = False,
    tell: Callable[[str], None] = lambda text: None,
    progress: Callable[[], SweepProgress] = SweepProgress,
) -> SweepRun:
    """Train the cells of a sweep that are not over; resume those that were begun.

    Args:
        cell: index of the only cell to train, from 0; by default all take turns. Other processes
            may train other cells of the same folder.
        dry_run: only read how far the cells are.
        tell: shows a message.
        progress: makes what shows the training of the cells.

    Raises:
        DataError: a data set is not prepared, or a folder cannot be written.
        KeyboardInterrupt: interrupted; the open cells were saved, and the same call resumes.
        UsageError: no cell can work, there is no such cell, or another process trains here.
    """
    others = OtherPrograms()
    run = SweepRun.of(sweep, locations, tell)
    if cell is not None:
        if not 0 <= cell < len(run.cells):
            raise UsageError(
                f"--cell {cell}: the sweep has {len(run.cells)} cells, 0 to {len(run.cells) - 1}."
            )
        run.chosen = [run.cells[cell]]
    simulate(max(each.config.devices for each in run.chosen))
    keep_compiled(tell)
    if dry_run:
        run.read()
        return run
    run.file = write_sweep(run.sweep, locations.runs_dir)
    others.warn(tell)
    runner.train(run.chosen, run.datasets, locations, progress(), is_alone=cell is None)
    run.read()
    others.warn(tell)
    return run
