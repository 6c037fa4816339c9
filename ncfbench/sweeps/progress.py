"""The progress of a sweep: on a terminal a bar for each running cell, plain lines elsewhere."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ncfbench.runs.progress import Progress
from ncfbench.sweeps.grid import Cell, label_cells

if TYPE_CHECKING:
    from rich.console import Console

ORDER = ("done", "running", "interrupted", "waiting", "diverged", "failed")
"""Statuses as they are counted."""


class SweepProgress:
    """Prints how each cell ends, and shows the runs of those at work.

    Args:
        console: None to show nothing.
    """

    def __init__(self, console: Console | None = None) -> None:
        self.console, self.bars = console, Progress(console).bars
        self._names: dict[Cell, str] = {}
        self._running: set[Cell] = set()

    def begin(self, cells: Sequence[Cell]) -> None:
        """Show how many cells there are, and how far they are."""
        self._names = label_cells(cells)
        self.say(f"{len(cells)} cells: {self._counts()}.")

    def follow(self, cell: Cell) -> Progress:
        """Return what shows a cell's run."""
        self._running.add(cell)
        return Progress(self.console, self.bars, self._names[cell])

    def finish(self, cell: Cell) -> None:
        """Show how a cell ended."""
        self._running.discard(cell)
        more = f": {cell.message}" if cell.message else f" ({self._counts()})"
        self.say(f"{self._names[cell]}: {cell.status}{more}")

    def say(self, text: str) -> None:
        """Show a message."""
        if self.console is not None:
            self.console.print(text, soft_wrap=True)

    def end(self) -> None:
        """End, however the sweep ended."""
        if self.bars is not None:
            self.bars.stop()

    def _counts(self) -> str:
        counted = Counter(
            "running" if cell in self._running else cell.status for cell in self._names
        )
        return ", ".join(f"{counted[status]} {status}" for status in ORDER if counted[status])
