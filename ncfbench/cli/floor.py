"""``ncfbench floor``: what a data set gives without training by gradients."""

from __future__ import annotations

from dataclasses import asdict
from itertools import chain, product
from typing import Annotated

from ncfbench.cli import options
from ncfbench.cli.failures import reporting
from ncfbench.cli.options import option
from ncfbench.cli.output import print_json, print_views


@reporting
def floor(
    dataset: options.Dataset = None,
    floors: Annotated[
        str,
        option(
            metavar="NAME[,NAME]",
            help="popularity, profile, ridge, denoised, ease, ials, separated by commas.",
            default=True,
        ),
    ] = "all",
    penalty: Annotated[
        float | None,
        option(help="Penalty of ridge, ease and ials. Default: each one's best by validation."),
    ] = None,
    budget: Annotated[
        str,
        option(metavar="TIME", help="Time that one floor may take: 60s, 10m, 1h.", default=True),
    ] = "10m",
    again: Annotated[bool, option("--again", help="Fit floors that are kept, too.")] = False,
    data_dir: options.DataDir = None,
    quiet: options.Quiet = False,
    json_: options.Json = False,
) -> None:
    """Show what simple models reach, in seconds and without training: the floor that an arm has to
    pass.

    New items are ranked by their texts and dense features: `profile` adds the vectors of a user's
    items, TF-IDF beside features, `ridge` regresses his links on them, and `denoised` his links
    with those that others' links predict. Known items, where data are prepared with --hold-out
    links, last or time, are ranked by their links too: `popularity`, `ease` (a regression of each
    item on all others) and `ials` (a factorisation). A penalty is chosen by recall@50 of the
    validation links, never of the test links. A floor that does not fit into memory or --budget is
    left out, with a sentence.

    Each floor is kept as soon as it is done, in floors.parquet beside the data set: Ctrl-C loses
    the one that is being fitted, and the same command goes on. docs/advise.md says which to use
    when.

    Examples:

    ncfbench floor citeulike

    ncfbench floor movielens --floors profile,ridge --penalty 5 --json
    """
    from ncfbench.floors.floor import floor as fit_floors
    from ncfbench.floors.models import FLOORS
    from ncfbench.reporting.render.terminal import make_console
    from ncfbench.reporting.views.floors import floors_table
    from ncfbench.storage.schemas import OF_USERS

    seconds = options.parse_duration(budget, "--budget")
    names = options.names(floors, FLOORS)
    console = make_console(stderr=True)
    console.quiet = quiet
    with console.status("") as status:
        result = fit_floors(
            dataset,
            floors=names,
            penalty=penalty,
            budget_seconds=seconds,
            again=again,
            data_dir=data_dir,
            say=lambda text: console.print(text, soft_wrap=True),
            show=status.update,
        )
    if json_:
        document = asdict(result) | {"notes": result.notes}
        for row, name in product(document["rows"], chain.from_iterable(OF_USERS.values())):
            del row[name]  # thousands of numbers
        print_json(document)
        return
    table = floors_table(result.dataset, result.rows, result.notes)
    print_views(table, f"Kept: {result.path}")
