"""Tables for the terminal (Rich): numbers are never cut, whatever the width."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from rich.box import SIMPLE_HEAD, Box
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.table import Table as RichTable
from rich.text import Text

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
WIDEST = 100
"""Columns of a console at most."""
LONGEST = 10_000
"""Columns of a line at most."""
LABEL_WIDTH = 16
"""Longest word of a text that is not folded."""
RULED_ASCII = Box("    \n    \n -- \n    \n    \n    \n    \n    \n", ascii=True)
"""Rich's ``SIMPLE_HEAD`` in ASCII: a rule below the headings."""


class _Console(Console):
    """A console that raises BrokenPipeError; Rich's would exit with its own code."""

    def on_broken_pipe(self) -> None:
        raise


def make_console(*, stderr: bool = False) -> Console:
    """Return a console of at most :data:`WIDEST` columns; where no terminal, nor ``COLUMNS``, says
    how many there are, of so many.

    ``NO_COLOR`` is honoured. Names and paths of users are text, not Rich's markup or emoji codes.
    """
    plain = partial(_Console, stderr=stderr, markup=False, highlight=False, emoji=False)
    console = plain()
    is_known = console.is_terminal or os.environ.get("COLUMNS")
    return plain(width=min(console.width, WIDEST) if is_known else WIDEST)


def show(console: Console, table: Table) -> None:
    """Print a table; its commands stay in one line, whatever the width."""
    console.print(TableView(table), crop=False)


class TableView:
    """A table as Rich draws it. Text is folded where the terminal is narrow, and numbers never."""

    def __init__(self, table: Table) -> None:
        self.table = table

    def __rich_console__(
        self, console: Console, options: ConsoleOptions
    ) -> Iterator[RenderableType]:
        table = _printable(self.table, ascii_only=options.ascii_only)
        for part in _parts(table, RULED_ASCII if options.ascii_only else SIMPLE_HEAD):
            wide = options.update_width(max(options.max_width, _least_width(console, part)))
            for segments in Segment.split_lines(console.render(part, wide)):
                line = Text(no_wrap=True, overflow="ignore")
                for segment in segments:
                    line.append(segment.text, segment.style)
                line.rstrip()
                yield line


def _least_width(console: Console, part: RichTable | Text) -> int:
    """Return the width below which a command or a number would be cut."""
    if isinstance(part, Text):
        return cell_len(part.plain) if part.no_wrap else 0
    return console.measure(part, options=console.options.update_width(LONGEST)).minimum


def _parts(table: Table, box: Box) -> Iterator[RichTable | Text]:
    """Return what stands below each other: commands are whole, whatever the width."""
    if table.title:
        yield Text(table.title, style="bold")
    for line in table.paragraphs:
        yield _command(line) if is_command(line) else Text(line)
    if table.lead:
        yield Text("")
    if any(not column.verbatim for column in table.header):
        yield _body(table, box)
    for index, column in enumerate(table.header):
        if column.verbatim:
            yield from (_command(row[index].text) for row in table.rows)
    for note in table.notes:
        yield _command(note) if is_command(note) else Text(note, style="dim")
    yield Text("")


def _body(table: Table, box: Box) -> RichTable:
    shown = [index for index, column in enumerate(table.header) if not column.verbatim]
    headings = table.headings
    body = RichTable(box=box, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    body.header_style, body.show_header = "bold", any(headings)
    for index in shown:
        column, texts = table.header[index], [row[index].text for row in table.rows]
        least = max(map(cell_len, texts), default=0)
        if column.wraps or index < table.labels:
            words = {word: cell_len(word) for text in texts for word in text.split()}
            numbers = (wide for word, wide in words.items() if any(map(str.isdigit, word)))
            least = max(min(max(words.values(), default=0), LABEL_WIDTH), *numbers, 0)
        least = max(least, *map(cell_len, headings[index].split()), 1)
        body.add_column(
            Text(headings[index]), justify=column.align, overflow="fold", min_width=least
        )
    for number, row in enumerate(table.shown_rows()):
        if table.starts_group(number):
            body.add_section()
        body.add_row(*(Text(row[index].text, STYLES[row[index].style]) for index in shown))
    return body


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
