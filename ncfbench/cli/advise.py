"""``ncfbench advise``: what to train with, found by a race within a budget of time."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Any, TypeVar

import typer

from ncfbench.cli import options
from ncfbench.cli.output import print_json, print_views, progress_bar, reporting, say, typed_with
from ncfbench.errors import INTERRUPTED_EXIT_CODE, UsageError
from ncfbench.reporting.table import Col, Table

WIDTH = 80
Value = TypeVar("Value")


def _values(letter: str, about: str, default: str) -> Any:
    """Return an option that takes a list."""
    return typer.Option(metavar=f"{letter}[,{letter}]", help=about, show_default=default)


@reporting
def advise(
    dataset: Annotated[str, typer.Argument(help="Prepared data set.")],
    preset: options.Preset = "paper",
    encoder: Annotated[
        str | None, typer.Option(help="Item function g.", show_default="cnn, or the preset's")
    ] = None,
    budget: Annotated[str, typer.Option(help="Wall time for all of it: 10m, 1h30m.")] = "10m",
    target: Annotated[
        str,
        typer.Option(
            help=(
                "loss: which sampler, batch and rate are the first at a loss. recall: which are the"
                " first at a recall of validation links; losses compete too."
            )
        ),
    ] = "loss",
    loss: Annotated[
        str | None, _values("LOSS", "Loss function.", "sg, or the preset's; for recall all")
    ] = None,
    samplers: Annotated[
        str | None, _values("NAME", "Samplers to try.", "most that serve the loss")
    ] = None,
    batch_sizes: Annotated[str | None, _values("B", "Batch sizes.", "256,512,1024")] = None,
    stratum_sizes: Annotated[str | None, _values("S", "Stratum sizes.", "2,4,8")] = None,
    negatives: Annotated[
        str | None,
        _values(
            "K",
            "Negatives of each positive link, where they are drawn one by one.",
            "1, 0.3 and 0.1 times the encoder's",
        ),
    ] = None,
    learning_rates: Annotated[
        str | None, _values("RATE", "Learning rates.", "the loss's, and its multiples")
    ] = None,
    seeds: Annotated[int, typer.Option(help="Seeds of the finalists.")] = 2,
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="Any other setting, for all candidates.",
            show_default=False,
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only list who would race, and who would not and why.")
    ] = False,
    data_dir: options.DataDir = None,
    runs_dir: options.RunsDir = None,
    quiet: options.Quiet = False,
    json_: options.Json = False,
) -> None:
    """Say which sampler, batch size and learning rate to train with on a data set.

    Candidates train in turn, in a race whose slow ones leave, until the budget is spent. Candidates
    that cannot win do not race. The answer names the settings, how much sooner they are than the
    best baseline, with an interval, what cannot be told from them, and how far to trust it.

    All is kept in `advice` below the runs. The same command continues an interrupted race, and
    trains an answered one further with a larger --budget.

    Example: ncfbench advise custom --encoder cnn --budget 10m
    """
    seconds = options.parse_duration(budget, "--budget")
    tried = {
        "samplers": _list(samplers, str, "--samplers"),
        "batch_sizes": _list(batch_sizes, int, "--batch-sizes"),
        "stratum_sizes": _list(stratum_sizes, int, "--stratum-sizes"),
        "negatives": _list(negatives, int, "--negatives"),
        "learning_rates": _list(learning_rates, float, "--learning-rates"),
    }
    from ncfbench.advice import pipeline, summary

    advice = pipeline.advise(
        dataset,
        preset=preset,
        encoder=encoder,
        budget_seconds=seconds,
        target=target,  # type: ignore[arg-type]
        loss=_list(loss, str, "--loss"),
        seeds=seeds,
        dry_run=dry_run,
        data_dir=data_dir,
        runs_dir=runs_dir,
        progress=progress_bar(quiet=quiet),
        assignments=set_ or (),
        **tried,
    )
    answer, folder = advice.answer, advice.folder
    if answer is None:
        state = advice.state
        field = {
            "entrants": {each.name: each.iteration_seconds for each in state.entrants},
            "left_out": [each._asdict() for each in state.left_out],
            "first_clock_seconds": state.first_clock,
            "horizon_seconds": state.horizon,
        }
        (print_json if json_ else _print_field)(field)
        return
    flags = {"--data-dir": data_dir, "--runs-dir": runs_dir}
    given = {flag: str(path) for flag, path in flags.items() if path is not None}
    found = summary.as_json(answer, folder, given) | {"figure": advice.figure}
    if json_:
        print_json(found)
    else:
        tables = summary.standings_table(answer), summary.left_table(answer)
        print_answer(found, [table for table in tables if table.rows])
        files = [folder / "advice.parquet", *filter(None, [advice.figure])]
        print_views("", f"Written: {', '.join(map(str, files))}")
    if not advice.is_complete:
        say(f"Interrupted; this is the answer so far. The same command continues: {typed_with()}")
        raise typer.Exit(INTERRUPTED_EXIT_CODE)


def print_answer(found: Mapping[str, Any], tables: Iterable[Table] = ()) -> None:
    """Print a race's answer: the paragraph, tables, what to trust, what to do next."""
    views: list[Table | str] = [_folded(found["headline"]), "", *tables]
    if found["trust"]:
        views += [_folded(f"How far to trust it: {' '.join(found['trust'])}"), ""]
    for step in found["next"]:
        views += [f"{step['purpose']}:", f"  {step['command']}"]
    print_views(*views)


def _print_field(found: Mapping[str, Any]) -> None:
    """Print who would race, and who would not and why."""
    note = (
        f"First rung: {found['first_clock_seconds']:.3g} s of training each; the last ends at about"
        f" {found['horizon_seconds']:.3g} s."
    )
    cols = [Col("", 0), Col("ms an iteration", 1, ".3g", scale=1e3)]
    print_views(Table.of("Would race", cols, found["entrants"].items(), [note]))
    if found["left_out"]:
        cols = [Col("", "what"), Col("reason", "reason", wraps=True)]
        print_views(Table.of("Left out", cols, found["left_out"]))


def _folded(text: str) -> str:
    """Return a paragraph in lines of 80 columns; flags stay whole."""
    return textwrap.fill(text, WIDTH, break_on_hyphens=False, break_long_words=False)


def _list(text: str | None, kind: Callable[[str], Value], flag: str) -> tuple[Value, ...]:
    try:
        return tuple(kind(part) for part in options.names(text or ""))
    except ValueError as error:
        raise UsageError(f"{flag} {text!r} is not a list of numbers.") from error
