"""Tables as plain objects, for JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ncfbench.reporting.table import Table


def render(tables: Sequence[Table]) -> list[dict[str, Any]]:
    """Return an object for each table: its name, title, lead, headings, rows of text, and notes."""
    return [
        {
            "name": table.name,
            "title": table.title,
            "lead": table.lead,
            "header": list(table.headings),
            "rows": [[cell.text for cell in row] for row in table.rows],
            "notes": list(table.notes),
        }
        for table in tables
    ]
