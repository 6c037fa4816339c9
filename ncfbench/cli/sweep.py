"""``ncfbench sweep``: train a grid of settings."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ncfbench.cli import options
from ncfbench.cli.launch import launch
from ncfbench.cli.output import print_json, print_views, reporting, say, typed_with
from ncfbench.config import TUNABLE, Locations
from ncfbench.errors import UsageError, shown
from ncfbench.sweeps.presets import preset_titles

if TYPE_CHECKING:
    from ncfbench.config import RunConfig
    from ncfbench.runs.trials import Budget
    from ncfbench.sweeps.pipeline import SweepRun
    from ncfbench.sweeps.progress import SweepProgress

LAUNCHERS = ("turns", "local", "slurm")
PRESETS = "; ".join(f"{name}: {title}" for name, title in preset_titles().items()) + "."


@options.with_settings("dataset", "sampler", "encoder", "loss", "epochs", are_lists=True)
@reporting
def sweep(
    flags: options.Flags,
    source: Annotated[
        str,
        typer.Argument(metavar="PRESET|FILE.toml", help=f"A file, or a preset. {PRESETS}"),
    ],
    seeds: Annotated[
        int | None,
        typer.Option(help="Number of seeds.", show_default="the sweep's"),
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE[,VALUE]",
            help="Any setting; values make a grid.",
            show_default=False,
        ),
    ] = None,
    tune: Annotated[
        int | None,
        typer.Option(
            help="Trials for each arm; the best on validation items is trained.",
            show_default="no tuning",
            rich_help_panel="Training",
        ),
    ] = None,
    tune_epochs: Annotated[
        int | None,
        typer.Option(
            help="Epochs of a trial.",
            show_default="a third of the sweep's",
            rich_help_panel="Training",
        ),
    ] = None,
    tune_over: Annotated[
        str | None,
        typer.Option(
            help=f"Settings to tune: any of {', '.join(TUNABLE)}.",
            show_default="learning_rate",
            rich_help_panel="Training",
        ),
    ] = None,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run",
            help="List the cells, how far they are, and what time and memory they still need.",
        ),
    ] = False,
    budget: Annotated[
        str | None,
        typer.Option(
            help="Leave out seeds, then cells, until the rest fits: 2h, 1h30m.", show_default=False
        ),
    ] = None,
    launcher: Annotated[
        str,
        typer.Option(
            help=f"{', '.join(LAUNCHERS)}: cells in turn, in processes, or in an array job.",
            rich_help_panel="Devices",
        ),
    ] = "turns",
    slurm: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY[=VALUE]",
            help="An option of sbatch: time=2:00:00 (always), partition=gpu, gres=gpu:1.",
            show_default=False,
            rich_help_panel="Devices",
        ),
    ] = None,
    data_dir: options.DataDir = None,
    runs_dir: options.RunsDir = None,
    quiet: options.Quiet = False,
    json_: options.Json = False,
) -> None:
    """Train a grid of settings, or resume one.

    In a file of settings a list makes a grid: sampler = ["iid", "ns"], seed = [0, 1, 2].
    Combinations that cannot work are left out. The sweep's own file, with all flags in it, is kept
    in `sweeps` below the runs; `ncfbench sweep` of that file trains the same cells.

    The same command again resumes: finished cells are not repeated, the others resume from their
    last checkpoints. `ncfbench report` compares the cells.

    Launchers. turns: all cells in this process; cells whose times are compared take turns, one
    epoch each. local: a process for each cell, one after the other. slurm: a task of an array job
    for each cell; tasks save and are requeued at their time limit, and the same command again
    submits what is neither finished nor in the queue. Reports mark cells that took no turns.

    With --tune N every arm first has N trials with a seed of their own; their runs are kept in
    `tuning` below the runs.

    Example: ncfbench sweep smoke
    """
    from ncfbench.sweeps.files import read_sweep, with_named_files
    from ncfbench.sweeps.grid import expand

    wanted = read_sweep(source, flags=flags, assignments=set_ or (), seeds=seeds)
    locations = Locations.of(data_dir, runs_dir)
    wanted = with_named_files(wanted, locations.data_dir, say)
    cells = expand(wanted.axes, wanted.cells).cells
    budget_of_trials = _tuning(wanted.tuning, cells, tune, tune_epochs, tune_over)
    wanted = replace(wanted, tuning=budget_of_trials)
    _check_launcher(launcher, slurm, is_tuned=wanted.tuning is not None, budget=budget)
    budget_seconds = None if budget is None else options.parse_duration(budget, "--budget")
    tell: Callable[[str], None] = (lambda text: None) if quiet else say
    if launcher == "slurm":
        launch(wanted, locations, slurm or (), tell, dry_run=dry_run, json_=json_)
        return
    from ncfbench.sweeps.pipeline import run_sweep
    from ncfbench.sweeps.progress import SweepProgress
    from ncfbench.sweeps.table import cell_rows

    try:
        done = run_sweep(
            wanted,
            locations,
            dry_run=dry_run,
            budget_seconds=budget_seconds,
            in_processes=launcher == "local",
            tell=tell,
            progress=SweepProgress if quiet else _progress,
        )
    except KeyboardInterrupt:
        where = f"The cells so far are in {shown(locations.runs_dir)}."
        say(f"{where} To resume this sweep, repeat the command: {typed_with()}")
        raise
    if dry_run:
        for problem in done.problems:
            say(f"Warning: {problem}")
    stage, tuning = done.stage, done.tuning
    table = cell_rows(
        stage.status(), predicted=stage.predicted if dry_run else None, failed=stage.failed
    )
    trials = (
        []
        if tuning is None
        else cell_rows(tuning.stage.status(), predicted=tuning.stage.predicted if dry_run else None)
    )
    if json_:
        print_json(
            {
                "sweep": wanted.name,
                "title": wanted.title,
                "file": done.file,
                "dropped": done.dropped,
                "problems": done.problems,
                "left_out": [
                    {"reason": each.reason, "combinations": each.combinations}
                    for each in done.grid.left_out
                ],
                "cells": table,
                "trials": trials,
                "memory_bytes": stage.memory_bytes,
            }
        )
    else:
        _print(done, table, trials, dry_run=dry_run)
    for row in table:
        if row["status"] in ("failed", "diverged"):
            say(f"{row['status'].capitalize()}: {row['cell']}: {row['message']}")
    if stage.exit_code:
        raise typer.Exit(stage.exit_code)


def _check_launcher(
    launcher: str, slurm: Sequence[str] | None, *, is_tuned: bool, budget: str | None
) -> None:
    if launcher not in LAUNCHERS:
        raise UsageError(f"--launcher {launcher!r} is unknown. Valid: {', '.join(LAUNCHERS)}.")
    if launcher != "slurm" and slurm:
        raise UsageError("--slurm belongs to --launcher slurm.")
    if launcher == "slurm" and is_tuned:
        raise UsageError(
            "--launcher slurm cannot tune: cells wait for their trials. Use --launcher turns or"
            " local."
        )
    if launcher != "turns" and budget is not None:
        raise UsageError(
            "--budget needs all cells in one process. Leave it out, or use --launcher turns."
        )


def _tuning(
    given: Budget | None,
    cells: Sequence[RunConfig],
    trials: int | None,
    epochs: int | None,
    over: str | None,
) -> Budget | None:
    """Return the trials that the flags ask for, which go before those of the sweep's file."""
    if trials is None and given is None:
        for flag, value in (("--tune-epochs", epochs), ("--tune-over", over)):
            if value is not None:
                raise UsageError(f"{flag} belongs to --tune N: give the number of trials.")
        return None
    from ncfbench.runs.trials import Budget

    third = max(1, round(min(config.epochs for config in cells) / 3))
    found = given or Budget(trials or 0, third)
    if over is not None:
        names = [name.strip().replace("-", "_") for name in over.split(",") if name.strip()]
        found = replace(found, settings=tuple(dict.fromkeys(names)))
    return Budget(
        found.trials if trials is None else trials,
        found.epochs if epochs is None else epochs,
        found.settings,
    )


