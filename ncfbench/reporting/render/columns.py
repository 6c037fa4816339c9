"""Layout of a table's columns within a width: blocks of columns, and the width of each.

A number is never cut. Where all columns do not fit, headings are folded, then columns of text; then
the columns are shared among blocks that stand below each other and repeat the labels; then long
labels are folded; then cells are folded at spaces, which numbers lack.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.cells import cell_len

from ncfbench.reporting.table import Table

GAP = 2
"""Spaces between columns."""
FOLDED_WIDTH = 20
"""Least width of a folded column of text."""
LABEL_WIDTH = 6
"""Least width of a label."""
Widths = dict[int, int]
"""Widths in character cells by the column's index."""


def blocks(table: Table, limit: int) -> list[Widths]:
    """Return the columns of each block; no block is wider than ``limit``, unless by one word."""
    shown = [index for index, column in enumerate(table.header) if not column.verbatim]
    if not shown:
        return []
    labels, values = shown[: table.labels], shown[table.labels :]
    natural, least, words, numbers = {}, {}, {}, {}
    for index in shown:
        column, texts = table.header[index], [row[index].text for row in table.rows]
        cells, heading = _widest(texts), _widest(column.heading.split())
        words[index] = _widest(word for text in [column.heading, *texts] for word in text.split())
        numbers[index] = _widest(
            word for text in texts for word in text.split() if any(map(str.isdigit, word))
        )
        natural[index] = max(cells, cell_len(column.heading))
        narrowest = max(FOLDED_WIDTH, numbers[index])
        least[index] = max(min(cells, narrowest) if column.wraps else cells, heading)
    narrow = _shrunk(
        {index: natural[index] for index in labels},
        [words, {index: max(LABEL_WIDTH, numbers[index]) for index in labels}],
        limit // 2,
    )
    room = limit - total_width(narrow, labels) - GAP * bool(labels)
    whole, folded = _under_groups(table, values, natural, least)
    parts = [values] if total_width(whole, shown) <= limit else _parts(table, values, folded, room)
    found = []
    for part in parts:
        whole, folded = _under_groups(table, part, natural, least)
        floors = [
            {index: folded[index] for index in part if not table.header[index].wraps},
            {index: folded[index] for index in part},
            {index: words[index] for index in labels},
            {index: max(LABEL_WIDTH, numbers[index]) for index in labels},
            words,
        ]
        wide = {index: whole[index] for index in [*labels, *part]}
        least_of_all = {
            index: min(each.get(index, wide[index]) for each in floors) for index in wide
        }
        if total_width(least_of_all, [*wide]) > limit:
            del floors[3]  # one word is too long in any case: labels need not be cut too
        found.append(_shrunk(wide, floors, limit))
    return found


def total_width(widths: Widths, columns: Sequence[int]) -> int:
    """Return the width of columns side by side."""
    return sum(widths[index] for index in columns) + GAP * max(len(columns) - 1, 0)


def _under_groups(
    table: Table, columns: Iterable[int], natural: Widths, least: Widths
) -> tuple[Widths, Widths]:
    """Return both widths widened by the headings of groups: whole, and folded at spaces."""
    natural, least = dict(natural), dict(least)
    for group, own in table.spans(columns):
        natural[own[-1]] += max(cell_len(group) - total_width(natural, own), 0)
        lacking = max(_widest(group.split()) - total_width(least, own), 0)
        for index in own:
            given = min(lacking, natural[index] - least[index])
            least[index] += given
            lacking -= given
    return natural, least


def _parts(table: Table, values: Sequence[int], least: Widths, room: int) -> list[list[int]]:
    """Return the columns of each block: those of a group together, where a block can hold it."""
    parts: list[list[int]] = [[]]
    for group, columns in table.spans(values):
        is_whole = bool(group) and total_width(least, columns) <= room
        for piece in [columns] if is_whole else [[index] for index in columns]:
            if parts[-1] and total_width(least, [*parts[-1], *piece]) > room:
                parts.append([])
            parts[-1] += piece
    return parts


def _shrunk(widths: Widths, floors: Sequence[Widths], limit: int) -> Widths:
    """Return widths that fit, as far as floors allow: one floor after the other, widest first."""
    widths = dict(widths)
    for floor in floors:
        slack = {index: widths[index] - floor[index] for index in floor.keys() & widths.keys()}
        while total_width(widths, [*widths]) > limit and max(slack.values(), default=0) > 0:
            index = max(slack, key=slack.__getitem__)
            widths[index] -= 1
            slack[index] -= 1
    return widths


def _widest(texts: Iterable[str]) -> int:
    return max(map(cell_len, texts), default=0)
