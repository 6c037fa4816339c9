"""``ncfbench race``: which command, or which of its settings, reaches a quality soonest."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from ncfbench.cli import options
from ncfbench.cli.options import option
from ncfbench.cli.output import (
    json_text,
    print_answer,
    print_json,
    print_views,
    reporting,
    say,
    typed,
)
from ncfbench.errors import INTERRUPTED_EXIT_CODE, CheckFailedError, UsageError

WORDS = {"-L": 2, "--parameter-list": 2, "-P": 3, "--parameter-scan": 3}
"""Options that take several words, and how many."""
MARK = "\x1f"
"""Between the words of such an option, once they are one."""


class RaceCommand(TyperCommand):
    """A command whose parameters are given as in hyperfine: ``-L NAME VALUES``."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Join the words of an option to one, since Typer's lists have options of one word."""
        return super().parse_args(ctx, joined(args))


def joined(args: Sequence[str]) -> list[str]:
    """Return the words of a command line with those of each option of :data:`WORDS` joined."""
    found, words = [], iter(args)
    for word in words:
        found.append(word)
        if word == "--":
            break
        if values := [*islice(words, WORDS.get(word, 0))]:
            found.append(MARK.join(values))
    return [*found, *words]


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
                " 'recall@50=([0-9.]+)'. Groups step and seconds are read too."
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
    lists: Annotated[
        list[str] | None,
        option(
            *("-L", "--parameter-list"),
            metavar="NAME V,V",
            help="Values of a parameter; of several, all combinations race.",
            panel="Arms",
        ),
    ] = None,
    ranges: Annotated[
        list[str] | None,
        option(
            *("-P", "--parameter-scan"),
            metavar="NAME MIN MAX",
            help="Values of a parameter from MIN to MAX.",
            panel="Arms",
        ),
    ] = None,
    step: Annotated[
        str, option("-D", "--parameter-step-size", help="Step of -P.", panel="Arms", default=True)
    ] = "1",
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
    turn: Annotated[
        str, option(help="Time of an arm before the next one runs.", panel="Clock", default=True)
    ] = "5s",
    count_startup: Annotated[
        bool,
        option("--count-startup", help="Count start-up and compilation too.", panel="Clock"),
    ] = False,
    silence: Annotated[
        str | None,
        option(
            metavar="TIME",
            help="An arm leaves that runs this long without a metric.",
            panel="Clock",
            default="30s, or a third of the budget if longer",
        ),
    ] = None,
    export_json: Annotated[
        Path | None, option(metavar="FILE", help="Write the answer.", panel="Output")
    ] = None,
    export_markdown: Annotated[
        Path | None, option(metavar="FILE", help="Write answer and tables.", panel="Output")
    ] = None,
    export_csv: Annotated[
        Path | None, option(metavar="FILE", help="Write the table of arms.", panel="Output")
    ] = None,
    runs_dir: options.RunsDir = None,
    quiet: options.Quiet = False,
    json_: options.Json = False,
) -> None:
    """Say which command, or which of its settings, reaches a quality soonest.

    For any program that prints its metric now and then, as a line of JSON such as {"recall": 0.31,
    "step": 200} or in words that --metric matches. Arms take turns: each runs alone and is paused,
    so that all meet the same machine, and slow ones leave. The answer names the soonest, how much
    sooner it is, and how far to trust that.

    Example: ncfbench race --budget 5m -L lr 1e-4,1e-3 'python train.py --lr {lr}'
    """
    from ncfbench.racing import summary
    from ncfbench.racing.answer import as_json
    from ncfbench.racing.arms import parse_list, parse_range
    from ncfbench.racing.display import Display
    from ncfbench.racing.pipeline import race as run_race
    from ncfbench.reporting.render import csv, markdown
    from ncfbench.reporting.render.terminal import make_console
    from ncfbench.storage.tables import storage_errors, write_text

    seconds = options.parse_duration(budget, "--budget")
    values = [(name, parse_list(name, text)) for name, text in _words("-L", lists)]
    values += [
        (name, parse_range(name, low, high, step)) for name, low, high in _words("-P", ranges)
    ]
    if len(dict(values)) < len(values):
        raise UsageError("-L, -P: a parameter is given twice. Give all its values at once.")
    for file in filter(None, (export_json, export_markdown, export_csv)):
        with storage_errors(file):  # refused now rather than after the race
            file.parent.stat()
    outcome = run_race(
        commands or (),
        parameters=dict(values),
        budget_seconds=seconds,
        metric=metric,
        minimize=minimize,
        target=target,
        names=names or (),
        seeds=seeds,
        turn_seconds=options.parse_duration(turn, "--turn"),
        count_startup=count_startup,
        silence_seconds=None if silence is None else options.parse_duration(silence, "--silence"),
        runs_dir=runs_dir,
        display=Display(None if quiet else make_console(stderr=True), seconds),
    )
    answer = outcome.answer
    shown, trust = summary.answer_tables(answer), summary.caveats(answer)
    steps = summary.next_steps(answer, _longer(2 * seconds))
    found = as_json(answer) | {
        "headline": summary.headline(answer),
        "trust": trust,
        "next": [{"purpose": purpose, "command": text} for purpose, text in steps],
        "folder": str(outcome.folder),
        "figure": outcome.figure,
    }
    text = [found["headline"], f"How far to trust it: {' '.join(trust)}"]
    page = "\n\n".join([*map(markdown.escape, text), markdown.render(shown)])
    for path, content in (
        (export_json, json_text(found)),
        (export_markdown, page),
        (export_csv, csv.render(shown[:1])),
    ):
        if path is not None:
            write_text(path, content)
    if json_:
        print_json(found)
    else:
        print_answer(found, shown)
        written = [outcome.folder, *filter(None, [outcome.figure])]
        print_views("", f"Written: {', '.join(map(str, written))}")
    if not outcome.is_complete:
        say("Interrupted; this is the answer so far.")
        raise typer.Exit(INTERRUPTED_EXIT_CODE)
    if answer.best is None:
        raise typer.Exit(CheckFailedError.exit_code)


def _words(flag: str, given: Sequence[str] | None) -> list[list[str]]:
    """Return the words of each use of an option of :data:`WORDS`."""
    found = [each.split(MARK) for each in given or ()]
    for words in found:
        if len(words) != WORDS[flag]:
            raise UsageError(f"{flag} {' '.join(words)}: it takes {WORDS[flag]} words.")
    return found


def _longer(seconds: float) -> str:
    """Return the command line that was typed, with another budget."""
    words, budget = list(typed), f"{seconds:g}s" if seconds % 60 else f"{seconds / 60:g}m"
    for index, word in enumerate(words):
        if word == "--budget" and index + 1 < len(words):
            words[index + 1] = budget
        elif word.startswith("--budget="):
            words[index] = f"--budget={budget}"
    if not any(word.partition("=")[0] == "--budget" for word in words):
        words[1:1] = ["--budget", budget]
    return shlex.join(["ncfbench", *words])
