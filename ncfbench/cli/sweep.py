"""``ncfbench sweep``: train a grid of settings."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ncfbench.cli import options
from ncfbench.cli.options import option
from ncfbench.cli.output import print_json, print_views, reporting, say, typed_with
from ncfbench.config import TUNABLE, Locations
from ncfbench.errors import UsageError, shown
from ncfbench.sweeps.presets import preset_titles

if TYPE_CHECKING:
    from pathlib import Path

    from ncfbench.runs.trials import Budget
    from ncfbench.sweeps.files import Sweep
    from ncfbench.sweeps.plan import SweepRun

LAUNCHERS = ("turns", "slurm")
PRESETS = "; ".join(f"{name}: {title}" for name, title in preset_titles().items()) + "."


@options.with_settings("dataset", "sampler", "encoder", "loss", "epochs", are_lists=True)
@reporting
def sweep(
    flags: options.Flags,
    source: Annotated[
        str,
        typer.Argument(metavar="PRESET|FILE.toml", help=f"A file, or a preset. {PRESETS}"),
    ],
    seeds: Annotated[int | None, option(help="Number of seeds.", default="the sweep's")] = None,
    set_: Annotated[
        list[str] | None,
        option("--set", metavar="KEY=VALUE[,VALUE]", help="Any setting; values make a grid."),
    ] = None,
    tune: Annotated[
        int | None,
        option(
            help="Trials for each arm; the best on validation links is trained.",
            panel="Training",
            default="no tuning",
        ),
    ] = None,
    tune_epochs: Annotated[
        int | None,
        option(help="Epochs of a trial.", panel="Training", default="a third of the sweep's"),
    ] = None,
    tune_over: Annotated[
        str | None,
        option(
            help=f"Settings to tune: any of {', '.join(TUNABLE)}.",
            panel="Training",
            default="learning_rate",
        ),
    ] = None,
    dry_run: Annotated[
        bool,
        option(
            "--dry-run",
            help="List the cells, how far they are, and what time and memory they still need.",
        ),
    ] = False,
    budget: Annotated[
        str | None, option(help="Leave out seeds, then cells, until the rest fits: 2h, 1h30m.")
    ] = None,
    launcher: Annotated[
        str,
        option(
            help=f"{', '.join(LAUNCHERS)}: cells in turn, or in an array job.",
            panel="Devices",
            default=True,
        ),
    ] = "turns",
    slurm: Annotated[
        list[str] | None,
        option(
            metavar="KEY[=VALUE]",
            help="An option of sbatch: time=2:00:00 (always), partition=gpu, gres=gpu:1.",
            panel="Devices",
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
    epoch each. slurm: a task of an array job for each cell; tasks save and are requeued at their
    time limit, and the same command again submits what is neither finished nor in the queue.
    Reports mark cells that took no turns.

    With --tune N every arm first has N trials with a seed of their own; their runs are kept in
    `tuning` below the runs.

    Example: ncfbench sweep smoke
    """
    from ncfbench.sweeps.files import read_sweep, with_named_files

    wanted = read_sweep(source, flags=flags, assignments=set_ or (), seeds=seeds)
    locations = Locations.of(data_dir, runs_dir)
    wanted = with_named_files(wanted, locations.data_dir, say)
    wanted = replace(wanted, tuning=_tuning(wanted, tune, tune_epochs, tune_over))
    _check_launcher(launcher, slurm, is_tuned=wanted.tuning is not None, budget=budget)
    seconds = None if budget is None else options.parse_duration(budget, "--budget")
    tell: Callable[[str], None] = (lambda text: None) if quiet else say
    if launcher == "slurm":
        _launch(wanted, locations, slurm or (), tell, dry_run=dry_run, json_=json_)
        return
    from ncfbench.reporting.render.terminal import make_console
    from ncfbench.sweeps.pipeline import run_sweep
    from ncfbench.sweeps.progress import SweepProgress

    console = None if quiet else make_console(stderr=True)
    try:
        done = run_sweep(
            wanted,
            locations,
            dry_run=dry_run,
            budget_seconds=seconds,
            tell=tell,
            progress=lambda: SweepProgress(console),
        )
    except KeyboardInterrupt:
        where = f"The cells so far are in {shown(locations.runs_dir)}."
        say(f"{where} To resume this sweep, repeat the command: {typed_with()}")
        raise
    _print(done, dry_run=dry_run, json_=json_)
    if done.exit_code:
        raise typer.Exit(done.exit_code)


def _check_launcher(
    launcher: str, slurm: Sequence[str] | None, *, is_tuned: bool, budget: str | None
) -> None:
    if launcher not in LAUNCHERS:
        raise UsageError(f"--launcher {launcher!r} is unknown. Valid: {', '.join(LAUNCHERS)}.")
    if launcher == "turns" and slurm:
        raise UsageError("--slurm belongs to --launcher slurm.")
    if launcher == "slurm" and is_tuned:
        raise UsageError(
            "--launcher slurm cannot tune: cells wait for their trials. Use --launcher turns."
        )
    if launcher == "slurm" and budget is not None:
        raise UsageError(
            "--budget needs all cells in one process. Leave it out, or use --launcher turns."
        )


