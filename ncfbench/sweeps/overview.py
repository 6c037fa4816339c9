"""What a sweep tells its user while it runs: a live table on a terminal, plain lines elsewhere, or
nothing.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ncfbench.config import RunConfig
from ncfbench.runs.progress import Progress
from ncfbench.sweeps.grid import labels
from ncfbench.sweeps.status import State

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

SHOWN_SECONDS = 0.5
"""Between two looks at a running cell's iterations."""


class Overview:
    """Silent. Subclasses show what they are told."""

    def begin(self, states: Mapping[RunConfig, State]) -> None:
        """The sweep starts; its cells, and how far they are."""

    def of(self, config: RunConfig) -> Progress:
        """What a cell's run is to tell its progress to."""
        return Progress()

    def at_work(self, config: RunConfig) -> None:
        """A cell has its turn."""

    def over(self, config: RunConfig, status: str, message: str = "") -> None:
        """A cell is over: ``done``, ``diverged`` or ``failed``."""

    def say(self, text: str) -> None:
        """Something the user should know."""

    def end(self) -> None:
        """The sweep is over, however it ended."""


class PlainOverview(Overview):
    """A line for each epoch of each cell, and for each cell that is over."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.names: dict[RunConfig, str] = {}
        self.statuses: dict[RunConfig, str] = {}

    def begin(self, states: Mapping[RunConfig, State]) -> None:
        """Print how many cells there are, and how far they are."""
        self.names = labels(tuple(states))
        self.statuses = {config: state.status for config, state in states.items()}
        self.say(f"{len(states)} cells: {self.counts()}.")

    def of(self, config: RunConfig) -> Progress:
        """Lines that name the cell."""
        return _Line(self, config)

    def at_work(self, config: RunConfig) -> None:
        """Keep what is running."""
        self.statuses[config] = "running"

    def recorded(self, config: RunConfig, row: Mapping[str, Any]) -> None:
        """A row of a cell's curve is there: print those that end an epoch."""
        if row["epoch"] == int(row["epoch"]):
            self.say(
                f"{self.names[config]}: epoch {row['epoch']:g} of {config.epochs}, {_figures(row)}"
            )

    def advanced(self, config: RunConfig, iteration: int) -> None:
        """A cell has come to an iteration; called twice a second at most."""

    def over(self, config: RunConfig, status: str, message: str = "") -> None:
        """Print what became of a cell."""
        self.statuses[config] = status
        self.say(
            f"{self.names[config]}: {status}"
            + (f": {message}" if message else f" ({self.counts()})")
        )

    def say(self, text: str) -> None:
        """Print a message."""
        self.console.print(text, soft_wrap=True)

    def counts(self) -> str:
        """``2 done, 5 running, 3 left``."""
        counted = Counter(self.statuses.values())
        order = ("done", "running", "interrupted", "left", "diverged", "failed")
        return ", ".join(f"{counted[status]} {status}" for status in order if counted[status])


class LiveOverview(PlainOverview):
    """A live table of the cells that take turns, over a line that counts all of them."""

    def __init__(self, console: Console) -> None:
        from rich.live import Live

        super().__init__(console)
        self._rows: dict[RunConfig, str] = {}
        self._iterations: dict[RunConfig, int] = {}
        self._working: RunConfig | None = None
        self._began = time.perf_counter()
        self._live = Live(
            console=console, get_renderable=self._table, refresh_per_second=2, transient=True
        )

    def begin(self, states: Mapping[RunConfig, State]) -> None:
        """Start the table."""
        super().begin(states)
        self._began = time.perf_counter()
        self._live.start()

    def at_work(self, config: RunConfig) -> None:
        """Mark the cell whose turn it is."""
        super().at_work(config)
        self._working = config

    def recorded(self, config: RunConfig, row: Mapping[str, Any]) -> None:
        """Take a row of the curve into the table."""
        self._rows[config] = f"epoch {row['epoch']:.2f} of {config.epochs}, {_figures(row)}"

    def advanced(self, config: RunConfig, iteration: int) -> None:
        """Take an iteration into the table."""
        self._iterations[config] = iteration

    def over(self, config: RunConfig, status: str, message: str = "") -> None:
        """Print what became of a cell above the table."""
        super().over(config, status, message)
        self._rows.pop(config, None)

    def end(self) -> None:
        """Take the table away."""
        self._live.stop()

    def _table(self) -> Table:
        from rich.table import Table
        from rich.text import Text

        table = Table(
            title=Text(f"{self.counts()}; {time.perf_counter() - self._began:,.0f} s"),
            title_justify="left",
        )
        for name in ("cell", "iteration", "state"):
            table.add_column(name, justify="right" if name == "iteration" else "left")
        # A copy: the table is drawn in a thread of its own.
        for config, status in list(self.statuses.items()):
            if status == "running":
                mark = "> " if config is self._working else "  "
                iteration = f"{self._iterations[config]:,}" if config in self._iterations else ""
                table.add_row(
                    Text(mark + self.names[config]),
                    iteration,
                    Text(self._rows.get(config, "starting")),
                )
        return table


class _Line(Progress):
    """A cell's run, told to the overview under the cell's name."""

    def __init__(self, overview: PlainOverview, config: RunConfig) -> None:
        self.overview, self.config = overview, config
        self._shown = 0.0

    def advance(self, iteration: int, item_slots: float) -> None:
        """Pass on an iteration now and then."""
        now = time.perf_counter()
        if now - self._shown >= SHOWN_SECONDS:
            self._shown = now
            self.overview.advanced(self.config, iteration)

    def record(self, row: Mapping[str, Any]) -> None:
        """Pass on a row of the curve."""
        self.overview.recorded(self.config, row)

    def say(self, text: str) -> None:
        """Pass on a message."""
        self.overview.say(f"{self.overview.names[self.config]}: {text}")


def _figures(row: Mapping[str, Any]) -> str:
    recalls = ((split, row[f"{split}_recall_at_50"]) for split in ("validation", "test"))
    recall = next(
        (f"{split} recall@50 {value:.4f}" for split, value in recalls if value is not None), None
    )
    parts = [f"probe loss {row['probe_loss']:.4f}", *([] if recall is None else [recall])]
    return ", ".join([*parts, f"{row['train_seconds']:.1f} s"])
