"""Tables of plain records, for programs: units in the headings, unknown values left empty."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from ncfbench.reporting.table import Col, Table
from ncfbench.storage import schemas

ARM = ("dataset", "encoder", "loss", "sampler", "variant", "settings", "data_fingerprint")
"""Columns that name a row of the speedup and the recall table."""


def records_table(title: str, names: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> Table:
    """Return a table of raw values."""
    return Table.of(title, [Col(name, partial(_text, name)) for name in names], rows)


def results_table(
    speedup: Sequence[Mapping[str, Any]], recall: Sequence[Mapping[str, Any]]
) -> Table:
    """Return one row for each arm: speedups and recalls."""
    merged: dict[tuple[Any, ...], dict[str, Any]] = {}
    for kind, rows in (("speedup", speedup), ("recall", recall)):
        for row in rows:
            own = {_own_name(kind, name): value for name, value in row.items()}
            merged.setdefault(tuple(row[name] for name in ARM), {}).update(own)
    return records_table("Results", result_columns(), merged.values())


def result_columns() -> list[str]:
    """Return the headings of :func:`results_table`; a ratio above 1 is faster."""
    names = [
        _own_name(kind, name)
        for kind, schema in (("speedup", schemas.SPEEDUP), ("recall", schemas.RECALL))
        for name in schema.names
        if name != "command"
    ]
    return list(dict.fromkeys([*ARM, *names]))


def _own_name(kind: str, name: str) -> str:
    """Return the heading of a column that the speedup and the recall table both have."""
    return (
        f"{kind}_{name}"
        if name in ("status", "seeds") or (kind, name) == ("recall", "runs")
        else name
    )


def _text(name: str, row: Mapping[str, Any]) -> str:
    value = row.get(name)
    if value is None:
        return ""
    return " ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
