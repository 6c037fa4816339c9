"""One table as the page shows it."""

from typing import Any

from ncfbench.reporting.render.html import templates


def table_html(table):
    """Return one table as HTML."""
    module: Any = templates().get_template("table.html").module
    return str(module.show(table))
