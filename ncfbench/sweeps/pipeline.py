"""A whole sweep: the trials of its tuning, then its cells; each predicted, fitted, and trained."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any

from ncfbench.config import Folder, Locations, RunConfig
from ncfbench.data import Dataset, open_dataset
from ncfbench.distributed.simulation import simulate
from ncfbench.errors import DivergedError, NcfbenchError, UsageError
from ncfbench.runs.trials import FOLDER, Budget
from ncfbench.sweeps import forecast, runner, tuning
from ncfbench.sweeps.files import Sweep, read_sweep, with_named_files, write_sweep
from ncfbench.sweeps.forecast import Prediction
from ncfbench.sweeps.grid import (
    Grid,
    SweepStatus,
    expand,
    fit_budget,
    label_cells,
    narrow,
    read_status,
)
from ncfbench.sweeps.progress import SweepProgress
from ncfbench.timing.allocator import warn_once
from ncfbench.timing.compile_cache import keep_compiled
from ncfbench.timing.contention import OtherPrograms


@dataclass
class Stage:
    """Cells that are predicted and trained together: those of the sweep, or the trials before it.

    Args:
        tell: shows a message.
        progress: makes what shows the training of the cells.
        in_processes: train each cell in a process of its own, not in turn.
    """

    cells: Sequence[RunConfig]
    datasets: Mapping[str, Dataset]
    locations: Locations
    tell: Callable[[str], None]
    progress: Callable[[], SweepProgress] = SweepProgress
    in_processes: bool = False
    predicted: dict[RunConfig, Prediction] | None = None
    failed: dict[RunConfig, str] = field(default_factory=dict)
    exit_code: int = 0

    @property
    def seconds(self) -> float:
        """Predicted seconds of all cells."""
        return sum(each.seconds for each in (self.predicted or {}).values())

    @property
    def memory_bytes(self) -> int | None:
        """Predicted bytes on the device at the worst moment; None before a prediction."""
        return None if self.predicted is None else forecast.predict_memory(self.predicted)

    def status(self) -> SweepStatus:
        """Read how far the cells are."""
        fingerprints = {name: each.fingerprint for name, each in self.datasets.items()}
        return read_status(self.locations.runs_dir, self.cells, fingerprints)

    def predict(self) -> None:
        """Predict what the cells still need."""
        self.predicted = forecast.predict(
            self.status().states, self.datasets, self.locations.runs_dir, self.tell
        )

    def fit(self, seconds: float) -> tuple[str, ...]:
        """Drop seeds and groups until the prediction fits, and return the names of the dropped."""
        predicted = self.predicted or {}
        self.cells, dropped = fit_budget(
            self.cells, {config: each.seconds for config, each in predicted.items()}, seconds
        )
        self.predicted = {config: predicted[config] for config in self.cells}
        return dropped

    def replace_cells(self, replacements: Mapping[RunConfig, RunConfig]) -> None:
        """Replace some cells, in their positions."""
        self.cells = [replacements.get(config, config) for config in self.cells]

    def fail(self, messages: Mapping[RunConfig, str], exit_code: int) -> None:
        """Keep the messages of cells that cannot be trained, and the exit code."""
        self.failed |= messages
        self.exit_code = exit_code

    def train(self) -> None:
        """Train what is left, and keep the messages of the cells that failed."""
        left = [config for config in self.cells if config not in self.failed]
        train = runner.run_in_processes if self.in_processes else runner.run
        outcome = train(left, self.datasets, self.locations, self.progress())
        self.failed |= outcome.failed
        self.exit_code = self.exit_code or outcome.exit_code


class Tuning:
    """The trials of a sweep.

    Raises:
        DataError: a data set has no validation items.
        UsageError: the sweep cannot be tuned.
    """

    def __init__(self, stage: Stage, budget: Budget) -> None:
        self.lines: list[str] = []
        for name, dataset in stage.datasets.items():
            self.lines += tuning.require_validation(
                name, dataset.manifest["statistics"]["validation_items"]
            )
        self.budget = budget
        self.trials = tuning.make_trials(stage.cells, budget)
        cells = tuple(dict.fromkeys(trial for own in self.trials.values() for trial in own))
        runs_dir = stage.locations.runs_dir / FOLDER
        locations = dataclasses.replace(stage.locations, runs_dir=runs_dir)
        self.stage = dataclasses.replace(stage, cells=cells, locations=locations, failed={})

    def choose(self, stage: Stage, *, final: bool) -> None:
        """Give a stage's cells the settings that won their trials.

        Args:
            final: whether all trials should have ended, so that a cell without a choice fails.
        """
        wanted = {config: self.trials[config] for config in stage.cells if not config.tuned}
        chosen, missing = tuning.choose(wanted, self.stage.status())
        names = label_cells(stage.cells)
        for config, choice in chosen.items():
            values = ", ".join(
                f"{name} = {value:g}" for name, value in choice.settings(self.budget).items()
            )
            line = (
                f"Tuned: {names[config]}: {values} (validation recall@50 {choice.recall:.4f},"
                f" {choice.usable} trials)"
            )
            self.lines.append(line)
            stage.tell(line)
        stage.replace_cells(
            {
                config: tuning.apply_choice(config, choice, self.budget)
                for config, choice in chosen.items()
            }
        )
        if final:
            # A trial that diverged shows a bad setting. A trial that could not be trained failed.
            failed = self.stage.exit_code not in (0, DivergedError.exit_code)
            if failed or missing:
                code = self.stage.exit_code if failed else NcfbenchError.exit_code
                stage.fail(missing, code)


@dataclass(frozen=True)
class SweepRun:
    """A sweep that was trained, or only predicted.

    Args:
        dropped: names of the seeds and groups left out to fit the budget.
        problems: messages on run folders that cannot be used.
        file: the sweep's own file below the runs; None if nothing was trained.
    """

    sweep: Sweep
    grid: Grid
    stage: Stage
    tuning: Tuning | None
    dropped: tuple[str, ...]
    problems: tuple[str, ...]
    file: Path | None


def sweep(
    source: str | PathLike[str],
    *,
    data_dir: Folder = None,
    runs_dir: Folder = None,
    seeds: int | None = None,
    dry_run: bool = False,
    budget_seconds: float | None = None,
    say: Callable[[str], None] = print,
    **settings: Any,
) -> SweepRun:
    """Train the cells of a sweep that are not finished, and return what became of them.

    ``settings`` replace those of the sweep; a list makes an axis of the grid.

    Raises:
        DataError, KeyboardInterrupt, UsageError: see :func:`run_sweep` and :func:`read_sweep`.
    """
    if not dry_run:
        warn_once()
    locations = Locations.of(data_dir, runs_dir)
    wanted = read_sweep(str(source), flags=settings, seeds=seeds)
    wanted = with_named_files(wanted, locations.data_dir, say)
    return run_sweep(wanted, locations, dry_run=dry_run, budget_seconds=budget_seconds, tell=say)


def run_sweep(
    sweep: Sweep,
    locations: Locations,
    *,
    dry_run: bool = False,
    budget_seconds: float | None = None,
    in_processes: bool = False,
    tell: Callable[[str], None] = lambda text: None,
    progress: Callable[[], SweepProgress] = SweepProgress,
) -> SweepRun:
    """Train the cells of a sweep that are not over; resume those that were begun.

    Args:
        dry_run: only predict the time and memory that the cells still need.
        budget_seconds: leave out seeds, then groups of cells, until the prediction fits.
        in_processes: train each cell in a process of its own, one after the other.
        tell: shows a message.
        progress: makes what shows the training of the cells.

    Raises:
        DataError: a data set is not prepared, or a folder cannot be written.
        KeyboardInterrupt: interrupted; the open cells were saved, and the same call resumes.
        UsageError: no cell can work, none fits the budget, or another process sweeps here.
    """
    others, grid = OtherPrograms(), expand(sweep.axes, sweep.cells)
    for each in grid.left_out:
        tell(f"Left out ({each.combinations}): {each.reason}")
    simulate(max(config.devices for config in grid.cells))
    keep_compiled(tell)
    datasets = {
        name: open_dataset(name, data_dir=locations.data_dir, say=tell)
        for name in dict.fromkeys(config.dataset for config in grid.cells)
    }
    stage = Stage(grid.cells, datasets, locations, tell, progress, in_processes)
    tuned = None if sweep.tuning is None else Tuning(stage, sweep.tuning)
    if dry_run or budget_seconds is not None:
        if tuned is not None:
            tuned.choose(stage, final=False)
            tuned.stage.predict()
        stage.predict()
        if dry_run and any(each.source == "pilot" for each in (stage.predicted or {}).values()):
            others.warn(tell, is_over=True)
    dropped: tuple[str, ...] = ()
    if budget_seconds is not None:
        trials = 0.0 if tuned is None else tuned.stage.seconds
        if trials >= budget_seconds:
            raise UsageError(
                f"The trials of --tune alone are predicted to take {trials:,.0f} s. Use fewer"
                " trials, or a larger --budget."
            )
        before = stage.cells
        dropped = stage.fit(budget_seconds - trials)
        if dropped:
            count = len(before) - len(stage.cells)
            tell(f"Dropped to fit the budget: {', '.join(dropped)} ({count} cells).")
            fitting = set(stage.cells)
            pairs = zip(before, grid.combinations, strict=True)
            axes, cells = narrow([settings for config, settings in pairs if config in fitting])
            sweep = dataclasses.replace(sweep, axes=axes, cells=cells)
    problems, file = stage.status().problems, None
    if not dry_run:
        file = write_sweep(sweep, locations.runs_dir)
        others.warn(tell)
        if tuned is not None:
            tell(f"Tuning: {len(tuned.stage.cells)} trials, {tuned.budget.label}.")
            tuned.stage.train()
            tuned.choose(stage, final=True)
        stage.train()
        others.warn(tell, is_over=True)
    return SweepRun(sweep, grid, stage, tuned, dropped, problems, file)
