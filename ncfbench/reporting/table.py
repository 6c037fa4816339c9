"""Table: what every room prints or publishes, for renderers of each format.

A room declares the columns of its rows once; :mod:`ncfbench.reporting.render` turns the table into
text for a terminal, Markdown, LaTeX, CSV, JSON or HTML::

    Table.of(
        "Speedup over IID",
        [
            Col("sampler", lambda row: find_sampler(row["sampler"]).title),
            *under(
                "citeulike",
                Col("ms", "full_iteration_seconds", ".2f", scale=1e3),
                Col("total", ("total_lower", "total_upper"), interval(".2f")),
            ),
        ],
        rows,
        ["Above 1 is faster."],
    )
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

from ncfbench.reporting.formats import Format

Align = Literal["default", "left", "right", "center"]
Style = Literal["plain", "best", "muted", "good", "bad", "open"]
"""Meaning of a cell: best of its kind, no value, or a verdict that is good, bad or undecided."""


@dataclass(frozen=True)
class Cell:
    """Text of a cell, and what it means."""

    text: str
    style: Style = "plain"


Key: TypeAlias = "str | int | tuple[str, ...] | Callable[[Any], Any]"
"""Name or index of a row's value, several names, or a function of the row."""


@dataclass(frozen=True)
class Col:
    """A declared column: its heading, the value it shows of each row, and how.

    Attributes:
        key: name of a value in a mapping, or of an attribute; index in a sequence; a tuple of names
            for a tuple of values; or a function of the row. A :class:`Cell` is shown as it is.
        format: Python's format specification, such as ``,.2f``, or a function of
            :mod:`ncfbench.reporting.formats`.
        scale: factor before formatting, such as 1e3 for milliseconds and 100 for per cent.
        absent: text where the value, or the first of several, is None.
        style: of all cells, or a function of the row.
        align: by default left for labels and text that wraps, right elsewhere.
        group: heading of this and the neighbouring columns of the same group.
        wraps: text that may be folded where a terminal is narrow; numbers never are.
    """

    heading: str
    key: Key
    format: str | Format = ""
    scale: float | None = None
    absent: str = "-"
    style: Style | Callable[[Any], Style] = "plain"
    align: Align = "default"
    group: str = ""
    wraps: bool = False

    def cell(self, row: Any) -> Cell:
        """Return the cell of a row."""
        value = _value(row, self.key)
        if isinstance(value, Cell):
            return value
        style = self.style(row) if callable(self.style) else self.style
        if value is None or (isinstance(value, tuple) and value[0] is None):
            return Cell(self.absent, style)
        if self.scale is not None:
            value = _scaled(value, self.scale)
        return Cell(
            self.format(value) if callable(self.format) else f"{value:{self.format}}", style
        )


def under(group: str, *cols: Col) -> list[Col]:
    """Return columns below the heading of their group."""
    return [replace(col, group=group) for col in cols]


def _value(row: Any, key: Key) -> Any:
    if callable(key):
        return key(row)
    if isinstance(key, tuple):
        return tuple(_value(row, name) for name in key)
    if isinstance(key, int) or isinstance(row, Mapping):
        return row[key]
    return getattr(row, key)


def _scaled(value: Any, scale: float) -> Any:
    if isinstance(value, tuple):
        return tuple(_scaled(part, scale) for part in value)
    return None if value is None else scale * value


@dataclass(frozen=True)
class Table:
    """Title, header, rows and notes.

    Attributes:
        header: a column for each cell of a row.
        notes: sentences below the table.
        name: stable name, for ``report --table`` and LaTeX's labels; by default from the title.
        lead: paragraph between title and table.
        labels: leading columns that name a row.
        grouped: leading columns whose value is shown once for neighbouring rows that share it. A
            rule separates such groups of rows.
        section: of a report, which shows some sections on demand.
    """

    title: str
    header: tuple[Col, ...]
    rows: tuple[tuple[Cell, ...], ...]
    notes: tuple[str, ...]
    name: str
    lead: str = ""
    labels: int = 1
    grouped: int = 0
    section: str = ""

    @classmethod
    def of(
        cls,
        title: str,
        cols: Sequence[Col],
        rows: Iterable[Any],
        notes: Iterable[str] = (),
        *,
        name: str = "",
        lead: str = "",
        labels: int = 1,
        grouped: int = 0,
    ) -> Table:
        """Return the table of rows by their declared columns."""
        header = []
        for index, col in enumerate(cols):
            is_left = index < labels or col.wraps
            align: Align = "left" if is_left else "right"
            header.append(replace(col, align=align) if col.align == "default" else col)
        cells = tuple(tuple(col.cell(row) for col in cols) for row in rows)
        name = name or slug(title)
        return cls(title, tuple(header), cells, tuple(notes), name, lead, labels, grouped)

    @property
    def paragraphs(self) -> list[str]:
        """Lines of the lead: text and commands (:func:`is_command`)."""
        return [line.strip() for line in self.lead.splitlines()]

    @property
    def headings(self) -> tuple[str, ...]:
        """Headings in one line each; the first column of a group names the group."""
        before = ["", *(col.group for col in self.header)]
        return tuple(
            col.heading if col.group in ("", group) else f"{col.group}: {col.heading}"
            for col, group in zip(self.header, before, strict=False)
        )

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
    return Table.of(title, [Col("", 0), Col("", 1, wraps=True)], facts)


def slug(*parts: str) -> str:
    """Return a name of small letters, digits, points and hyphens: ``speedup-sg-epochs-8``."""
    return "-".join(
        filter(None, (re.sub(r"[^a-z0-9.]+", "-", part.lower()).strip("-.") for part in parts))
    )


def is_command(note: str) -> bool:
    """Return whether a line is a command, which no format folds, so that it can be copied."""
    return note.startswith("ncfbench ")


def sentence(text: str) -> str:
    """Return text that ends in one full stop."""
    return text if text.endswith((".", "!", "?")) else f"{text}."
