"""``ncfbench recommend``: the best items of new users, from their histories."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ncfbench.cli import options
from ncfbench.cli.options import option
from ncfbench.cli.output import print_json, reporting, say


@reporting
def recommend(
    run: Annotated[
        Path,
        typer.Argument(
            help="Folder of a run with --user-tower history, or its name below --runs-dir."
        ),
    ],
    history: Annotated[
        Path,
        option(
            metavar="FILE",
            help="A row for each user and item, in any format of `ncfbench prepare custom`, with"
            " the item ids of the prepared data.",
        ),
    ],
    count: Annotated[
        int, option("--count", "-m", metavar="M", help="Items of each user.", default=True)
    ] = 50,
    output: Annotated[
        Path | None,
        option(
            "--output",
            "-o",
            metavar="FILE",
            help="Parquet file to write. Default: recommendations-new-users.parquet in RUN.",
        ),
    ] = None,
    user_column: Annotated[
        str | None, option(help="Column of the users' ids. Default: one of a usual name.")
    ] = None,
    item_column: Annotated[
        str | None, option(help="Column of the items' ids. Default: one of a usual name.")
    ] = None,
    data_dir: options.DataDir = None,
    runs_dir: options.RunsDir = None,
    json_: options.Json = False,
) -> None:
    """Recommend items to users whom training does not know, from their histories, without training.

    A user's vector is made of the items of the file, as it is for users of the training data. The
    items that the run's test ranks are ranked for her, without those of her history. Items that
    the data do not have are counted and left out. For users of the training data: ncfbench run
    --recommend.

    Example: ncfbench recommend runs/custom-bow-softmax-strat-ns-seed0-1a2b3c --history new.csv
    """
    from ncfbench.training.new_users import recommend as write

    path = write(
        run,
        history=history,
        count=count,
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
