"""Tables in GitHub's Markdown."""

from __future__ import annotations

from collections.abc import Sequence

from ncfbench.reporting.table import Cell, Table, is_command

SPECIAL = "\\`*_{}[]<>#|~"
RULES = {"left": "---", "right": "---:", "center": ":---:"}


def render(tables: Sequence[Table]) -> str:
    """Return the tables, each under its title and above its notes."""
    return "\n".join(map(_table, tables))


def escape(text: str) -> str:
    """Return text in one line in which Markdown reads every character as itself."""
    return "".join("\\" + each if each in SPECIAL else each for each in " ".join(text.split()))


def _table(table: Table) -> str:
    lines = [
        [escape(heading) for heading in table.headings],
        [RULES[column.align] for column in table.header],
        # Labels are repeated: Markdown has no rule between groups of rows.
        *([_cell(cell) for cell in row] for row in table.rows),
    ]
    body = "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
    notes = "".join(
        f"\n    {note}\n" if is_command(note) else f"\n{escape(note)}\n" for note in table.notes
    )
    lead = "".join(
        f"    {line}\n\n" if is_command(line) else f"{escape(line)}\n\n"
        for line in table.paragraphs
    )
    return f"### {escape(table.title)}\n\n{lead}{body}\n{notes}"


def _cell(cell: Cell) -> str:
    text = escape(cell.text)
    return f"**{text}**" if cell.style == "best" else text
