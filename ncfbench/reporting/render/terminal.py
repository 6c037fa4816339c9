"""Tables for the terminal (Rich): numbers are never cut, whatever the width."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from rich.box import SIMPLE_HEAD, Box
from rich.console import Console, ConsoleOptions, RenderableType
from rich.table import Table as RichTable
from rich.text import Text

from ncfbench.reporting.render.columns import GAP, Widths, blocks, total_width
from ncfbench.reporting.table import Style, Table, is_command

STYLES: dict[Style, str] = {
    "plain": "",
    "best": "bold",
    "muted": "dim",
    "good": "green",
    "bad": "bold red",
    "open": "yellow",
}
ASCII = str.maketrans({"±": "+-", "†": "+", "‡": "++"} | dict.fromkeys("▏▎▍▌▋▊▉█", "#"))
"""Stand-ins where the terminal's encoding has ASCII only."""
RULED_ASCII = Box("    \n    \n -- \n    \n    \n    \n    \n    \n", ascii=True)
"""Rich's ``SIMPLE_HEAD`` in ASCII: a rule below the headings."""


class _Console(Console):
    """A console that raises BrokenPipeError; Rich's would exit with its own code."""

    def on_broken_pipe(self) -> None:
        raise


def make_console(*, stderr: bool = False) -> Console:
    """Return a console that folds nothing where no terminal, nor ``COLUMNS``, limits its width.

    ``NO_COLOR`` is honoured. Names and paths of users are text, not Rich's markup or emoji codes.
    """
    plain = partial(_Console, stderr=stderr, markup=False, highlight=False, emoji=False)
    console = plain()
    return console if console.is_terminal or os.environ.get("COLUMNS") else plain(width=400)


def show(console: Console, table: Table) -> None:
    """Print a table; its commands stay in one line, whatever the width."""
    console.print(TableView(table), crop=False)


class TableView:
    """A table as Rich draws it: in blocks of columns where the terminal is too narrow for all."""

    def __init__(self, table: Table) -> None:
        self.table = table

    def __rich_console__(
        self, console: Console, options: ConsoleOptions
    ) -> Iterator[RenderableType]:
        table = _printable(self.table, ascii_only=options.ascii_only)
        if table.title:
            yield Text(table.title, style="bold")
        if table.lead:
            yield Text(f"{table.lead}\n")
        for number, widths in enumerate(blocks(table, options.max_width)):
            if number:
                yield Text("")
            for part in _block(table, widths, RULED_ASCII if options.ascii_only else SIMPLE_HEAD):
                wide = options.update_width(sum(widths.values()) + GAP * len(widths))
                for segments in console.render_lines(part, wide, pad=False):
                    line = Text(no_wrap=True, overflow="ignore")
                    for segment in segments:
                        line.append(segment.text, segment.style)
                    line.rstrip()
                    yield line
        for index, column in enumerate(table.header):
            if column.verbatim:
                for row in table.rows:
                    yield _command(row[index].text)
        for note in table.notes:
            yield _command(note) if is_command(note) else Text(note, style="dim")
        yield Text("")


def _block(table: Table, widths: Widths, box: Box) -> Iterator[RichTable]:
    columns = [table.header[index] for index in widths]
    draw = partial(RichTable, box=box, show_edge=False, pad_edge=False, padding=(0, GAP - 1, 0, 0))
    if any(column.group for column in columns):
        groups = draw(show_header=False)
        spans = table.spans(widths)
        for _, own in spans:
            groups.add_column(width=total_width(widths, own), justify="center", overflow="fold")
        groups.add_row(*(Text(group) for group, _ in spans))
        yield groups
    body = draw(header_style="bold", show_header=any(column.heading for column in columns))
    for column, width in zip(columns, widths.values(), strict=True):
        body.add_column(Text(column.heading), width=width, justify=column.align, overflow="fold")
    for number, row in enumerate(table.shown_rows()):
        if table.starts_group(number):
            body.add_section()
        body.add_row(*(Text(row[index].text, STYLES[row[index].style]) for index in widths))
    yield body


def _command(text: str) -> Text:
    return Text(f"  {text}", no_wrap=True, overflow="ignore")


def _printable(table: Table, *, ascii_only: bool) -> Table:
    """Return a table without characters that steer a terminal or that it cannot show."""

    def plain(text: str) -> str:
        lines = " ".join(text.splitlines())
        shown = "".join(each if each.isprintable() else "?" for each in lines)
        return shown.translate(ASCII) if ascii_only else shown

    return replace(
        table,
        title=plain(table.title),
        header=tuple(replace(column, heading=plain(column.heading)) for column in table.header),
        rows=tuple(
            tuple(replace(cell, text=plain(cell.text)) for cell in row) for row in table.rows
        ),
        notes=tuple(map(plain, table.notes)),
        lead="\n".join(map(plain, table.lead.splitlines())),
    )
