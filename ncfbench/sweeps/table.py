"""Rows and table of a sweep's cells, predicted before the sweep and measured after it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ncfbench.config import RunConfig
from ncfbench.reporting.table import Column, Header, Table, text_column
from ncfbench.sweeps.grid import SweepStatus, label_cells
from ncfbench.timing.clock import format_duration

if TYPE_CHECKING:
    from ncfbench.sweeps.forecast import Prediction

FIGURES = (
    "smallest_probe_loss",
    "test_recall_at_50",
    "train_seconds",
    "full_iteration_seconds",
    "wall_seconds",
)


def cell_rows(
    found: SweepStatus,
    *,
    predicted: Mapping[RunConfig, Prediction] | None = None,
    failed: Mapping[RunConfig, str] | None = None,
) -> list[dict[str, Any]]:
    """Return a row for each cell.

    Args:
        predicted: seconds and bytes that each cell still needs.
        failed: messages of cells that failed.
    """
    names = label_cells(tuple(found.states))
    result = []
    for config, state in found.states.items():
        summary = state.summary or {}
        failure = (failed or {}).get(config)
        need = (predicted or {}).get(config)
        row = {
            "cell": names[config],
            "status": "failed" if failure else state.status,
            "epochs_done": state.epochs,
            "epochs": config.epochs,
            "predicted_seconds": need.seconds if need else None,
            "predicted_from": (need.source if need else None) or None,
            "predicted_bytes": need.state_bytes + need.step_bytes if need else None,
            "message": failure or summary.get("message") or None,
            "folder": None if state.folder is None else str(state.folder),
            "config": config.to_dict(),
        }
        result.append(row | {name: summary.get(name) for name in FIGURES})
    return result


def cells_table(title: str, found: Sequence[Mapping[str, Any]]) -> Table:
    """Return a table of the rows: predictions where there are any, else what was measured."""
    predicts = any(row["predicted_seconds"] is not None for row in found)
    names: Header = ["cell", Column("status", "left"), "epochs"]
    values: Header = ["smallest probe loss", "test recall@50", "iteration", "training"]
    if predicts:
        values = ["still needs", "memory", text_column("predicted from")]
    cells = []
    for row in found:
        epochs = f"{row['epochs_done']:g} of {row['epochs']}"
        cells.append([row["cell"], row["status"], epochs, *_values(row, predicts=predicts)])
    return Table(title, [*names, *values], cells)


def _values(row: Mapping[str, Any], *, predicts: bool) -> list[str]:
    if predicts:
        seconds, source = row["predicted_seconds"], row["predicted_from"]
        known = seconds is not None and source
        return (
            [format_duration(seconds), format_size(row["predicted_bytes"]), source]
            if known
            else ["-", "-", ""]
        )
    iteration, training = row["full_iteration_seconds"], row["train_seconds"]
    return [
        _number(row["smallest_probe_loss"]),
        _number(row["test_recall_at_50"]),
        "-" if iteration is None else f"{1000 * iteration:.2f} ms",
        "-" if training is None else format_duration(training),
    ]


def format_size(count: float) -> str:
    """Return ``120 MiB`` or ``3.2 GiB``."""
    return f"{count / 2**20:.0f} MiB" if count < 2**30 else f"{count / 2**30:.1f} GiB"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"
