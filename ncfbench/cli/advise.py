"""``ncfbench advise``: what to train with, found by a race within a budget of time."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Annotated, Any, TypeVar

import typer

from ncfbench.cli import options
from ncfbench.cli.output import (
    print_answer,
    print_json,
    print_views,
    progress_bar,
    reporting,
    say,
    typed_with,
)
from ncfbench.errors import INTERRUPTED_EXIT_CODE, UsageError

Value = TypeVar("Value")


def _values(letter: str, about: str, default: str) -> Any:
    """Return an option that takes a list."""
    return typer.Option(metavar=f"{letter}[,{letter}]", help=about, show_default=default)


@reporting
def advise(
    dataset: Annotated[str, typer.Argument(help="Prepared data set.")],
    budget: Annotated[str, typer.Option(help="Wall time for all of it: 10m, 1h30m.")] = "10m",
    metric: Annotated[
        str,
        typer.Option(help="What ranking is judged by: recall@50, ndcg@20, mrr ...", metavar="NAME"),
    ] = "recall@50",
    encoder: Annotated[
        str | None,
        _values("NAME", "Item functions g to try.", "bow, mlp, cnn, mf, as the data allow"),
    ] = None,
    loss: Annotated[str | None, _values("LOSS", "Loss functions to try.", "softmax,log,sg")] = None,
    samplers: Annotated[str | None, _values("NAME", "Samplers to try.", "strat-ns,ns,neg")] = None,
    batch_sizes: Annotated[str | None, _values("B", "Batch sizes.", "256,512,1024,2048")] = None,
    stratum_sizes: Annotated[str | None, _values("S", "Stratum sizes.", "2,4,8")] = None,
    negatives: Annotated[
        str | None,
        _values(
            "K",
            "Negatives of each positive link, where they are drawn one by one.",
            "3,10,30",
        ),
    ] = None,
    learning_rates: Annotated[
        str | None, _values("RATE", "Learning rates.", "0.001,0.003,0.01,0.03")
    ] = None,
    try_: Annotated[
        list[str] | None,
        typer.Option(
            "--try",
            metavar="KEY=V[,V]",
            help="Values to try of any other setting.",
            show_default=False,
        ),
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="Any other setting, for all candidates.",
            show_default=False,
        ),
    ] = None,
    data_dir: options.DataDir = None,
    runs_dir: options.RunsDir = None,
    quiet: options.Quiet = False,
    json_: options.Json = False,
) -> None:
    """Say what to train with on a data set, and whether to train at all.

    Candidates train in turn until the budget is spent. Slow ones are dropped, and variants of the
    leaders are added. The answer names the settings, what they reach and when, what is reached
    without training, what each choice is worth, and how far to trust it.

    All is kept in `advice` below the runs. The same command continues an interrupted race, and
    trains an answered one further with a larger --budget.

    Example: ncfbench advise custom --budget 10m
    """
    began, seconds = time.perf_counter(), options.parse_duration(budget, "--budget")
    tried = {
        "samplers": _list(samplers, str, "--samplers"),
        "batch_sizes": _list(batch_sizes, int, "--batch-sizes"),
        "stratum_sizes": _list(stratum_sizes, int, "--stratum-sizes"),
        "negatives": _list(negatives, int, "--negatives"),
        "learning_rates": _list(learning_rates, float, "--learning-rates"),
        "others": options.parse_tried(try_ or ()),
    }
    from ncfbench.advice import answer_rows, pipeline, summary

    advice = pipeline.advise(
        dataset,
        encoder=_list(encoder, str, "--encoder"),
        budget_seconds=seconds,
        metric=metric,
        loss=_list(loss, str, "--loss"),
        data_dir=data_dir,
        runs_dir=runs_dir,
        progress=progress_bar(quiet=quiet),
        assignments=set_ or (),
        began=began,
        **tried,
    )
    answer, folder = advice.answer, advice.folder
    flags = {"--data-dir": data_dir, "--runs-dir": runs_dir}
    given = {flag: str(path) for flag, path in flags.items() if path is not None}
    found = answer_rows.as_json(answer, folder, given)
    if json_:
        print_json(found)
    else:
        print_answer(found, summary.answer_tables(answer))
        print_views("", f"Written: {folder / 'advice.parquet'}")
    if not advice.is_complete:
        say(f"Interrupted; this is the answer so far. The same command continues: {typed_with()}")
        raise typer.Exit(INTERRUPTED_EXIT_CODE)


def _list(text: str | None, kind: Callable[[str], Value], flag: str) -> tuple[Value, ...]:
    try:
        return tuple(kind(part) for part in options.names(text or ""))
    except ValueError as error:
        raise UsageError(f"{flag} {text!r} is not a list of numbers.") from error
