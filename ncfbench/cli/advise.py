"""``ncfbench advise``: what to train with, found by a race within a budget of time."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from ncfbench.cli import options
from ncfbench.cli.output import print_json, print_views, reporting, say, typed_with
from ncfbench.errors import INTERRUPTED_EXIT_CODE, UsageError

if TYPE_CHECKING:
    from ncfbench.advice.pipeline import Advice

WIDTH = 80
Value = TypeVar("Value")


@reporting
def advise(
    dataset: Annotated[str, typer.Argument(help="Prepared data set.")],
    encoder: Annotated[str, typer.Option(help="Item function g.")] = "cnn",
    budget: Annotated[str, typer.Option(help="Wall time for all of it: 10m, 1h30m.")] = "10m",
    target: Annotated[
        str,
        typer.Option(
            help=(
                "loss: which sampler, batch and rate are the first at a loss. recall: which are the"
                " first at a recall on validation items; losses compete too."
            )
        ),
    ] = "loss",
    loss: Annotated[
        str | None,
        typer.Option(
            metavar="LOSS[,LOSS]", help="Loss function.", show_default="sg; for recall all"
        ),
    ] = None,
    samplers: Annotated[
        str | None,
        typer.Option(
            metavar="NAME[,NAME]", help="Samplers to try.", show_default="the paper's five"
        ),
    ] = None,
    batch_sizes: Annotated[
        str | None, typer.Option(metavar="B[,B]", help="Batch sizes.", show_default="256,512,1024")
    ] = None,
    stratum_sizes: Annotated[
        str | None, typer.Option(metavar="S[,S]", help="Stratum sizes.", show_default="2,4,8")
    ] = None,
    negatives: Annotated[
        str | None,
        typer.Option(
            metavar="K[,K]",
            help="Negatives of each positive link, where they are drawn one by one.",
            show_default="1, 0.3 and 0.1 times the encoder's",
        ),
    ] = None,
    learning_rates: Annotated[
        str | None,
        typer.Option(
            metavar="RATE[,RATE]",
            help="Learning rates.",
            show_default="the loss's, and its multiples",
        ),
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
    from ncfbench.advice.pipeline import answer_question
    from ncfbench.advice.question import Question
    from ncfbench.data.assets import merge_named

    flags = {"dataset": dataset, "data_dir": data_dir, "runs_dir": runs_dir}
    fixed, locations = merge_named(say, flags, set_ or ())
    given: dict[str, Any] = {
        "losses": _list(loss, str, "--loss"),
        "samplers": _list(samplers, str, "--samplers"),
        "batch_sizes": _list(batch_sizes, int, "--batch-sizes"),
        "stratum_sizes": _list(stratum_sizes, int, "--stratum-sizes"),
        "negatives": _list(negatives, int, "--negatives"),
        "learning_rates": _list(learning_rates, float, "--learning-rates"),
    }
    question = Question(
        {"encoder": encoder, **fixed},
        target=target,  # type: ignore[arg-type]
        seeds=seeds,
        **{name: values for name, values in given.items() if values},
    )
    tell: Callable[[str], None] = (lambda text: None) if quiet else say
    advice = answer_question(question, locations, seconds, dry_run=dry_run, say=tell)
    folders = {"--data-dir": data_dir, "--runs-dir": runs_dir}
    given_locations = {flag: str(path) for flag, path in folders.items() if path is not None}
    if json_:
        print_json(_json(advice, given_locations))
    else:
        _print(advice, given_locations)
    if not advice.is_complete and not dry_run:
        say(f"Interrupted; this is the answer so far. The same command continues: {typed_with()}")
        raise typer.Exit(INTERRUPTED_EXIT_CODE)


def print_answer(found: Mapping[str, Any]) -> None:
    """Print a race's answer as it was kept: the paragraph, what to trust, what to do next."""
    views = [_folded(found["headline"]), ""]
    views += [_folded(f"How far to trust it: {' '.join(found['trust'])}"), ""]
    for step in found["next"]:
        views += [f"{step['purpose']}:", f"  {step['command']}"]
    print_views(*views)


def _json(advice: Advice, locations: Mapping[str, str]) -> dict[str, Any]:
    from ncfbench.advice import summary

    if advice.answer is None:
        state = advice.state
        return {
            "entrants": {each.name: each.predicted_seconds for each in state.entrants},
            "left_out": [{"what": each.what, "reason": each.reason} for each in state.left_out],
            "first_clock_seconds": state.first_clock,
            "horizon_seconds": state.horizon,
        }
    return summary.as_json(advice.answer, advice.folder, locations) | {"figure": advice.figure}


def _print(advice: Advice, locations: Mapping[str, str]) -> None:
    from ncfbench.advice import summary
    from ncfbench.reporting.table import Column, Table

    answer = advice.answer
    if answer is None:
        state = advice.state
        rows = [[each.name, f"{1e3 * each.predicted_seconds:.3g}"] for each in state.entrants]
        note = (
            f"First rung: {state.first_clock:.3g} s of training each; the last ends at about"
            f" {state.horizon:.3g} s."
        )
        print_views(Table("Would race", ["", "ms an iteration"], rows, [note]))
        left = [[each.what, each.reason] for each in state.left_out]
        if left:
            print_views(Table("Left out", ["", Column("reason", "left", wraps=True)], left))
        return
    views: list[Any] = [_folded(summary.headline(answer)), ""]
    for table in (summary.standings_table(answer), summary.left_table(answer)):
        views += [table] if table.rows else []
    trust = [*answer.state.notes, *summary.trust(answer)]
    views += [_folded(f"How far to trust it: {' '.join(trust)}"), ""] if trust else []
    for purpose, command in summary.next_steps(answer, advice.folder, locations):
        views += [f"{purpose}:", f"  {command}"]
    files = [advice.folder / "advice.parquet", *filter(None, [advice.figure])]
    print_views(*views, "", f"Written: {', '.join(map(str, files))}")


def _folded(text: str) -> str:
    """Return a paragraph in lines of 80 columns; flags stay whole."""
    return textwrap.fill(text, WIDTH, break_on_hyphens=False, break_long_words=False)


def _list(text: str | None, kind: Callable[[str], Value], flag: str) -> tuple[Value, ...]:
    try:
        return tuple(kind(part) for part in options.names(text or ""))
    except ValueError as error:
        raise UsageError(f"{flag} {text!r} is not a list of numbers.") from error
