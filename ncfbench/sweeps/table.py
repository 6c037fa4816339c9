"""Rows and table of a sweep's cells, predicted before the sweep and measured after it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ncfbench.reporting.table import Column, Header, Table, text_column
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
    predicts = any(row["predicted_seconds"] is not None for row in rows)
    names: Header = ["cell", Column("status", "left"), "epochs"]
    values: Header = ["smallest probe loss", "test recall@50", "iteration", "training"]
    if predicts:
        values = ["still needs", "memory", text_column("predicted from")]
    cells = []
    for row in rows:
        epochs = f"{row['epochs_done']:g} of {row['epochs']}"
        cells.append([row["cell"], row["status"], epochs, *_values(row, predicts=predicts)])
    return Table(title, [*names, *values], cells)


def format_size(count: float) -> str:
    """Return ``120 MiB`` or ``3.2 GiB``."""
    return f"{count / 2**20:.0f} MiB" if count < 2**30 else f"{count / 2**30:.1f} GiB"


def _values(row: Mapping[str, Any], *, predicts: bool) -> list[str]:
    seconds, source, size = (row[f"predicted_{name}"] for name in ("seconds", "from", "bytes"))
    if predicts:
        return [format_duration(seconds), format_size(size), source] if source else ["-", "-", ""]
    shown = (
        ("smallest_probe_loss", "{:.4f}".format),
        ("test_recall_at_50", "{:.4f}".format),
        ("full_iteration_seconds", lambda seconds: f"{1000 * seconds:.2f} ms"),
        ("train_seconds", format_duration),
    )
    return ["-" if row[name] is None else text(row[name]) for name, text in shown]
