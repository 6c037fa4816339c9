"""Rows and table of a sweep's cells, predicted before the sweep and measured after it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from ncfbench.reporting.table import Col, Table
from ncfbench.sweeps.cells import Cell, label_cells
from ncfbench.timing.clock import format_duration

FIGURES = (
    "smallest_probe_loss",
    "test_recall_at_50",
    "train_seconds",
    "full_iteration_seconds",
    "wall_seconds",
)


def cell_rows(cells: Sequence[Cell], *, predicts: bool = False) -> list[dict[str, Any]]:
    """Return a row for each cell.

    Args:
        predicts: with what each cell is predicted to need.
    """
    rows = []
    for cell, name in label_cells(cells).items():
        need = cell.need if predicts else None
        row = {
            "cell": name,
            "status": cell.status,
            "epochs_done": cell.epochs,
            "epochs": cell.config.epochs,
            "predicted_seconds": need.seconds if need else None,
            "predicted_from": (need.source if need else None) or None,
            "predicted_bytes": need.state_bytes + need.step_bytes if need else None,
            "message": cell.message or None,
            "folder": None if cell.folder is None else str(cell.folder),
            "config": cell.config.to_dict(),
        }
        rows.append(row | {name: cell.summary.get(name) for name in FIGURES})
    return rows


def cells_table(title: str, rows: Sequence[Mapping[str, Any]]) -> Table:
    """Return a table of the rows: predictions where there are any, else what was measured."""
    cols = [
        Col("cell", "cell"),
        Col("status", "status", align="left"),
        Col("epochs", lambda row: f"{row['epochs_done']:g} of {row['epochs']}"),
    ]
    if any(row["predicted_seconds"] is not None for row in rows):
        cols += [
            Col("still needs", partial(_if_predicted, "predicted_seconds"), format_duration),
            Col("memory", partial(_if_predicted, "predicted_bytes"), format_size),
            Col("predicted from", "predicted_from", absent="", wraps=True),
        ]
    else:
        cols += [
            Col("smallest probe loss", "smallest_probe_loss", ".4f"),
            Col("test recall@50", "test_recall_at_50", ".4f"),
            Col("iteration", "full_iteration_seconds", "{:.2f} ms".format, scale=1000),
            Col("training", "train_seconds", format_duration),
        ]
    return Table.of(title, cols, rows)


def format_size(count: float) -> str:
    """Return ``120 MiB`` or ``3.2 GiB``."""
    return f"{count / 2**20:.0f} MiB" if count < 2**30 else f"{count / 2**30:.1f} GiB"


def _if_predicted(name: str, row: Mapping[str, Any]) -> Any:
    return row[name] if row["predicted_from"] else None
