"""The progress of a sweep: a live table on a terminal, plain lines elsewhere, or nothing."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ncfbench.config import RunConfig
from ncfbench.reporting.table import Table, text_column
from ncfbench.runs.progress import Progress
from ncfbench.sweeps.grid import CellState, label_cells

if TYPE_CHECKING:
    from rich.console import Console

    from ncfbench.reporting.render.terminal import TableView

SHOWN_SECONDS = 0.5
"""Between two updates of a running cell's iteration."""


class SweepProgress:
    """Receives the events of a sweep and shows nothing; subclasses show them."""

    def begin(self, states: Mapping[RunConfig, CellState]) -> None:
        """Start, with the cells of the sweep and how far they are."""

    def follow(self, config: RunConfig) -> Progress:
        """Return what receives the progress of a cell's run."""
        return Progress()

    def start(self, config: RunConfig) -> None:
        """Note that a cell has its turn."""

    def finish(self, config: RunConfig, status: str, message: str = "") -> None:
        """Note that a cell is ``done``, ``diverged`` or ``failed``."""

    def say(self, text: str) -> None:
        """Show a message."""

    def end(self) -> None:
        """End, however the sweep ended."""


class PlainSweepProgress(SweepProgress):
    """Prints a line for each epoch of each cell, and for each cell that is over."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.names: dict[RunConfig, str] = {}
        self.statuses: dict[RunConfig, str] = {}

    def begin(self, states: Mapping[RunConfig, CellState]) -> None:
        """Print how many cells there are, and how far they are."""
        self.names = label_cells(tuple(states))
        self.statuses = {config: state.status for config, state in states.items()}
        self.say(f"{len(states)} cells: {self.counts()}.")

    def follow(self, config: RunConfig) -> Progress:
        """Return what prints lines that name the cell."""
        return _CellProgress(self, config)

    def start(self, config: RunConfig) -> None:
        """Note that the cell is running."""
        self.statuses[config] = "running"

    def recorded(self, config: RunConfig, row: Mapping[str, Any]) -> None:
        """Print a row of a cell's curve that ends an epoch."""
        if row["epoch"] == int(row["epoch"]):
            self.say(
                f"{self.names[config]}: epoch {row['epoch']:g} of {config.epochs}, {_figures(row)}"
            )

    def advanced(self, config: RunConfig, iteration: int) -> None:
        """Receive a cell's iteration, twice a second at most."""

    def finish(self, config: RunConfig, status: str, message: str = "") -> None:
        """Print how a cell ended."""
        self.statuses[config] = status
        self.say(
            f"{self.names[config]}: {status}"
            + (f": {message}" if message else f" ({self.counts()})")
        )

    def say(self, text: str) -> None:
        """Print a message."""
        self.console.print(text, soft_wrap=True)

    def counts(self) -> str:
        """Return the number of cells by status: ``2 done, 5 running, 3 left``."""
        counted = Counter(self.statuses.values())
        order = ("done", "running", "interrupted", "left", "diverged", "failed")
        return ", ".join(f"{counted[status]} {status}" for status in order if counted[status])


class LiveSweepProgress(PlainSweepProgress):
    """Shows a live table of the running cells under a line that counts all cells."""

    def __init__(self, console: Console) -> None:
        from rich.live import Live

        super().__init__(console)
        self._rows: dict[RunConfig, str] = {}
        self._iterations: dict[RunConfig, int] = {}
        self._working: RunConfig | None = None
        self._began = time.perf_counter()
        self._live = Live(
            console=console, get_renderable=self._view, refresh_per_second=2, transient=True
        )

    def begin(self, states: Mapping[RunConfig, CellState]) -> None:
        """Show the table."""
        super().begin(states)
        self._began = time.perf_counter()
        self._live.start()

    def start(self, config: RunConfig) -> None:
        """Mark the cell whose turn it is."""
        super().start(config)
        self._working = config

    def recorded(self, config: RunConfig, row: Mapping[str, Any]) -> None:
        """Show a row of the curve in the table."""
        self._rows[config] = f"epoch {row['epoch']:.2f} of {config.epochs}, {_figures(row)}"

    def advanced(self, config: RunConfig, iteration: int) -> None:
        """Show an iteration in the table."""
        self._iterations[config] = iteration

    def finish(self, config: RunConfig, status: str, message: str = "") -> None:
        """Print how a cell ended above the table."""
        super().finish(config, status, message)
        self._rows.pop(config, None)

    def end(self) -> None:
        """Remove the table."""
        self._live.stop()

    def _view(self) -> TableView:
        from ncfbench.reporting.render.terminal import TableView

        rows = []
        # A copy, because another thread draws the table.
        for config, status in list(self.statuses.items()):
            if status == "running":
                mark = "> " if config is self._working else "  "
                iteration = f"{self._iterations[config]:,}" if config in self._iterations else ""
                state = self._rows.get(config, "starting")
                rows.append([mark + self.names[config], iteration, state])
        title = f"{self.counts()}; {time.perf_counter() - self._began:,.0f} s"
        return TableView(Table(title, ["cell", "iteration", text_column("state")], rows))


class _CellProgress(Progress):
    """Passes the progress of a cell's run on, under the cell's name."""

    def __init__(self, sweep: PlainSweepProgress, config: RunConfig) -> None:
        self.sweep, self.config = sweep, config
        self._shown = 0.0

    def advance(self, iteration: int, item_slots: float) -> None:
        """Pass on an iteration from time to time."""
        now = time.perf_counter()
        if now - self._shown >= SHOWN_SECONDS:
            self._shown = now
            self.sweep.advanced(self.config, iteration)

    def record(self, row: Mapping[str, Any]) -> None:
        """Pass on a row of the curve."""
        self.sweep.recorded(self.config, row)

    def say(self, text: str) -> None:
        """Pass on a message."""
        self.sweep.say(f"{self.sweep.names[self.config]}: {text}")


def _figures(row: Mapping[str, Any]) -> str:
    recalls = ((split, row[f"{split}_recall_at_50"]) for split in ("validation", "test"))
    recall = next(
        (f"{split} recall@50 {value:.4f}" for split, value in recalls if value is not None), None
    )
    parts = [f"probe loss {row['probe_loss']:.4f}", *([] if recall is None else [recall])]
    return ", ".join([*parts, f"{row['train_seconds']:.1f} s"])
