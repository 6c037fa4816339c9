"""``ncfbench advise``: what to train with, found by a race within a budget of time."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from ncfbench.cli import options
from ncfbench.cli.failures import reporting
from ncfbench.cli.options import option
from ncfbench.cli.output import print_answer, progress_bar


@reporting
def advise(
    dataset: Annotated[str, typer.Argument(help="Prepared data set.")],
    budget: Annotated[str, typer.Option(help="Wall time for all of it: 10m, 1h30m.")] = "10m",
    metric: Annotated[
        str,
        typer.Option(help="What ranking is judged by: recall@50, ndcg@20, mrr ...", metavar="NAME"),
    ] = "recall@50",
    try_: Annotated[
        list[str] | None,
        option(
            "--try",
            metavar="KEY=V[,V]",
            help="Values to try of a setting, such as loss=softmax,log.",
        ),
    ] = None,
    set_: Annotated[
        list[str] | None,
        option("--set", metavar="NAME=VALUE", help="Any other setting, for all arms."),
    ] = None,
    data_dir: options.DataDir = None,
    runs_dir: options.RunsDir = None,
    quiet: options.Quiet = False,
    json_: options.Json = False,
) -> None:
    """Say what to train with on a data set, and whether to train at all.

    Arms train in turn until the budget is spent. Slow ones are dropped, and variants of the
    leaders are added. The answer names the settings, what they reach and when, what is reached
    without training, what each choice is worth, and how far to trust it.

    Runs and answer are kept in `advice` below the runs; `ncfbench report FOLDER` of it prints the
    answer again.

    Example: ncfbench advise custom --budget 10m
    """
    began, seconds = time.perf_counter(), options.parse_duration(budget, "--budget")
    from ncfbench.advice import pipeline, summary

    advice = pipeline.advise(
        dataset,
        budget_seconds=seconds,
        metric=metric,
        tried=options.parse_values("--try", try_ or (), "loss=softmax,log"),
        data_dir=data_dir,
        runs_dir=runs_dir,
        progress=progress_bar(quiet=quiet),
        assignments=set_ or (),
        began=began,
    )
    print_answer(advice.document, summary.answer_tables(advice.answer), as_json=json_)
