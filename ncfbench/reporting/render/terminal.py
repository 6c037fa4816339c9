"""Tables for the terminal (Rich): numbers are never cut, whatever the width."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
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
    """A table as Rich draws it. Text is folded where the terminal is narrow, and numbers and
    commands never.
    """

    def __init__(self, table: Table) -> None:
        self.table = table

    def __rich_console__(
        self, console: Console, options: ConsoleOptions
    ) -> Iterator[RenderableType]:
        for part in _parts(self.table, ascii_only=options.ascii_only):
            # Below this width a command or a number would be cut.
            least = cell_len(part.plain) * bool(part.no_wrap) if isinstance(part, Text) else 0
            if isinstance(part, RichTable):
                unbounded = console.options.update_width(LONGEST)
                least = console.measure(part, options=unbounded).minimum
            wide = options.update_width(max(options.max_width, least))
            for segments in Segment.split_lines(console.render(part, wide)):
                line = Text(no_wrap=True, overflow="ignore")
                for segment in segments:
                    line.append(segment.text, segment.style)
                line.rstrip()
                yield line


def _parts(table: Table, *, ascii_only: bool) -> Iterator[RichTable | Text]:
    """Return what stands below each other, without characters that steer a terminal or that it
    cannot show.
    """

    def plain(text: str, style: str = "") -> Text:
        shown = "".join(each if each.isprintable() else "?" for each in " ".join(text.splitlines()))
        return Text(shown.translate(ASCII) if ascii_only else shown, style=style)

    def line(text: str, style: str = "") -> Text:
        if is_command(text):
            return Text(f"  {plain(text).plain}", no_wrap=True, overflow="ignore")
        return plain(text, style)

    if table.title:
        yield plain(table.title, "bold")
    yield from map(line, table.paragraphs)
    if table.lead:
        yield Text("")
    yield _body(table, plain, RULED_ASCII if ascii_only else SIMPLE_HEAD)
    yield from (line(note, "dim") for note in table.notes)
    yield Text("")


def _body(table: Table, plain: Callable[..., Text], box: Box) -> RichTable:
    body = RichTable(box=box, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    body.header_style, body.show_header = "bold", any(table.headings)
    for index, (column, heading) in enumerate(zip(table.header, table.headings, strict=True)):
        texts = [row[index].text for row in table.rows]
        least = max(map(cell_len, texts), default=0)
        if column.wraps or index < table.labels:
            words = {word: cell_len(word) for text in texts for word in text.split()}
            numbers = (wide for word, wide in words.items() if any(map(str.isdigit, word)))
            least = max(min(max(words.values(), default=0), LABEL_WIDTH), *numbers, 0)
        least = max(least, *map(cell_len, heading.split()), 1)
        body.add_column(plain(heading), justify=column.align, overflow="fold", min_width=least)
    for number, row in enumerate(table.shown_rows()):
        if table.starts_group(number):
            body.add_section()
        body.add_row(*(plain(cell.text, STYLES[cell.style]) for cell in row))
    return body
