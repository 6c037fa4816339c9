"""A whole sweep: the trials of its tuning, then its cells; each predicted, fitted, and trained."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from os import PathLike
from typing import Any

from ncfbench.config import Folder, Locations
from ncfbench.distributed import simulate
from ncfbench.errors import NcfbenchError, UsageError
from ncfbench.sweeps import forecast, runner, tuning
from ncfbench.sweeps.cells import Cell, fit_budget, narrow, predicted_seconds
from ncfbench.sweeps.files import Sweep, read_sweep, with_named_files, write_sweep
from ncfbench.sweeps.plan import SweepRun
from ncfbench.sweeps.progress import SweepProgress
from ncfbench.timing.allocator import warn_once
from ncfbench.timing.compile_cache import keep_compiled
from ncfbench.timing.contention import OtherPrograms


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
    tell: Callable[[str], None] = lambda text: None,
    progress: Callable[[], SweepProgress] = SweepProgress,
) -> SweepRun:
    """Train the cells of a sweep that are not over; resume those that were begun.

    Args:
        dry_run: only predict the time and memory that the cells still need.
        budget_seconds: leave out seeds, then groups of cells, until the prediction fits.
        tell: shows a message.
        progress: makes what shows the training of the cells.

    Raises:
        DataError: a data set is not prepared, or a folder cannot be written.
        KeyboardInterrupt: interrupted; the open cells were saved, and the same call resumes.
        UsageError: no cell can work, none fits the budget, or another process sweeps here.
    """
    others = OtherPrograms()
    run = SweepRun.of(sweep, locations, tell)
    simulate(max(cell.config.devices for cell in run.cells))
    keep_compiled(tell)
    if sweep.tuning is not None:
        run.notes = tuning.require_validation(run.cells, run.datasets)
        run.trials = tuning.add_trials(run.cells, sweep.tuning)
    if dry_run or budget_seconds is not None:
        _predict(run, tell)
        if dry_run and any(cell.need and cell.need.source == "pilot" for cell in run.cells):
            others.warn(tell, is_over=True)
    if budget_seconds is not None:
        _fit(run, budget_seconds, tell)
    if not dry_run:
        run.file = write_sweep(run.sweep, locations.runs_dir)
        others.warn(tell)
        _train(run, tell, progress)
        others.warn(tell, is_over=True)
    return run


def _predict(run: SweepRun, tell: Callable[[str], None]) -> None:
    """Predict what the trials and the cells still need."""
    run.read()
    if run.trials:
        _choose(run, tell)
        run.read()  # a tuned cell is another run
        forecast.predict(run.trials, run.datasets, run.trial_locations.runs_dir, tell)
    forecast.predict(run.cells, run.datasets, run.locations.runs_dir, tell)


def _fit(run: SweepRun, budget_seconds: float, tell: Callable[[str], None]) -> None:
    """Drop seeds, then groups of cells, until the prediction fits a budget."""
    trials = predicted_seconds(run.trials)
    if trials >= budget_seconds:
        raise UsageError(
            f"The trials of --tune alone are predicted to take {trials:,.0f} s. Use fewer trials,"
            " or a larger --budget."
        )
    kept, run.dropped = fit_budget(run.cells, budget_seconds - trials)
    if run.dropped:
        count = len(run.cells) - len(kept)
        tell(f"Dropped to fit the budget: {', '.join(run.dropped)} ({count} cells).")
        axes, further = narrow([cell.combination for cell in kept])
        run.sweep = dataclasses.replace(run.sweep, axes=axes, cells=further)
        run.cells = kept


def _train(
    run: SweepRun, tell: Callable[[str], None], progress: Callable[[], SweepProgress]
) -> None:
    """Train the trials, then the cells with the settings that were chosen."""
    if run.sweep.tuning is not None:
        tell(f"Tuning: {len(run.trials)} trials, {run.sweep.tuning.label}.")
        runner.train(run.trials, run.datasets, run.trial_locations, progress())
        run.read()
        for cell, message in _choose(run, tell).items():
            cell.status, cell.message = "failed", message
            cell.exit_code = run.exit_code or NcfbenchError.exit_code
    left = [cell for cell in run.cells if cell.status != "failed"]
    runner.train(left, run.datasets, run.locations, progress())
    run.read()


def _choose(run: SweepRun, tell: Callable[[str], None]) -> dict[Cell, str]:
    """Tune the cells whose trials have ended, and return messages for the others."""
    assert run.sweep.tuning is not None
    sentences, missing = tuning.choose(run.cells, run.sweep.tuning)
    run.notes = [*run.notes, *sentences]
    for sentence in sentences:
        tell(sentence)
    return missing
