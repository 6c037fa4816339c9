"""Delivery of a report: its tables and figures, printed or written in one format."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from ncfbench.cli.output import json_text, print_json, print_sentences, print_views
from ncfbench.errors import UsageError

if TYPE_CHECKING:
    from ncfbench.reporting.results import Results
    from ncfbench.reporting.table import Table

FORMATS = ("table", "markdown", "latex", "csv", "json", "html")
SUFFIXES = {"markdown": ".md", "latex": ".tex", "csv": ".csv"}
"""Formats of which a folder can hold a file for each table."""
NOT_PRINTED = "No run has the data, encoder and loss of a cell that the paper printed."
LIST = "list"
"""Instead of a name: list the names."""


@dataclass(frozen=True)
class Wanted:
    """The parts of a report to show.

    Attributes:
        tables: names, or what names begin with. Where there are none: those that are not folded.
        full: the tables of details too.
        paper: the paper's claims too, and its figures beside ours.
        locations: ``--data-dir`` and ``--runs-dir`` to repeat in commands.
    """

    format: str
    tables: Sequence[str]
    locations: dict[str, str]
    full: bool = False
    paper: bool = False

    @property
    def is_whole(self) -> bool:
        """True unless tables are named."""
        return not self.tables

    @property
    def folds(self) -> bool:
        """True if the format shows some tables only on demand; a page folds them, JSON has all."""
        return not self.tables and self.format not in ("html", "json")


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


def print_names(results: Results, wanted: Wanted) -> None:
    """Print the names and titles of all tables in the format."""
    from ncfbench.reporting.table import Col
    from ncfbench.reporting.table import Table as Listing

    cols = [Col("name", "name"), Col("title", "title", wraps=True)]
    listing = Listing.of("Tables (--table)", cols, report_tables(results))
    if wanted.format == "json":
        rows = [[cell.text for cell in row] for row in listing.rows]
        print_json([dict(zip(listing.headings, row, strict=True)) for row in rows])
    elif wanted.format in SUFFIXES:
        typer.echo(_rendered([listing], wanted.format), nl=False)
    else:
        print_views(listing)


def deliver(
    results: Results, wanted: Wanted, output: Path | None, drawn: Sequence[Path]
) -> list[Path]:
    """Print the report, or write it to a file or into a folder; return the paths written.

    Args:
        drawn: figures that were drawn to files.

    Raises:
        UsageError: a table that there is not, or a folder for a format of one file.
        DataError: a file cannot be written.
    """
    if wanted.format == "table":
        _print_tables(results, wanted)
        return []
    from ncfbench.reporting.render import html

    if wanted.format == "html":
        output = output or results.runs_dir / "report.html"
    elif output is None:
        typer.echo(_text(results, wanted, drawn), nl=False)
        return []
    if _is_folder(output, wanted.format):
        texts = {
            output / f"{table.name}{SUFFIXES[wanted.format]}": _rendered([table], wanted.format)
            for table in chosen_tables(results, wanted)
        }
    elif wanted.format == "html":
        texts = {output: html.page(results, chosen_tables(results, wanted))}
    else:
        texts = {output: _text(results, wanted, drawn)}
    for path, text in texts.items():
        _write(path, text)
    return list(texts)


def report_tables(results: Results, *, full: bool = True, paper: bool = True) -> list[Table]:
    """Return the answers and the tables of the runs.

    Args:
        full: with the details.
        paper: with those beside the paper's.
    """
    from ncfbench.reporting.selection import unique

    hidden = {"detail": not full, "paper": not paper}
    return unique(table for table in results.tables if not hidden.get(table.section))


def chosen_tables(results: Results, wanted: Wanted) -> list[Table]:
    """Return the wanted tables.

    Raises:
        UsageError: there is none of a name.
    """
    from ncfbench.reporting.selection import choose

    if wanted.folds:
        return report_tables(results, full=wanted.full, paper=wanted.paper)
    found = {table.name: table for table in report_tables(results)}
    return [found[name] for name in choose(found, wanted.tables, "table")]


def _print_tables(results: Results, wanted: Wanted) -> None:
    if not results.comparisons:
        print_views(f"No finished run in {results.runs_dir} yet.", "")
    print_views(*chosen_tables(results, wanted))
    if wanted.tables:
        return
    if wanted.paper and not results.beside_paper:
        print_sentences(NOT_PRINTED, "")
    counts = Counter(table.section for table in results.tables)
    hidden = [
        f"{counts[section]} with {what} ({flag})"
        for section, what, flag, is_shown in (
            ("detail", "details", "--full", wanted.full),
            ("paper", "the paper's claims and figures", "--paper", wanted.paper),
        )
        if counts[section] and not is_shown
    ]
    if hidden:
        print_sentences(f"Further tables: {', '.join(hidden)}.", "")
    from ncfbench.reporting.views.sentences import floor_command

    data_dir = wanted.locations.get("--data-dir")
    for name in results.unfitted:
        print_views(floor_command(name, data_dir), "")


def _text(results: Results, wanted: Wanted, drawn: Sequence[Path]) -> str:
    if wanted.format == "json":
        return json_text(_document(results, wanted, drawn))
    return _rendered(chosen_tables(results, wanted), wanted.format)


def _rendered(tables: Sequence[Table], kind: str) -> str:
    from ncfbench.reporting.render import csv, latex, markdown

    renderers = {"csv": csv.render, "markdown": markdown.render, "latex": latex.render}
    return renderers[kind](tables)


def _document(results: Results, wanted: Wanted, drawn: Sequence[Path]) -> dict[str, Any]:
    """Return the rows of all tables, and the wanted tables as they are shown."""
    from ncfbench.reporting.render import json

    return {
        **results.answered,
        "speedup": results.speedup,
        "recall": results.recall,
        "claims": [one._asdict() for one in results.claims],
        "sensitivity": results.sensitivity(),
        "tables": json.render(chosen_tables(results, wanted)),
        "figures": drawn,
        "problems": results.problems,
    }


def _is_folder(path: Path, kind: str) -> bool:
    """Return whether a path is a folder for a file of each table: it is one, or has no suffix and
    is not there.

    Raises:
        UsageError: the format is written as one file.
    """
    if kind in SUFFIXES:
        return path.is_dir() or not (path.suffix or os.path.lexists(path))
    if path.is_dir():
        raise UsageError(f"--format {kind} is one file, and {path} is a folder: name a file.")
    return False


def _write(path: Path, text: str) -> None:
    from ncfbench.storage import tables

    with tables.storage_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    tables.write_text(path, text)