def _print(
    done: SweepRun,
    table: Sequence[Mapping[str, Any]],
    trials: Sequence[Mapping[str, Any]],
    *,
    dry_run: bool,
) -> None:
    import jax

    from ncfbench.reporting import marks
    from ncfbench.sweeps.table import cells_table, format_size
    from ncfbench.timing.clock import format_duration

    stage, tuning = done.stage, done.tuning
    if tuning is not None:
        print_views(cells_table(f"Tuning ({tuning.budget.label})", trials), *tuning.lines)
    has_several = any(row["config"]["devices"] > 1 for row in table)
    simulated = has_several and jax.default_backend() == "cpu"
    print_views(
        cells_table(done.sweep.title, table), *([marks.SIMULATED_NOTE] if simulated else [])
    )
    if dry_run:
        seconds = stage.seconds + (0.0 if tuning is None else tuning.stage.seconds)
        most = max(stage.memory_bytes or 0, 0 if tuning is None else tuning.stage.memory_bytes or 0)
        print_views(
            f"Predicted for all cells: {format_duration(seconds)}, and {format_size(most)} on the"
            " device beside the data and the program. Cells that take turns are open together."
        )
    elif not stage.exit_code:
        runs_dir = stage.locations.runs_dir
        print_views(
            f"Records: {shown(runs_dir)}. The sweep's file: {done.file}. To compare the cells:"
            f" {shlex.join(['ncfbench', 'report', '--runs-dir', str(runs_dir)])}"
        )


def _progress() -> SweepProgress:
    """Return what shows progress on standard error: live on a terminal, else plain lines."""
    from ncfbench.reporting.render.terminal import make_console
    from ncfbench.sweeps.progress import LiveSweepProgress, PlainSweepProgress

    console = make_console(stderr=True)
    return (
        LiveSweepProgress(console)
        if console.is_terminal and not console.is_dumb_terminal
        else PlainSweepProgress(console)
    )
