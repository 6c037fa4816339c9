"""A sweep with its cells and data."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ncfbench.config import Locations, RunConfig
from ncfbench.data import Dataset, open_dataset
from ncfbench.errors import DataError, UsageError
from ncfbench.rng import Streams
from ncfbench.sampling import make_sampler
from ncfbench.sweeps.cells import Cell, exit_code, expand, read_progress
from ncfbench.sweeps.files import Sweep


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
