"""``ncfbench sweep``: train a grid of settings."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Annotated

import typer

from ncfbench.cli import options
from ncfbench.cli.failures import reporting, typed_without
from ncfbench.cli.options import option
from ncfbench.cli.output import print_json, print_views, say
from ncfbench.config import Locations
from ncfbench.errors import shown
from ncfbench.sweeps.presets import preset_titles

if TYPE_CHECKING:
    from ncfbench.sweeps.sweep import SweepRun

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
        option("--set", metavar="NAME=VALUE[,VALUE]", help="Any setting; values make a grid."),
    ] = None,
    cell: Annotated[
        int | None,
        option(metavar="N", help="Train this cell alone, from 0: a task of a job array."),
    ] = None,
    dry_run: Annotated[bool, option("--dry-run", help="List the cells and how far they are.")] = (
        False
    ),
    data_dir: options.DataDir = None,
    runs_dir: options.RunsDir = None,
    quiet: options.Quiet = False,
    json_: options.Json = False,
) -> None:
    """Train a grid of settings, or resume one.

    In a file of settings a list makes a grid: sampler = ["iid", "ns"], seed = [0, 1, 2].
    Combinations that cannot work are left out.

    The same command again resumes: finished cells are not repeated, the others resume from their
    last checkpoints. `ncfbench report` compares the cells.

    Cells whose times are compared take turns in this process, one epoch each. On a cluster, a task
    of a job array trains one cell: ncfbench sweep FILE --cell $SLURM_ARRAY_TASK_ID. Reports mark
    cells that took no turns.

    Example: ncfbench sweep smoke
    """
    from ncfbench.reporting.render.terminal import make_console
    from ncfbench.sweeps.progress import SweepProgress
    from ncfbench.sweeps.sweep import sweep as train_sweep

    console = None if quiet else make_console(stderr=True)
    try:
        done = train_sweep(
            source,
            data_dir=data_dir,
            runs_dir=runs_dir,
            seeds=seeds,
            cell=cell,
            dry_run=dry_run,
            assignments=set_ or (),
            say=(lambda text: None) if quiet else say,
            progress=lambda: SweepProgress(console),
            **options.as_keywords(flags),
        )
    except KeyboardInterrupt:
        where = f"The cells so far are in {shown(Locations.of(runs_dir=runs_dir).runs_dir)}."
        say(f"{where} To resume this sweep, repeat the command: {typed_without()}")
        raise
    _print(done, dry_run=dry_run, json_=json_)
    if done.exit_code:
        raise typer.Exit(done.exit_code)


def _print(done: SweepRun, *, dry_run: bool, json_: bool) -> None:
    from ncfbench.reporting.views.results import SIMULATED_NOTE
    from ncfbench.sweeps.table import cell_rows, cells_table

    rows, runs_dir = cell_rows(done.cells), done.locations.runs_dir
    failed = [row for row in rows if row["status"] in ("failed", "diverged")]
    if json_:
        left_out = [{"reason": text, "combinations": n} for text, n in done.left_out.items()]
        named = {"sweep": done.sweep.name, "title": done.sweep.title}
        print_json({**named, "cells": rows, "left_out": left_out})
    else:
        notes = []
        if any(cell.config.devices > 1 for cell in done.cells):
            import jax

            notes = [SIMULATED_NOTE] * (jax.default_backend() == "cpu")
        print_views(cells_table(done.sweep.title, rows), *notes)
        if not (dry_run or failed):
            print_views(
                f"Records: {shown(runs_dir)}. To compare the cells:"
                f" {shlex.join(['ncfbench', 'report', '--runs-dir', str(runs_dir)])}"
            )
    for row in failed:
        say(f"{row['status'].capitalize()}: {row['cell']}: {row['message']}")
