"""``ncfbench sweep``: train a grid of settings."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ncfbench.cli import options
from ncfbench.cli.launch import launch
from ncfbench.cli.output import print_json, print_views, reporting, say
from ncfbench.distributed.simulation import simulate
from ncfbench.errors import UsageError

if TYPE_CHECKING:
    from ncfbench.config import RunConfig
    from ncfbench.runs.trials import Budget
    from ncfbench.sweeps.overview import Overview
    from ncfbench.sweeps.pipeline import Stage, Tuning

LAUNCHERS = ("local", "slurm")
UNITS = {"h": 3600.0, "m": 60.0, "s": 1.0}


@reporting
def sweep(
    source: Annotated[
        str, typer.Argument(metavar="PRESET|FILE.toml", help="A sweep of the program, or a file.")
    ],
    seeds: Annotated[
        int | None,
        typer.Option(help="So many seeds, from the sweep's first on.", show_default="the sweep's"),
    ] = None,
    dataset: Annotated[
        str | None, typer.Option(help="Prepared data set, or several.", show_default="the sweep's")
    ] = None,
    epochs: Annotated[
        int | None, typer.Option(help="Passes over the training links.", show_default="the sweep's")
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
        ),
    ] = None,
    tune_epochs: Annotated[
        int | None, typer.Option(help="Epochs of a trial.", show_default="a third of the sweep's")
    ] = None,
    tune_over: Annotated[
        str | None,
        typer.Option(
            help="Settings to tune: any of learning_rate, word_dropout, item_dropout.",
            show_default="learning_rate",
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
            help=(
                f"{', '.join(LAUNCHERS)}: cells here, in turn; or as an array job, each alone on"
                " its device."
            )
        ),
    ] = "local",
    slurm: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY[=VALUE]",
            help="An option of sbatch: partition=gpu, gres=gpu:1, requeue.",
            show_default=False,
        ),
    ] = None,
    data_dir: options.DataDir = None,
    runs_dir: options.RunsDir = None,
    quiet: options.Quiet = False,
    json_: options.Json = False,
) -> None:
    """Train a grid of settings, and go on where it was stopped.

    Presets: paper-speedup, paper-recall, paper-strata, paper-negatives, paper-encoders, smoke. In a
        file of settings a list
    makes a grid: sampler = ["iid", "ns"], seed = [0, 1, 2]. Combinations that cannot work are left
        out.

    Cells whose times are compared are trained in turn, one epoch each. The same command again goes
    on: finished cells are not repeated, the others resume from their last checkpoints. `ncfbench
    report` then compares them.

    With --launcher slurm every cell is a task of one array job, alone on its device, and reports
    mark that it took no turns; --dry-run only prints the job. The same command again submits what
    is neither finished nor in the queue.

    With --tune N every arm first has N trials with a seed of their own; their runs are kept in
    `tuning` below the runs.

    Example: ncfbench sweep smoke
    """
    from ncfbench.config import merge
    from ncfbench.sweeps import grid as sweeps

    _check_launcher(launcher, slurm, tune=tune, budget=budget)
    allowed = None if budget is None else _seconds(budget)
    flags = {"dataset": dataset, "epochs": epochs}
    wanted = sweeps.read(source, flags=flags, assignments=set_ or (), seeds=seeds)
    grid = sweeps.expand(wanted.axes)
    spent = _tuning_budget(grid.cells, tune, tune_epochs, tune_over)
    _, places = merge({"data_dir": data_dir, "runs_dir": runs_dir})
    tell: Callable[[str], None] = (lambda text: None) if quiet else say
    for each in grid.left_out:
        tell(f"Left out ({each.combinations}): {each.reason}")
    if launcher == "slurm":
        launch(wanted, grid, places, slurm or (), tell, dry_run=dry_run, json_=json_)
        return
    simulate(max(config.devices for config in grid.cells))
    from ncfbench.data import open_dataset
    from ncfbench.sweeps.overview import Overview
    from ncfbench.sweeps.pipeline import Stage, Tuning
    from ncfbench.sweeps.table import rows
    from ncfbench.timing.compile_cache import keep_compiled

    keep_compiled(tell)
    datasets = {
        name: open_dataset(places.data_dir, name, tell)
        for name in dict.fromkeys(c.dataset for c in grid.cells)
    }
    stage = Stage(grid.cells, datasets, places, tell, Overview if quiet else _overview)
    tuning = None if spent is None else Tuning(stage, spent)
    dropped: tuple[str, ...] = ()
    if dry_run or allowed is not None:
        if tuning is not None:
            tuning.choose(stage, final=False)
            tuning.stage.predict()
        stage.predict()
    if allowed is not None:
        trials = 0.0 if tuning is None else tuning.stage.seconds
        if trials >= allowed:
            raise UsageError(
                f"The trials of --tune alone are predicted to take {trials:,.0f} s. Use fewer, or a"
                " larger --budget."
            )
        dropped = stage.fit(allowed - trials)
        if dropped:
            say(
                f"Dropped to fit {budget}: {', '.join(dropped)}"
                f" ({len(grid.cells) - len(stage.cells)} cells)."
            )
    problems = stage.survey().problems
    if dry_run:
        for problem in problems:
            say(f"Warning: {problem}")
    else:
        try:
            if tuning is not None:
                tell(f"Tuning: {len(tuning.stage.cells)} trials, {spent.label if spent else ''}.")
                tuning.stage.train()
                tuning.choose(stage, final=True)
            stage.train()
        except KeyboardInterrupt:
            say("To go on with this sweep: repeat the command.")
            raise
    table = rows(
        stage.survey(), predicted=stage.predicted if dry_run else None, failed=stage.failed
    )
    tuned = (
        []
        if tuning is None
        else rows(tuning.stage.survey(), predicted=tuning.stage.predicted if dry_run else None)
    )
    if json_:
        head = {
            "sweep": wanted.name,
            "title": wanted.title,
            "dropped": dropped,
            "problems": problems,
        }
        left_out = [
            {"reason": each.reason, "combinations": each.combinations} for each in grid.left_out
        ]
        print_json(
            head
            | {
                "left_out": left_out,
                "cells": table,
                "trials": tuned,
                "memory_bytes": stage.memory_bytes,
            }
        )
    else:
        _print(wanted.title, table, tuned, stage, tuning, dry_run=dry_run)
    for row in table:
        if row["status"] in ("failed", "diverged"):
            say(f"{row['status'].capitalize()}: {row['cell']}: {row['message']}")
    if stage.exit_code:
        raise typer.Exit(stage.exit_code)


def _check_launcher(
    launcher: str, slurm: Sequence[str] | None, *, tune: int | None, budget: str | None
) -> None:
    if launcher not in LAUNCHERS:
        raise UsageError(f"--launcher {launcher!r} is unknown. Valid: {', '.join(LAUNCHERS)}.")
    if launcher != "slurm" and slurm:
        raise UsageError("--slurm belongs to --launcher slurm.")
    if launcher == "slurm" and (tune is not None or budget is not None):
        raise UsageError(
            "--tune and --budget need all cells in one process. Leave them out, or use --launcher"
            " local."
        )


def _tuning_budget(
    cells: Sequence[RunConfig], trials: int | None, epochs: int | None, over: str | None
) -> Budget | None:
    if trials is None:
        for flag, value in (("--tune-epochs", epochs), ("--tune-over", over)):
            if value is not None:
                raise UsageError(f"{flag} belongs to --tune N: say how many trials.")
        return None
    from ncfbench.runs.trials import Budget

    epochs = max(1, round(min(config.epochs for config in cells) / 3)) if epochs is None else epochs
    over = "learning_rate" if over is None else over
    names = [name.strip().replace("-", "_") for name in over.split(",") if name.strip()]
    return Budget(trials, epochs, tuple(dict.fromkeys(names)))


def _print(
    title: str,
    table: Sequence[Mapping[str, Any]],
    trials: Sequence[Mapping[str, Any]],
    stage: Stage,
    tuning: Tuning | None,
    *,
    dry_run: bool,
) -> None:
    from ncfbench.distributed.simulation import is_simulated
    from ncfbench.report import marks
    from ncfbench.sweeps.table import duration, size, view

    if tuning is not None:
        print_views(view(f"Tuning ({tuning.budget.label})", trials), *tuning.lines)
    simulated = (
        [marks.SIMULATED_NOTE]
        if any(map(is_simulated, (row["config"]["devices"] for row in table)))
        else []
    )
    print_views(view(title, table), *simulated)
    if dry_run:
        seconds = stage.seconds + (0.0 if tuning is None else tuning.stage.seconds)
        most = max(stage.memory_bytes or 0, 0 if tuning is None else tuning.stage.memory_bytes or 0)
        print_views(
            f"Predicted for all: {duration(seconds)}, and {size(most)} at once beside the data and"
            " the program: cells that take turns are open together."
        )
    elif not stage.exit_code:
        runs_dir = stage.places.runs_dir
        print_views(f"Records: {runs_dir}. To compare them: ncfbench report --runs-dir {runs_dir}")


def _seconds(text: str) -> float:
    """``2h``, ``90m`` or ``1h30m`` as seconds."""
    bare = text.replace(" ", "")
    if not re.fullmatch(r"(\d+(\.\d+)?[hms])+", bare):
        raise UsageError(f"--budget {text!r} is not a time. Use for example 2h, 90m or 1h30m.")
    return sum(
        float(number) * UNITS[unit] for number, unit in re.findall(r"(\d+(?:\.\d+)?)([hms])", bare)
    )


def _overview() -> Overview:
    """Progress on standard error: live on a terminal, else plain lines."""
    from ncfbench.report.render.console import make_console
    from ncfbench.sweeps.overview import LiveOverview, PlainOverview

    console = make_console(stderr=True)
    return (
        LiveOverview(console)
        if console.is_terminal and not console.is_dumb_terminal
        else PlainOverview(console)
    )
