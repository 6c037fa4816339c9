"""Tables for the terminal (Rich): numbers are never cut, whatever the width."""

from __future__ import annotations

import itertools
import os
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

from rich import box
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType
from rich.table import Table as RichTable
from rich.text import Text

from ncfbench.reporting.table import Style, Table

STYLES: dict[Style, str] = {
    "plain": "",
    "best": "bold",
    "muted": "dim",
    "good": "green",
    "bad": "bold red",
    "open": "yellow",
}
FOLDED_WIDTH = 20
"""Cells of a column of text that has been folded."""
ASCII = str.maketrans({"±": "+-", "†": "+", "‡": "++"} | dict.fromkeys("▏▎▍▌▋▊▉█", "#"))
"""Stand-ins where the terminal's encoding has ASCII only."""


def make_console(*, stderr: bool = False) -> Console:
    """Return a console that folds nothing where no terminal, nor ``COLUMNS``, limits its width.

    ``NO_COLOR`` is honoured. Names and paths of users are text, not Rich's markup or emoji codes.
    """
    plain = partial(Console, stderr=stderr, markup=False, highlight=False, emoji=False)
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
        for index, columns in enumerate(_blocks(table, options.max_width)):
            if index:
                yield Text("")
            yield _block(table, columns, options.max_width)
        for index, column in enumerate(table.header):
            if column.verbatim:
                for row in table.rows:
                    yield Text(f"  {row[index].text}", no_wrap=True, overflow="ignore")
        for note in table.notes:
            yield Text(note, style="dim")
        yield Text("")


def _printable(table: Table, *, ascii_only: bool) -> Table:
    """Return a table without characters that steer a terminal or that it cannot show."""

    def plain(text: str) -> str:
        shown = "".join(each if each.isprintable() else "?" for each in text)
        return shown.translate(ASCII) if ascii_only else shown

    return Table(
        plain(table.title),
        [replace(each, heading=plain(each.heading)) for each in table.header],
        [[replace(cell, text=plain(cell.text)) for cell in row] for row in table.rows],
        map(plain, table.notes),
        labels=table.labels,
        grouped=table.grouped,
    )


def _blocks(table: Table, limit: int) -> list[list[int]]:
    """Return the columns of each block; all in one where they fit, with texts folded if need be."""
    shown = [index for index, column in enumerate(table.header) if not column.verbatim]
    if not shown or _fits(table, shown, limit) or _fits(table, shown, limit, folded=True):
        return [shown] if shown else []
    labels, rest = shown[: table.labels], shown[table.labels :]
    blocks: list[list[int]] = [labels]
    for group, columns in itertools.groupby(rest, lambda index: table.header[index].group):
        # A group of columns stays in one block where a block can hold it.
        own = list(columns)
        is_whole = bool(group) and _fits(table, [*labels, *own], limit, folded=True)
        for part in [own] if is_whole else [[index] for index in own]:
            is_empty = len(blocks[-1]) == len(labels)
            if is_empty or _fits(table, [*blocks[-1], *part], limit, folded=True):
                blocks[-1] = [*blocks[-1], *part]
            else:
                blocks.append([*labels, *part])
    return blocks


def _block(table: Table, columns: Sequence[int], limit: int) -> RichTable:
    folded = not _fits(table, columns, limit)
    folds_labels = folded and not _fits(table, columns, limit, folded=True)
    drawn = RichTable(
        box=box.SIMPLE_HEAD,
        show_edge=False,
        padding=(0, 1, 0, 0),
        pad_edge=False,
        show_header=any(table.header[index].heading for index in columns),
    )
    laid_out = _laid_out(table, columns, folded=folded)
    tallest = max(heading.count("\n") for _, _, heading, _ in laid_out)
    has_groups = any(group for _, group, _, _ in laid_out)
    for index, group, heading, width in laid_out:
        # Rich aligns headings at the bottom; groups stand in one line.
        heading = "\n" * (tallest - heading.count("\n")) + heading
        folds = table.header[index].wraps or (folds_labels and index < table.labels)
        drawn.add_column(
            Text(f"{group}\n{heading}" if has_groups else heading),
            justify=table.header[index].align,
            no_wrap=not folds,
            min_width=None if folds else width,
            overflow="fold",
        )
    for number, row in enumerate(table.shown_rows()):
        if table.starts_group(number):
            drawn.add_section()
        drawn.add_row(*(Text(row[index].text, STYLES[row[index].style]) for index in columns))
    return drawn


def _fits(table: Table, columns: Sequence[int], limit: int, *, folded: bool = False) -> bool:
    """Return whether columns, two spaces apart, are within a limit."""
    widths = [width for _, _, _, width in _laid_out(table, columns, folded=folded)]
    return sum(widths) + 2 * (len(widths) - 1) <= limit


def _laid_out(
    table: Table, columns: Sequence[int], *, folded: bool
) -> list[tuple[int, str, str, int]]:
    """Return each column with its group's heading, its own heading, and the width it takes.

    Args:
        folded: headings and columns of text are folded; then the width is the least.
    """
    found = []
    before = ""
    for index in columns:
        column = table.header[index]
        group = column.group if column.group != before else ""
        before = column.group
        heading = _folded(table, index) if folded else column.heading
        width = max(_widest(table, index), *map(cell_len, [group, *heading.split("\n")]))
        least = min(width, FOLDED_WIDTH) if folded and column.wraps else width
        found.append((index, group, heading, least))
    return found


def _folded(table: Table, index: int) -> str:
    """Return a heading in lines that are no wider than the column's cells, if words allow it."""
    heading = table.header[index].heading
    width = max([_widest(table, index), *map(cell_len, heading.split())])
    lines = textwrap.wrap(heading, max(width, 1), break_long_words=False, break_on_hyphens=False)
    return "\n".join(lines)


def _widest(table: Table, index: int) -> int:
    return max((cell_len(row[index].text) for row in table.rows), default=0)
