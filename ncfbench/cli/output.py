"""Output of commands: results, messages and progress."""

from __future__ import annotations

import io
import json
import math
from collections.abc import Iterable, Mapping
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from ncfbench.errors import INTERRUPTED_EXIT_CODE

if TYPE_CHECKING:
    from ncfbench.reporting.table import Table
    from ncfbench.runs.progress import Progress

ANSWER = "answer.txt"
"""File of a race's folder that holds its answer as it was printed."""
INTERRUPTED = "Interrupted; this is the answer so far.\n"


def say(text: str) -> None:
    """Print a message or an error on standard error."""
    from ncfbench.reporting.render.terminal import make_console

    make_console(stderr=True).print(text, soft_wrap=True)


def print_views(*views: Table | str) -> None:
    """Print tables and lines of text on standard output."""
    from ncfbench.reporting.render.terminal import make_console, show

    console = make_console()
    for view in views:
        if isinstance(view, str):
            # Never folded: paths and commands must survive being copied.
            console.print(view, soft_wrap=True)
        else:
            show(console, view)


def print_answer(answer: Mapping[str, Any], tables: Iterable[Table], *, as_json: bool) -> None:
    """Print the answer of a race: what to deploy, tables, the paragraph, what to trust, what to do
    next; or all of it as JSON. The text is kept as :data:`ANSWER` in the race's folder. End with
    the exit code of an interruption after one.
    """
    from rich.text import Text

    from ncfbench.storage.tables import write_text

    tables = [*tables]
    if as_json:
        print_json(answer)
    else:
        _print_answer(answer, tables)
    with redirect_stdout(io.StringIO()) as printed:
        _print_answer(answer, tables)
    text = Text.from_ansi(printed.getvalue()).plain + "\n"
    write_text(Path(answer["folder"]) / ANSWER, text + INTERRUPTED * (not answer["is_over"]))
    if not answer["is_over"]:
        say(INTERRUPTED.rstrip())
        raise typer.Exit(INTERRUPTED_EXIT_CODE)


def print_kept_answer(folder: Path) -> bool:
    """Print the answer of the race in a folder, without its tables where the text is not that of
    ``answer.json``; return whether there is one.
    """
    from ncfbench.storage.tables import read_json

    text, whole = folder / ANSWER, folder / "answer.json"
    if not whole.exists():
        return False
    if text.exists() and text.stat().st_mtime >= whole.stat().st_mtime:
        print_views(text.read_text("utf-8").rstrip())
    else:
        _print_answer(read_json(whole), ())
    return True


def _print_answer(answer: Mapping[str, Any], tables: Iterable[Table]) -> None:
    lines = answer["deploy"]["lines"] if answer.get("deploy") else ()
    for line in lines:
        (print_views if line.startswith(" ") else print_sentences)(line)
    if lines:
        print_views("", *tables)
    print_sentences(answer["headline"], "")
    if not lines:
        print_views(*tables)
    if answer["trust"]:
        print_sentences(f"How far to trust it: {' '.join(answer['trust'])}", "")
    for step in answer["next"]:
        print_views(f"{step['purpose']}:", f"  {step['command']}")
    print_views("", f"Written: {answer['folder']}")


def print_sentences(*sentences: str) -> None:
    """Print sentences on standard output, folded at the terminal's width."""
    from rich.text import Text

    from ncfbench.reporting.render.terminal import make_console

    console = make_console()
    for sentence in sentences:
        for line in Text(sentence).wrap(console, console.width) or [Text()]:
            line.rstrip()
            console.print(line)


def print_json(value: Any) -> None:
    """Print results as one JSON object on standard output."""
    typer.echo(json_text(value), nl=False)


def json_text(value: Any) -> str:
    """Return a value as indented JSON; paths are strings, infinity and NaN null."""
    return json.dumps(_finite(value), indent=2, default=str, allow_nan=False) + "\n"


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    return [_finite(item) for item in value] if isinstance(value, (list, tuple)) else value


def progress_bar(*, quiet: bool, logs_metrics: bool = False) -> Progress:
    """Return progress on standard error; none if quiet.

    Args:
        logs_metrics: print a line of JSON for each row of the curve on standard output too.
    """
    from ncfbench.reporting.render.terminal import make_console
    from ncfbench.runs.progress import Progress

    if quiet and not logs_metrics:
        return Progress()
    console = make_console(stderr=True)
    console.quiet = quiet
    return Progress(console, logs=logs_metrics)
