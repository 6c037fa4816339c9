"""Tables as CSV.

A single table is plain CSV. Several are separated by an empty line, and each begins with a line
``# TITLE``.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence

from ncfbench.reporting.table import Table


def render(tables: Sequence[Table]) -> str:
    """Return the tables' headings and rows; notes are left out."""
    if len(tables) == 1:
        return _table(tables[0])
    return "\n".join(f"# {table.title}\n{_table(table)}" for table in tables)


def _table(table: Table) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(table.headings)
    writer.writerows([cell.text for cell in row] for row in table.rows)
    return out.getvalue()
