"""``ncfbench sweep``: train a grid of settings."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

from ncfbench.cli import options
from ncfbench.cli.output import print_json, print_views, reporting, say
from ncfbench.errors import UsageError

if TYPE_CHECKING:
    from ncfbench.overview import Overview

UNITS = {"h": 3600.0, "m": 60.0, "s": 1.0}


@reporting
def sweep(
    source: Annotated[str, typer.Argument(metavar="PRESET|FILE.toml", help="A sweep of the program, or a file.")],
    seeds: Annotated[
        int | None, typer.Option(help="So many seeds, from the sweep's first on.", show_default="the sweep's")
    ] = None,
    dataset: Annotated[str | None, typer.Option(help="Prepared data set, or several.", show_default="the sweep's")] = None,
    epochs: Annotated[int | None, typer.Option(help="Passes over the training links.", show_default="the sweep's")] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE[,VALUE]", help="Any setting; values make a grid.", show_default=False),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="List the cells, how far they are, and the seconds they still need.")
    ] = False,
    budget: Annotated[
        str | None,
        typer.Option(help="Drop seeds until the prediction fits, for example 2h or 1h30m.", show_default=False),
    ] = None,
    data_dir: options.DataDir = None,
    runs_dir: options.RunsDir = None,
    quiet: options.Quiet = False,
    json_: options.Json = False,
) -> None:
    """Train a grid of settings, and go on where it was stopped.

    Presets: paper-speedup, paper-recall, paper-strata, paper-negatives, paper-encoders, smoke. In a file of settings a list
    makes a grid: sampler = ["iid", "ns"], seed = [0, 1, 2]. Combinations that cannot work are left out.

    Cells whose times are compared are trained in turn, one epoch each. The same command again goes on: finished cells are not
    repeated, the others resume from their last checkpoints. `ncfbench report` then compares them.

    Example: ncfbench sweep smoke
    """
    from ncfbench import sweeps
    from ncfbench.config import RunConfig, merge

    allowed = None if budget is None else _seconds(budget)
    flags = {"dataset": dataset, "epochs": epochs}
    wanted = sweeps.read(source, flags=flags, assignments=set_ or (), seeds=seeds)
    grid = sweeps.expand(wanted.axes)
    _, places = merge({"data_dir": data_dir, "runs_dir": runs_dir})
    from ncfbench import sweeping
    from ncfbench.compilation import keep_compiled
    from ncfbench.datasets import open_dataset
    from ncfbench.overview import Overview
    from ncfbench.report.sweep import duration, rows, view
    from ncfbench.survey import survey

    tell: Callable[[str], None] = (lambda text: None) if quiet else say
    for each in grid.left_out:
        tell(f"Left out ({each.combinations}): {each.reason}")
    keep_compiled(tell)
    datasets = {name: open_dataset(places.data_dir, name, tell) for name in dict.fromkeys(c.dataset for c in grid.cells)}
    fingerprints = {name: each.fingerprint for name, each in datasets.items()}
    cells = grid.cells
    dropped: tuple[int, ...] = ()
    found = survey(places.runs_dir, cells, fingerprints)
    predicted = None
    if dry_run or allowed is not None:
        from ncfbench import forecast

        predicted = forecast.predict(found.states, datasets, places.runs_dir, tell)
    if predicted is not None and allowed is not None:
        cells, dropped = sweeps.within(cells, {config: seconds for config, (seconds, _) in predicted.items()}, allowed)
        if dropped:
            say(f"Dropped to fit {budget}: seed {', '.join(map(str, dropped))} ({len(grid.cells) - len(cells)} cells).")
        found = survey(places.runs_dir, cells, fingerprints)
    failed: dict[RunConfig, str] = {}
    code = 0
    if dry_run:
        for problem in found.problems:
            say(f"Warning: {problem}")
    else:
        predicted = None
        try:
            outcome = sweeping.run(cells, datasets, places, Overview() if quiet else _overview())
        except KeyboardInterrupt:
            say("To go on with this sweep: repeat the command.")
            raise
        failed, code = outcome.failed, outcome.exit_code
        found = survey(places.runs_dir, cells, fingerprints)
    table = rows(found, predicted=predicted, failed=failed)
    if json_:
        head = {"sweep": wanted.name, "title": wanted.title, "dropped_seeds": dropped, "problems": found.problems}
        left_out = [{"reason": each.reason, "combinations": each.combinations} for each in grid.left_out]
        print_json(head | {"left_out": left_out, "cells": table})
    else:
        print_views(view(wanted.title, table))
        if predicted is not None:
            print_views(f"Predicted for all: {duration(sum(predicted[config][0] for config in cells))}")
        elif not code:
            print_views(f"Records: {places.runs_dir}. To compare them: ncfbench report --runs-dir {places.runs_dir}")
    for row in table:
        if row["status"] in ("failed", "diverged"):
            say(f"{row['status'].capitalize()}: {row['cell']}: {row['message']}")
    if code:
        raise typer.Exit(code)


def _seconds(text: str) -> float:
    """``2h``, ``90m`` or ``1h30m`` as seconds."""
    if not re.fullmatch(r"(\d+(\.\d+)?[hms])+", text.replace(" ", "")):
        raise UsageError(f"--budget {text!r} is not a time. Use for example 2h, 90m or 1h30m.")
    return sum(float(number) * UNITS[unit] for number, unit in re.findall(r"(\d+(?:\.\d+)?)([hms])", text))


def _overview() -> Overview:
    """Progress on standard error: live on a terminal, else plain lines."""
    from ncfbench.overview import LiveOverview, PlainOverview
    from ncfbench.report.console import make_console

    console = make_console(stderr=True)
    return LiveOverview(console) if console.is_terminal and not console.is_dumb_terminal else PlainOverview(console)
