"""``ncfbench race``: which command, or which of its settings, reaches a quality soonest."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ncfbench.cli import options
from ncfbench.cli.failures import reporting
from ncfbench.cli.options import option
from ncfbench.cli.output import print_answer, progress_bar
from ncfbench.errors import CheckFailedError


@reporting
def race(
    commands: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="COMMAND...",
            help="Commands for the shell, in quotes; {name} stands for a parameter.",
            show_default=False,
        ),
    ] = None,
    budget: Annotated[str, typer.Option(help="Wall time for all of it: 10m, 1h30m.")] = "10m",
    metric: Annotated[
        str | None,
        option(
            metavar="NAME|REGEX",
            help=(
                "The number in lines of JSON, or a regular expression with a group, such as"
                " 'recall@50=([0-9.]+)'. A group called step is read too."
            ),
            default="metric, or the only number in lines of JSON",
        ),
    ] = None,
    minimize: Annotated[
        bool | None,
        option(
            "--minimize/--maximize",
            help="Less, or more, of the metric is better.",
            default="what its name says, such as loss or recall",
        ),
    ] = None,
    target: Annotated[
        float | None,
        option(help="The value to reach soonest.", default="0.95 of the best quality"),
    ] = None,
    try_: Annotated[
        list[str] | None,
        option(
            "--try",
            metavar="NAME=V[,V]",
            help="Values of a parameter; of several, all combinations race.",
            panel="Arms",
        ),
    ] = None,
    names: Annotated[
        list[str] | None,
        option("-n", "--name", help="Name of a command, in their order.", panel="Arms"),
    ] = None,
    seeds: Annotated[
        int | None,
        option(
            help="Repeats of the finalists, where the command has {seed}.",
            panel="Arms",
            default="2 with {seed}, else 1",
        ),
    ] = None,
    markdown: Annotated[
        Path | None, option(metavar="FILE", help="Write answer and tables.", panel="Output")
    ] = None,
    quiet: options.Quiet = False,
    json_: options.Json = False,
) -> None:
    """Say which command, or which of its settings, reaches a quality soonest.

    For any program that prints its metric now and then, as a line of JSON such as {"recall": 0.31,
    "step": 200} or in words that --metric matches. Arms take turns: each runs alone and is paused,
    so that all meet the same machine, and slow ones leave. The answer names the soonest, how much
    sooner it is, and how far to trust that.

    Example: ncfbench race --budget 5m --try lr=1e-4,1e-3 'python train.py --lr {lr}'
    """
    from ncfbench.racing import summary
    from ncfbench.racing.pipeline import race as run_race
    from ncfbench.reporting.render.markdown import escape, render
    from ncfbench.storage.tables import storage_errors, write_text

    seconds = options.parse_duration(budget, "--budget")
    parameters = options.parse_values("--try", try_ or (), "lr=1e-4,1e-3")
    if markdown is not None:
        with storage_errors(markdown):  # refused now rather than after the race
            markdown.parent.stat()
    outcome = run_race(
        commands or (),
        parameters=parameters,
        budget_seconds=seconds,
        metric=metric,
        minimize=minimize,
        target=target,
        names=names or (),
        seeds=seeds,
        progress=progress_bar(quiet=quiet),
    )
    found, shown = outcome.document, summary.answer_tables(outcome.answer)
    if markdown is not None:
        text = [found["headline"], f"How far to trust it: {' '.join(found['trust'])}"]
        write_text(markdown, "\n\n".join([*map(escape, text), render(shown)]))
    print_answer(found, shown, as_json=json_)
    if outcome.answer.best is None:
        raise typer.Exit(CheckFailedError.exit_code)
