"""``ncfbench recommend``: each user's best items, by a run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ncfbench.cli import options
from ncfbench.cli.options import option
from ncfbench.cli.output import print_json, reporting, say


@reporting
def recommend(
    run: Annotated[Path, typer.Argument(help="Folder of a run, or its name below --runs-dir.")],
    count: Annotated[
        int, option("--count", "-m", metavar="M", help="Items of each user.", default=True)
    ] = 50,
    output: Annotated[
        Path | None,
        option(
            "--output",
            "-o",
            metavar="FILE",
            help="Parquet file to write. Default: recommendations.parquet in RUN.",
        ),
    ] = None,
    data_dir: options.DataDir = None,
    runs_dir: options.RunsDir = None,
    json_: options.Json = False,
) -> None:
    """Write the M best items of every user, of those that the run's test ranks for her, without
    training.

    The parameters are those of the epoch that the run reports.

    Example: ncfbench recommend runs/custom-bow-softmax-strat-ns-seed0-1a2b3c
    """
    from ncfbench.training.recommend import recommend as write

    path = write(run, count=count, output=output, data_dir=data_dir, runs_dir=runs_dir, say=say)
    if json_:
        print_json({"recommendations": str(path)})
    else:
        typer.echo(f"Recommendations: {path}")
