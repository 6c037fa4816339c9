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
    history: Annotated[
        Path | None,
        option(
            metavar="FILE",
            help="Users whom training does not know: a row for each user and item, in any format of"
            " `ncfbench prepare custom`, with the item ids of the prepared data.",
        ),
    ] = None,
    output: Annotated[
        Path | None,
        option(
            "--output",
            "-o",
            metavar="FILE",
            help="Parquet file to write. Default: recommendations.parquet in RUN, or"
            " recommendations-new-users.parquet with --history.",
        ),
    ] = None,
    user_column: Annotated[
        str | None, option(help="Column of FILE with the users' ids. Default: one of a usual name.")
    ] = None,
    item_column: Annotated[
        str | None, option(help="Column of FILE with the items' ids. Default: one of a usual name.")
    ] = None,
    data_dir: options.DataDir = None,
    runs_dir: options.RunsDir = None,
    json_: options.Json = False,
) -> None:
    """Write the M best items of every user, of those that the run's test ranks for her, without
    training.

    The parameters are those of the epoch that the run reports. With --history the users are those
    of FILE, in place of those of the data set: a run with --user-tower history makes their vectors
    from their items. These are not ranked for them; items that the data do not have are counted
    and left out.

    Example: ncfbench recommend runs/custom-bow-softmax-strat-ns-seed0-1a2b3c --history new.csv
    """
    from ncfbench.training.recommend import recommend as write

    path = write(
        run,
        count=count,
        history=history,
        output=output,
        user_column=user_column,
        item_column=item_column,
        data_dir=data_dir,
        runs_dir=runs_dir,
        say=say,
    )
    if json_:
        print_json({"recommendations": str(path)})
    else:
        typer.echo(f"Recommendations: {path}")
