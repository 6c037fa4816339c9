"""Delivery of a report: its tables and figures, printed or written in one format."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from ncfbench.cli.output import json_text, print_sentences, print_views
from ncfbench.errors import UsageError

if TYPE_CHECKING:
    from ncfbench.reporting.results import Results
    from ncfbench.reporting.table import Table

FORMATS = ("table", "markdown", "latex", "csv", "json", "html")


def draw_into(results: Results, folder: Path) -> list[Path]:
    """Draw the figures into a folder, as files of each kind; return the files.

    Raises:
        UsageError: Matplotlib is missing.
        DataError: a file cannot be written.
    """
    from ncfbench.reporting.figures import KINDS, drawn
    from ncfbench.reporting.figures.drawing import save

    return [
        path
        for name, drawing in drawn(results).items()
        for path in save(drawing, [folder / f"{name}.{kind}" for kind in KINDS])
    ]


def deliver(
    results: Results,
    kind: str,
    names: Sequence[str],
    output: Path | None,
    drawn: Sequence[Path],
    **shown: bool,
) -> list[Path]:
    """Print the report, or write it to a file; return the paths written.

    Args:
        kind: the format.
        names: of tables, or what names begin with. Where there are none: those that are not folded.
        drawn: figures that were drawn to files.
        shown: sections that are folded unless they are asked for, ``detail`` and ``paper``.

    Raises:
        UsageError: a table that there is not, or a folder in place of a file.
        DataError: a file cannot be written.
    """
    from ncfbench.reporting.selection import choose
    from ncfbench.runs.folder import is_exported
    from ncfbench.storage import tables

    hidden = {of for of, is_shown in shown.items() if not (is_shown or names or kind == "html")}
    parts: Mapping[str, Any] = {
        table.name: table for table in results.tables if table.section not in hidden
    }
    if kind == "csv":
        frames = results.frames(full="detail" not in hidden)
        parts = {name: rows for name, rows in frames.items() if rows}
    parts = choose(parts, names)
    if kind == "table":
        _print_tables(results, list(parts.values()), hidden, is_whole=not names)
        return []
    if kind == "html":
        # What was exported is only read.
        folder = Path() if is_exported(results.runs_dir) else results.runs_dir
        output = output or folder / "report.html"
    if kind == "json":
        text = json_text(results.document | {"figures": drawn, "problems": results.problems})
    else:
        text = _rendered(results, parts, kind)
    if output is None:
        typer.echo(text, nl=False)
        return []
    if output.is_dir():
        raise UsageError(f"The report is one file, and {output} is a folder: name a file.")
    with tables.storage_errors(output):
        output.parent.mkdir(parents=True, exist_ok=True)
    tables.write_text(output, text)
    return [output]


def _rendered(results: Results, parts: Mapping[str, Any], kind: str) -> str:
    from ncfbench.reporting.render import csv, html, latex, markdown

    if kind == "csv":
        return csv.render(parts)
    tables = list(parts.values())
    if kind == "html":
        return html.page(results, tables)
    return markdown.render(tables) if kind == "markdown" else latex.render(tables)


def _with_notes_once(tables: Sequence[Table]) -> list[Table]:
    """Return the tables; of speedup and recall without notes that the next one has too."""
    shown = [*tables]
    for index, (table, below) in enumerate(pairwise(tables)):
        if table.name.startswith(("speedup", "recall")):
            notes = tuple(note for note in table.notes if note not in below.notes)
            shown[index] = replace(table, notes=notes)
    return shown


def _print_tables(
    results: Results, tables: Sequence[Table], hidden: Collection[str], *, is_whole: bool
) -> None:
    from ncfbench.reporting.views.sentences import floor_command

    if not results.comparisons:
        print_views(f"No finished run in {results.runs_dir} yet.", "")
    print_views(*_with_notes_once(tables))
    if not is_whole:
        return
    if "paper" not in hidden and not results.beside_paper:
        print_sentences("The paper printed no figures of these data, encoders and losses.", "")
    counts = Counter(table.section for table in results.tables if table.section in hidden)
    words = {"detail": "details (--full)", "paper": "the paper's claims and figures (--paper)"}
    folded = [f"{count} with {words[section]}" for section, count in counts.items()]
    if folded:
        print_sentences(f"Further tables: {', '.join(folded)}.", "")
    for name in results.unfitted:
        print_views(floor_command(name, results.locations.get("--data-dir")), "")
