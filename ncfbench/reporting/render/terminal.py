"""Tables for the terminal (Rich): numbers are never cut, whatever the width."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType
from rich.text import Text

from ncfbench.reporting.render import columns
from ncfbench.reporting.render.columns import GAP, Block, folded
from ncfbench.reporting.table import Align, Style, Table, is_command

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


class _Console(Console):
    """A console that raises BrokenPipeError; Rich's would exit without a word."""

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
            yield Text(table.lead)
            yield Text("")
        for number, block in enumerate(columns.blocks(table, options.max_width)):
            if number:
                yield Text("")
            yield from _lines(table, block, ascii_only=options.ascii_only)
        for index, column in enumerate(table.header):
            if column.verbatim:
                for row in table.rows:
                    yield Text(f"  {row[index].text}", no_wrap=True, overflow="ignore")
        for note in table.notes:
            if is_command(note):
                yield Text(f"  {note}", no_wrap=True, overflow="ignore")
            else:
                yield Text(note, style="dim")
        yield Text("")


def _printable(table: Table, *, ascii_only: bool) -> Table:
    """Return a table without characters that steer a terminal or that it cannot show."""

    def plain(text: str) -> str:
        lines = " ".join(text.splitlines())
        shown = "".join(each if each.isprintable() else "?" for each in lines)
        return shown.translate(ASCII) if ascii_only else shown

    return Table(
        plain(table.title),
        [replace(each, heading=plain(each.heading)) for each in table.header],
        [[replace(cell, text=plain(cell.text)) for cell in row] for row in table.rows],
        map(plain, table.notes),
        lead=plain(table.lead),
        labels=table.labels,
        grouped=table.grouped,
        name=table.name,
    )


def _lines(table: Table, block: Block, *, ascii_only: bool) -> Iterator[Text]:
    """Yield the lines of a block: headings of groups, headings, a rule, and the rows."""
    widths = {each.index: each.width for each in block}
    headers = [table.header[index] for index in widths]
    if any(header.group for header in headers):
        groups: list[tuple[str, int, Align, str]] = [
            (group, sum(widths[index] for index in own) + GAP * (len(own) - 1), "center", "")
            for group, own in columns.spans(table, list(widths))
        ]
        yield from _row(groups)
    if any(header.heading for header in headers):
        texts = zip(headers, widths.values(), strict=True)
        yield from _row(
            [(header.heading, width, header.align, "bold") for header, width in texts], bottom=True
        )
        total = sum(widths.values()) + GAP * (len(widths) - 1)
        yield Text(("-" if ascii_only else "─") * total, no_wrap=True, overflow="ignore")
    for number, row in enumerate(table.shown_rows()):
        if table.starts_group(number):
            yield Text("")
        yield from _row(
            [
                (row[index].text, width, table.header[index].align, STYLES[row[index].style])
                for index, width in widths.items()
            ]
        )


def _row(cells: Sequence[tuple[str, int, Align, str]], *, bottom: bool = False) -> Iterator[Text]:
    """Yield the lines of cells side by side: text, width, alignment and style of each.

    Args:
        bottom: short cells stand at the bottom.
    """
    parts = [folded(text, width) for text, width, _, _ in cells]
    height = max(map(len, parts))
    for number in range(height):
        line = Text(no_wrap=True, overflow="ignore")
        for position, (own, (_, width, align, style)) in enumerate(zip(parts, cells, strict=True)):
            line_of_own = number - (height - len(own)) if bottom else number
            text = own[line_of_own] if 0 <= line_of_own < len(own) else ""
            left = {"left": 0, "right": 1, "center": 0.5}[align]
            spare = max(width - cell_len(text), 0)
            before = int(spare * left)
            line.append(" " * (before + GAP * (position > 0)))
            line.append(text, style)
            line.append(" " * (spare - before))
        line.rstrip()
        yield line
