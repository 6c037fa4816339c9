"""One table as the page shows it."""

from __future__ import annotations

from typing import Any

from ncfbench.reporting.render.html import templates
from ncfbench.reporting.table import Table


def table_html(table: Table) -> str:
    """Return one table as HTML."""
    module: Any = templates().get_template("table.html").module
    return str(module.show(table))
