"""What a long computation tells its user while it runs: a live line on a terminal, plain lines
elsewhere, or nothing.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import TaskID


class Progress:
    """Silent. Subclasses show what they are told."""

    def begin(self, title: str, total: int, done: int) -> None:
        """Training of ``total`` iterations starts, with ``done`` of them behind it."""

    def advance(self, iteration: int, item_slots: float) -> None:
        """One iteration was started; its batch embeds about ``item_slots`` items."""

    def record(self, row: Mapping[str, Any]) -> None:
        """A row of the curve is there."""

    def say(self, text: str) -> None:
        """Something the user should know."""

    def end(self) -> None:
        """Training is over, however it ended."""


class PlainProgress(Progress):
    """One line for each epoch's end, and each message."""

    def __init__(self, console: Console) -> None:
        self.console = console

    def begin(self, title: str, total: int, done: int) -> None:
        """Print what runs."""
        start = f", from iteration {done:,}" if done else ""
        self.console.print(f"{title}: {total:,} iterations{start}", soft_wrap=True)

    def record(self, row: Mapping[str, Any]) -> None:
        """Print a row that ends an epoch."""
        if (
            row["iteration"] == 0
            or row["test_recall_at_50"] is not None
            or row["epoch"] == int(row["epoch"])
        ):
            self.console.print(_line(row), soft_wrap=True)

    def say(self, text: str) -> None:
        """Print a message."""
        self.console.print(text, soft_wrap=True)


class LiveProgress(PlainProgress):
    """A live bar with epoch, iteration, loss, recall, items encoded per second and time left."""

    def __init__(self, console: Console) -> None:
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as RichProgress

        super().__init__(console)
        self._bar = RichProgress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TextColumn("{task.fields[state]}", markup=False),
            TimeRemainingColumn(),
            console=console,
            refresh_per_second=5,
        )
        self._task: TaskID | None = None
        self._epoch = "epoch 0"
        self._loss = self._recall = self._rate = ""
        self._shown = self._item_slots = 0.0
        self._last: tuple[int, float] = (0, 0.0)

    def begin(self, title: str, total: int, done: int) -> None:
        """Start the bar."""
        self._task = self._bar.add_task(title, total=total, completed=done, state="starting")
        self._bar.start()

    def advance(self, iteration: int, item_slots: float) -> None:
        """Move the bar, five times a second at most."""
        self._item_slots = item_slots
        now = time.perf_counter()
        if now - self._shown >= 0.2:
            self._shown = now
            self._show(iteration)

    def record(self, row: Mapping[str, Any]) -> None:
        """Take the figures into the bar; the rate is that of the training time since the row
        before.
        """
        self._epoch, self._loss = f"epoch {row['epoch']:.2f}", f"loss {row['probe_loss']:.4f}"
        columns = (row["validation_recall_at_50"], row["test_recall_at_50"])
        recall = next((value for value in columns if value is not None), None)
        if recall is not None:
            self._recall = f"recall@50 {recall:.4f}"
        iterations, seconds = row["iteration"] - self._last[0], row["train_seconds"] - self._last[1]
        if seconds > 0:
            self._rate = f"{iterations * self._item_slots / seconds:,.0f} items/s"
        self._last = (row["iteration"], row["train_seconds"])
        self._show(row["iteration"])

    def _show(self, iteration: int) -> None:
        if self._task is not None:
            state = " · ".join(
                part for part in (self._epoch, self._loss, self._recall, self._rate) if part
            )
            self._bar.update(self._task, completed=iteration, state=state)

    def end(self) -> None:
        """Stop the bar."""
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


class DownloadBar:
    """A progress bar with the few methods of tqdm's that pooch calls; use as a context manager."""

    def __init__(self, console: Console) -> None:
        from rich.progress import BarColumn, DownloadColumn, TextColumn, TransferSpeedColumn
        from rich.progress import Progress as RichProgress

        self._bar = RichProgress(
            TextColumn("Downloading"),
            BarColumn(),
            DownloadColumn(),
            TransferSpeedColumn(),
            console=console,
        )
        self._task = self._bar.add_task("download", total=None)
        self._total = 0.0

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._bar.stop()

    @property
    def total(self) -> float:
        """Bytes of the current file."""
        return self._total

    @total.setter
    def total(self, size: float) -> None:
        self._total = size
        self._bar.reset(self._task, total=size)

    def update(self, size: float) -> None:
        """Some bytes have come."""
        self._bar.advance(self._task, size)

    def reset(self) -> None:
        """The file is there; pooch calls this before it reports the whole size again."""
        self._bar.reset(self._task, total=self._total)

    def close(self) -> None:
        """The file is done; the bar stays for the next."""
