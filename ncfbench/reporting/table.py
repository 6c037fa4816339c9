"""Table: what every room prints or publishes, for renderers of each format.

A room makes rows of text and one :class:`Table`; :mod:`ncfbench.reporting.render` turns it into
text for a terminal, Markdown, LaTeX, CSV, JSON or HTML::

    Table(
        "Speedup over IID",
        ["sampler", Column("per it.", group="citeulike"), Column("total", group="citeulike")],
        [["N.S.", "1.91", Cell("7.59", "best")]],
        ["Above 1 is faster."],
    )
"""

from __future__ import annotations

import copy
import itertools
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

Align = Literal["left", "right", "center"]
Style = Literal["plain", "best", "muted", "good", "bad", "open"]
"""Meaning of a cell: best of its kind, no value, or a verdict that is good, bad or undecided."""


@dataclass(frozen=True)
class Cell:
    """Text of a cell, and what it means."""

    text: str
    style: Style = "plain"


@dataclass(frozen=True)
class Column:
    """Heading and layout of a column.

    Attributes:
        align: ``right`` for numbers.
        group: heading above this and the neighbouring columns of the same group.
        wraps: text that may be folded where a terminal is narrow; numbers never are.
        verbatim: commands and the like, which no format may fold.
    """

    heading: str
    align: Align = "right"
    group: str = ""
    wraps: bool = False
    verbatim: bool = False


Header: TypeAlias = Sequence[Column | str]


def text_column(heading: str) -> Column:
    """Return a column of text that may be folded."""
    return Column(heading, "left", wraps=True)


def columns_of(group: str, *headings: str) -> list[Column]:
    """Return columns of numbers below the heading of their group."""
    return [Column(heading, group=group) for heading in headings]


class Table:
    """Title, header, rows and notes.

    Args:
        header: a column for each cell of a row; a plain heading is left-aligned among the labels
            and right-aligned elsewhere.
        rows: cells, or their plain text.
        notes: sentences below the table.
        lead: paragraph between title and table.
        labels: leading columns that name a row, repeated where a table is split into blocks.
        grouped: leading columns whose value is shown once for neighbouring rows that share it. A
            rule separates such groups of rows.
        name: stable name, for ``report --table`` and LaTeX's labels; by default from the title.
    """

    def __init__(
        self,
        title: str,
        header: Header,
        rows: Iterable[Sequence[Cell | str]],
        notes: Iterable[str] = (),
        *,
        lead: str = "",
        labels: int = 1,
        grouped: int = 0,
        name: str = "",
    ) -> None:
        self.title = title
        self.name = name or slug(title)
        self.header = tuple(
            Column(each, "left" if index < labels else "right") if isinstance(each, str) else each
            for index, each in enumerate(header)
        )
        self.rows = tuple(
            tuple(Cell(cell) if isinstance(cell, str) else cell for cell in row) for row in rows
        )
        self.notes = tuple(notes)
        self.lead = lead
        self.labels = labels
        self.grouped = grouped
        widths = {len(row) for row in self.rows} - {len(self.header)}
        if widths:
            raise ValueError(f"{title}: rows of {widths} cells under {len(self.header)} columns")

    def renamed(self, name: str) -> Table:
        """Return the same table under another name."""
        other = copy.copy(self)
        other.name = name
        return other

    @property
    def headings(self) -> tuple[str, ...]:
        """Headings in one line each; the first column of a group names the group."""
        spans = [
            (f"{group}: " if group and not index else "") + column.heading
            for group, columns in self.spans()
            for index, column in enumerate(columns)
        ]
        return tuple(spans)

    def spans(self) -> list[tuple[str, list[Column]]]:
        """Return neighbouring columns by group, from left to right."""
        grouped = itertools.groupby(self.header, lambda column: column.group)
        return [(group, list(columns)) for group, columns in grouped]

    def starts_group(self, index: int) -> bool:
        """Return whether a rule separates a row from the one before it."""
        if index == 0 or not self.grouped:
            return False
        own, before = (row[: self.grouped] for row in (self.rows[index], self.rows[index - 1]))
        return own != before

    def shown_rows(self) -> list[tuple[Cell, ...]]:
        """Return the rows without the labels that the row before shows already."""
        shown = []
        for index, row in enumerate(self.rows):
            repeats = bool(self.grouped and index and not self.starts_group(index))
            blanks = (Cell(""),) * self.grouped if repeats else row[: self.grouped]
            shown.append((*blanks, *row[self.grouped :]))
        return shown


def facts_table(title: str, facts: Iterable[tuple[str, str]]) -> Table:
    """Return a table of names and values, without headings."""
    return Table(title, ["", text_column("")], [list(fact) for fact in facts])


def slug(*parts: str) -> str:
    """Return a name of small letters, digits, points and hyphens: ``speedup-sg-epochs-8``."""
    return "-".join(
        filter(None, (re.sub(r"[^a-z0-9.]+", "-", part.lower()).strip("-.") for part in parts))
    )


def is_command(note: str) -> bool:
    """Return whether a note is a command line, which no format folds, so that it can be copied."""
    return note.startswith("ncfbench ")


def three_digits(value: float) -> str:
    """Return a number with three significant digits, and never with an exponent from 100 on."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def sentence(text: str) -> str:
    """Return text that ends in one full stop."""
    return text if text.endswith((".", "!", "?")) else f"{text}."