def _tuning(
    sweep: Sweep, trials: int | None, epochs: int | None, over: str | None
) -> Budget | None:
    """Return the trials that the flags ask for, which go before those of the sweep's file."""
    from ncfbench.runs.trials import Budget
    from ncfbench.sweeps.cells import expand

    given = sweep.tuning
    if trials is None and given is None:
        for flag, value in (("--tune-epochs", epochs), ("--tune-over", over)):
            if value is not None:
                raise UsageError(f"{flag} belongs to --tune N: give the number of trials.")
        return None
    cells, _ = expand(sweep.axes, sweep.cells)
    third = max(1, round(min(cell.config.epochs for cell in cells) / 3))
    flags = {
        "trials": trials,
        "epochs": epochs if epochs is not None or given else third,
        "settings": None if over is None else options.names(over.replace("-", "_")),
    }
    wanted = asdict(given) if given else {}
    try:
        return Budget(**wanted | {name: flag for name, flag in flags.items() if flag is not None})
    except UsageError as error:
        raise UsageError(f"--tune: {error}") from error


def _print(done: SweepRun, *, dry_run: bool, json_: bool) -> None:
    import jax

    from ncfbench.reporting.views.layout import SIMULATED_NOTE
    from ncfbench.sweeps.cells import predicted_seconds
    from ncfbench.sweeps.forecast import predict_memory
    from ncfbench.sweeps.table import cell_rows, cells_table, format_size
    from ncfbench.timing.clock import format_duration

    rows, trials = (cell_rows(part, predicts=dry_run) for part in (done.cells, done.trials))
    memory = predict_memory(done.cells)
    runs_dir = done.locations.runs_dir
    if dry_run:
        for problem in done.problems:
            say(f"Warning: {problem}")
    if json_:
        found = {"dropped": done.dropped, "trials": trials, "memory_bytes": memory}
        print_json(_described(done, rows) | found)
    else:
        if done.sweep.tuning is not None:
            title = f"Tuning ({done.sweep.tuning.label})"
            print_views(cells_table(title, trials), *done.notes)
        has_several = any(cell.config.devices > 1 for cell in done.cells)
        simulated = has_several and jax.default_backend() == "cpu"
        print_views(cells_table(done.sweep.title, rows), *([SIMULATED_NOTE] if simulated else []))
        if dry_run:
            seconds = predicted_seconds([*done.trials, *done.cells])
            most = max(memory or 0, predict_memory(done.trials) or 0)
            print_views(
                f"Predicted for all cells: {format_duration(seconds)}, and {format_size(most)} on"
                " the device beside the data and the program. Cells that take turns are open"
                " together."
            )
        elif not done.exit_code:
            print_views(
                f"Records: {shown(runs_dir)}. The sweep's file: {done.file}. To compare the cells:"
                f" {_report_command(done, runs_dir)}"
            )
    for row in rows:
        if row["status"] in ("failed", "diverged"):
            say(f"{row['status'].capitalize()}: {row['cell']}: {row['message']}")


def _launch(
    sweep: Sweep,
    locations: Locations,
    assignments: Sequence[str],
    tell: Callable[[str], None],
    *,
    dry_run: bool,
    json_: bool,
) -> None:
    """Submit the cells that are neither over nor in the queue; or print what would be submitted."""
    from ncfbench.sweeps.slurm import launch, slurm_parameters
    from ncfbench.sweeps.table import cell_rows, cells_table

    parameters = slurm_parameters(assignments)
    done = launch(sweep, locations, parameters, dry_run=dry_run, tell=tell)
    for problem in done.problems:
        say(f"Warning: {problem}")
    rows = [
        row | {"job": cell.job} for cell, row in zip(done.cells, cell_rows(done.cells), strict=True)
    ]
    waiting = sum(cell.status == "in queue" for cell in done.cells)
    left = [cell for cell in done.cells if not (cell.is_over or cell.status == "in queue")]
    jobs = [cell.job for cell in left if cell.job]
    counts = f"{len(left)} of {len(rows)} cells"
    if json_:
        found = {"folder": done.folder, "parameters": parameters, "submitted": jobs}
        print_json(_described(done, rows) | found)
    elif dry_run:
        given = "".join(f" {key}={value}" for key, value in parameters.items())
        print_views(cells_table(sweep.title, rows), f"To submit: {counts}, with{given}.")
    elif done.folder is not None:
        arrays = ", ".join(dict.fromkeys(job.partition("_")[0] for job in jobs))
        queued = f" {waiting} were in the queue already." if waiting else ""
        print_views(f"Submitted job {arrays}: {counts}.{queued} Logs: {done.folder}")
    elif waiting:
        print_views(f"Nothing to submit: {waiting} of {len(rows)} cells are in the queue already.")
    else:
        command = _report_command(done, locations.runs_dir)
        print_views(f"All {len(rows)} cells are over. To compare them: {command}")


def _report_command(done: SweepRun, runs_dir: Path) -> str:
    name = [] if done.file is None else [done.file.stem]
    return shlex.join(["ncfbench", "report", *name, "--runs-dir", str(runs_dir)])


def _described(done: SweepRun, rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    left_out = done.left_out.items()
    return {
        "sweep": done.sweep.name,
        "title": done.sweep.title,
        "file": done.file,
        "cells": rows,
        "left_out": [{"reason": text, "combinations": count} for text, count in left_out],
        "problems": done.problems,
    }
