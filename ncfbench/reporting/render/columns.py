"""Layout of a table's columns within a width: blocks of columns, widths, and folded texts.

A number is never cut. Where all columns do not fit, headings and columns of text are folded; then
the columns are shared among blocks that stand below each other and repeat the labels; then long
labels are folded; then cells are folded at spaces, which numbers lack.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rich.cells import cell_len, chop_cells

from ncfbench.reporting.table import Table

GAP = 2
"""Spaces between columns."""
FOLDED_WIDTH = 20
"""Least width of a folded column of text."""
LABEL_WIDTH = 6
"""Least width of a label."""


@dataclass(frozen=True)
class Placed:
    """A column of the table in a block, by its index, and its width in character cells."""

    index: int
    width: int


Block = list[Placed]


def blocks(table: Table, limit: int) -> list[Block]:
    """Return the blocks of columns that fit into ``limit`` character cells.

    A block is wider only where a single word, such as a number, leaves no other choice.
    """
    shown = [index for index, column in enumerate(table.header) if not column.verbatim]
    labels, values = shown[: table.labels], shown[table.labels :]
    if not shown:
        return []
    natural = {index: _natural(table, index) for index in shown}
    if _total(natural.values()) <= limit and not _crowded(table, natural):
        return [[Placed(index, natural[index]) for index in shown]]
    room = limit if not values else limit // 2
    own = _label_widths(table, labels, room)
    least = {index: _least(table, index) for index in values}
    left = limit - sum(own.values()) - GAP * len(labels)
    found: list[list[int]] = [[]]
    for part in _parts(table, values, least, left):
        if found[-1] and _total(least[index] for index in [*found[-1], *part]) > left:
            found.append([])
        found[-1] += part
    return [_placed(table, own, part, least, limit) for part in found]


def folded(text: str, width: int) -> list[str]:
    """Return text in lines of at most ``width`` cells; only a word that is longer is cut."""
    if cell_len(text) <= width:
        return [text]
    lines, line = [], ""
    for word in text.split():
        longer = f"{line} {word}" if line else word
        if cell_len(longer) <= width:
            line = longer
            continue
        lines += [line] if line else []
        *cut, line = chop_cells(word, max(width, 1))
        lines += cut
    return [*lines, line]


def _natural(table: Table, index: int) -> int:
    return max(cell_len(table.header[index].heading), _widest(table, index))


def _least(table: Table, index: int) -> int:
    """Return the least width of a column whose heading and texts are folded."""
    column, cells = table.header[index], _widest(table, index)
    if column.wraps:
        cells = min(cells, max(FOLDED_WIDTH, _longest_number(table, index)))
    return max(cells, _longest_word([column.heading]))


def _label_widths(table: Table, labels: Sequence[int], limit: int) -> dict[int, int]:
    """Return widths of the labels: folded at spaces, then within words, where they need more than
    ``limit``.
    """
    found = {index: _natural(table, index) for index in labels}
    words = {index: _longest_word(_texts(table, index)) for index in labels}
    cut = {index: max(LABEL_WIDTH, _longest_number(table, index)) for index in labels}
    for least in (words, cut):
        while _total(found.values()) > limit:
            longest = max(found, key=lambda index: found[index] - least[index])
            if found[longest] <= least[longest]:
                break
            found[longest] -= 1
    return found


def _parts(
    table: Table, values: Sequence[int], least: dict[int, int], limit: int
) -> list[list[int]]:
    """Return the columns that stay together: those of a group, where a block can hold it.

    A column that no block can hold is folded at spaces: its width in ``least`` shrinks.
    """
    for index in values:
        if least[index] > limit:
            least[index] = max(_longest_word(_texts(table, index)), min(limit, least[index]))
            if table.header[index].wraps:
                least[index] = max(min(limit, least[index]), _longest_number(table, index))
    parts: list[list[int]] = []
    for group, columns in itertools.groupby(values, lambda index: table.header[index].group):
        own = list(columns)
        is_whole = bool(group) and _total(least[index] for index in own) <= limit
        parts += [own] if is_whole else [[index] for index in own]
    return parts


def _placed(
    table: Table,
    labels: dict[int, int],
    values: Sequence[int],
    least: dict[int, int],
    limit: int,
) -> Block:
    """Return a block. Spare width goes to labels, texts, headings of groups, then to headings that
    it unfolds.
    """
    widths = labels | {index: least[index] for index in values}
    spare = limit - _total(widths.values())
    texts = [index for index in values if table.header[index].wraps]
    for index in [*labels, *texts]:
        given = max(min(spare, _natural(table, index) - widths[index]), 0)
        widths[index] += given
        spare -= given
    for columns, lacking in _crowded(table, widths):
        given = max(min(spare, lacking), 0)
        widths[columns[-1]] += given
        spare -= given
    for index in values:
        lacking = _natural(table, index) - widths[index]
        if 0 < lacking <= spare:
            widths[index] += lacking
            spare -= lacking
    return [Placed(index, width) for index, width in widths.items()]


def spans(table: Table, shown: Sequence[int]) -> list[tuple[str, list[int]]]:
    """Return neighbouring columns of a block by the heading of their group."""
    grouped = itertools.groupby(shown, lambda index: table.header[index].group)
    return [(group, list(columns)) for group, columns in grouped]


def _crowded(table: Table, widths: dict[int, int]) -> list[tuple[list[int], int]]:
    """Return the groups whose heading is wider than their columns, and how many cells it lacks."""
    found = []
    for group, columns in spans(table, list(widths)):
        lacking = cell_len(group) - _total(widths[index] for index in columns)
        found += [(columns, lacking)] if lacking > 0 else []
    return found


def _texts(table: Table, index: int) -> list[str]:
    return [table.header[index].heading, *(row[index].text for row in table.rows)]


def _widest(table: Table, index: int) -> int:
    return max((cell_len(row[index].text) for row in table.rows), default=0)


def _longest_word(texts: Iterable[str]) -> int:
    return max((cell_len(word) for text in texts for word in text.split()), default=0)


def _longest_number(table: Table, index: int) -> int:
    words = (word for row in table.rows for word in row[index].text.split())
    return max((cell_len(word) for word in words if any(map(str.isdigit, word))), default=0)


def _total(widths: Iterable[int]) -> int:
    """Return the width of columns side by side."""
    found = list(widths)
    return sum(found) + GAP * max(len(found) - 1, 0)
