"""The table of a verification."""

from __future__ import annotations

from ncfbench.reporting.table import Col, Table
from ncfbench.reporting.verify.check import Value
from ncfbench.reporting.verify.verification import Verification


def verification_tables(found: Verification) -> list[Table]:
    """Return the table of values that do not come out again; none where all do."""
    cols = [
        Col("table", "table"),
        Col("cell", "cell"),
        Col("column", lambda wrong: wrong.note or wrong.column, wraps=True),
        Col("written", lambda wrong: "" if wrong.note else _text(wrong.written)),
        Col("recomputed", lambda wrong: "" if wrong.note else _text(wrong.recomputed)),
    ]
    title = "What does not match"
    return [Table.of(title, cols, found.mismatches, labels=2)] if found.mismatches else []


def _text(value: Value) -> str:
    if value is None:
        return "-"
    return str(value) if isinstance(value, str | bool) else f"{value:.6g}"
