"""Progress of a long computation: a live bar on a terminal, plain lines elsewhere, or nothing."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import TaskID

SILENCE_SECONDS = 60.0
"""After this time without a line, plain progress prints how far the run is."""


class Progress:
    """Shows nothing. Subclasses show the events of a run."""

    def begin(self, title: str, total: int, done: int) -> None:
        """Begin training of ``total`` iterations, ``done`` of which are done."""

    def advance(self, iteration: int, item_slots: float) -> None:
        """Note that an iteration was dispatched; its batch embeds about ``item_slots`` items."""

    def embedded(self, done: int, total: int) -> None:
        """Note how many items a probe or an evaluation has embedded, where an item is costly."""

    def record(self, row: Mapping[str, Any]) -> None:
        """Show a row of the curve."""

    def say(self, text: str) -> None:
        """Show a message."""

    def end(self) -> None:
        """End the display, however training ended."""


class PlainProgress(Progress):
    """Prints a line for each epoch's end and message, and after a long silence how far it is."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self._total, self._said = 0, 0.0

    def begin(self, title: str, total: int, done: int) -> None:
        """Print the title."""
        self._total = total
        start = f", from iteration {done:,}" if done else ""
        self.say(f"{title}: {total:,} iterations{start}")

    def advance(self, iteration: int, item_slots: float) -> None:
        """Print the iteration after a long silence."""
        self._break_silence("iteration", iteration, self._total)

    def embedded(self, done: int, total: int) -> None:
        """Print the items that are embedded after a long silence."""
        self._break_silence("embedded item", done, total)

    def record(self, row: Mapping[str, Any]) -> None:
        """Print a row that ends an epoch."""
        if (
            row["iteration"] == 0
            or row["test_recall_at_50"] is not None
            or row["epoch"] == int(row["epoch"])
        ):
            self.say(_line(row))

    def say(self, text: str) -> None:
        """Print a message."""
        self.console.print(text, soft_wrap=True)
        self._said = time.perf_counter()

    def _break_silence(self, what: str, done: int, total: int) -> None:
        if time.perf_counter() - self._said >= SILENCE_SECONDS:
            self.say(f"{what} {done:,} of {total:,}")


class LiveProgress(PlainProgress):
    """Prints the same lines above a live bar: epoch, iteration, time left, loss, items a second."""

    def __init__(self, console: Console) -> None:
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as RichProgress

        super().__init__(console)
        # The time left stands before what a narrow terminal may cut.
        self._bar = RichProgress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=12),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            TextColumn("left{task.fields[state]}", markup=False),
            console=console,
            refresh_per_second=5,
            transient=True,
        )
        self._task: TaskID | None = None
        self._shown = self._item_slots = 0.0
        self._last: tuple[int, float] = (0, 0.0)

    def begin(self, title: str, total: int, done: int) -> None:
        """Print the title and start the bar."""
        super().begin(title, total, done)
        self._task = self._bar.add_task("starting", total=total, completed=done, state="")
        self._bar.start()

    def advance(self, iteration: int, item_slots: float) -> None:
        """Move the bar, five times a second at most."""
        self._item_slots = item_slots
        now = time.perf_counter()
        if now - self._shown >= 0.2 and self._task is not None:
            self._shown = now
            self._bar.update(self._task, completed=iteration)

    def embedded(self, done: int, total: int) -> None:
        """Show the items that are embedded in place of the epoch, until the next row."""
        if self._task is not None:
            self._bar.update(self._task, description=f"item {done:,} of {total:,}")

    def record(self, row: Mapping[str, Any]) -> None:
        """Show a row in the bar, and print it if it ends an epoch.

        The rate is that of training since the previous row.
        """
        super().record(row)
        state = f", loss {row['probe_loss']:.4f}"
        iterations, seconds = row["iteration"] - self._last[0], row["train_seconds"] - self._last[1]
        if seconds > 0:
            state += f", {iterations * self._item_slots / seconds:,.0f} items/s"
        self._last = (row["iteration"], row["train_seconds"])
        if self._task is not None:
            epoch = f"epoch {row['epoch']:.2f}"
            self._bar.update(self._task, completed=row["iteration"], description=epoch, state=state)

    def end(self) -> None:
        """Remove the bar."""
        self._bar.stop()


def _line(row: Mapping[str, Any]) -> str:
    parts = [
        f"epoch {row['epoch']:6.2f}",
        f"iteration {row['iteration']:6d}",
        f"probe loss {row['probe_loss']:.4f}",
    ]
    parts += [
        f"{split} recall@50 {row[f'{split}_recall_at_50']:.4f}"
        for split in ("validation", "test")
        if row[f"{split}_recall_at_50"] is not None
    ]
    return "  ".join([*parts, f"{row['train_seconds']:.1f} s"])
