"""A sweep with its cells and data: what is predicted, trained, or submitted to Slurm."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ncfbench.config import Locations, RunConfig
from ncfbench.data import Dataset, open_dataset
from ncfbench.errors import DataError, UsageError
from ncfbench.rng import Streams
from ncfbench.runs.schedule import require_hard_iterations
from ncfbench.runs.trials import FOLDER
from ncfbench.sampling import make_sampler
from ncfbench.sweeps.cells import Cell, exit_code, expand, read_progress
from ncfbench.sweeps.files import Sweep


@dataclass
class SweepRun:
    """A sweep, and what became of it.

    Args:
        datasets: the data sets of all cells, by name.
        left_out: number of combinations that cannot work, by reason.
        trials: runs of its tuning, which are trained before the cells.
        notes: sentences on its tuning.
        dropped: names of the seeds and groups left out to fit the budget.
        problems: messages on run folders and jobs that cannot be used.
        file: the sweep's own file below the runs; None where nothing was trained or submitted.
        folder: of the submission to Slurm.
    """

    sweep: Sweep
    locations: Locations
    datasets: Mapping[str, Dataset]
    cells: Sequence[Cell]
    left_out: Counter[str]
    trials: Sequence[Cell] = ()
    notes: Sequence[str] = ()
    dropped: Sequence[str] = ()
    problems: Sequence[str] = ()
    file: Path | None = None
    folder: Path | None = None

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
            graph, tuning = datasets[name].graph, sweep.tuning
            try:
                make_sampler(graph, config, Streams(config.seed))
                for epochs in {config.epochs, tuning.epochs if tuning else config.epochs}:
                    of_epochs = dataclasses.replace(config, epochs=epochs)
                    require_hard_iterations(of_epochs, graph.n_links)
            except (DataError, UsageError) as error:
                raise UsageError(f"{name}: {error}") from error

        cells, left_out = expand(sweep.axes, sweep.cells, check)
        for reason, count in left_out.items():
            tell(f"Left out ({count}): {reason}")
        used = {cell.config.dataset for cell in cells}
        datasets = {name: dataset for name, dataset in datasets.items() if name in used}
        return cls(sweep, locations, datasets, cells, left_out)

    @property
    def trial_locations(self) -> Locations:
        """The folders of the trials."""
        return dataclasses.replace(self.locations, runs_dir=self.locations.runs_dir / FOLDER)

    @property
    def exit_code(self) -> int:
        """The exit code of the command; a trial that diverged shows a bad setting only."""
        failed = [trial for trial in self.trials if trial.status == "failed"]
        return exit_code([*failed, *self.cells])

    def read(self) -> None:
        """Read how far the trials and the cells are."""
        fingerprints = {name: dataset.fingerprint for name, dataset in self.datasets.items()}
        read_progress(self.trials, self.trial_locations.runs_dir, fingerprints)
        self.problems = read_progress(self.cells, self.locations.runs_dir, fingerprints)
