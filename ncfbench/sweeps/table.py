"""Rows and table of a sweep's cells."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ncfbench.reporting.table import Col, Table
from ncfbench.sweeps.grid import Cell, label_cells
from ncfbench.timing.clock import format_duration

FIGURES = (
    "smallest_probe_loss",
    "test_recall_at_50",
    "train_seconds",
    "full_iteration_seconds",
    "wall_seconds",
)


def cell_rows(cells: Sequence[Cell]) -> list[dict[str, Any]]:
    """Return a row for each cell."""
    rows = []
    for number, (cell, name) in enumerate(label_cells(cells).items()):
        row = {
            "number": number,
            "cell": name,
            "status": cell.status,
            "epochs_done": cell.epochs,
            "epochs": cell.config.epochs,
            "message": cell.message or None,
            "folder": None if cell.folder is None else str(cell.folder),
            "config": cell.config.to_dict(),
        }
        rows.append(row | {name: cell.summary.get(name) for name in FIGURES})
    return rows


def cells_table(title: str, rows: Sequence[Mapping[str, Any]]) -> Table:
    """Return a table of the rows, with what was measured."""
    cols = [
        Col("--cell", "number"),
        Col("cell", "cell"),
        Col("status", "status", align="left"),
        Col("epochs", lambda row: f"{row['epochs_done']:g} of {row['epochs']}"),
        Col("smallest probe loss", "smallest_probe_loss", ".4f"),
        Col("test recall@50", "test_recall_at_50", ".4f"),
        Col("iteration", "full_iteration_seconds", "{:.2f} ms".format, scale=1000),
        Col("training", "train_seconds", format_duration),
    ]
    return Table.of(title, cols, rows)
