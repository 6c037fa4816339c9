"""Progress of a long computation: a live bar on a terminal, plain lines elsewhere, or nothing."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress as Bars
    from rich.progress import TaskID

SILENCE_SECONDS = 60.0
"""After this time without a line, lines say how far the run is."""
SHOWN_SECONDS = 2.0
"""Between two moves of a bar beside training, whose clock has them: each takes about 1 ms."""

LOGGED = ("probe_loss", "validation_recall_at_50", "test_recall_at_50")
"""Columns of the curve in a line of JSON, where they were measured."""


class Progress:
    """Shows nothing. Subclasses show the events of a run, or of a race of runs."""

    def begin(self, title: str, total: int, done: int) -> None:
        """Begin training of ``total`` iterations, ``done`` of which are done."""

    def start(self, total: int, done: int, unit: str = "iteration") -> None:
        """Start a bar of some units of work, without a title."""

    def move(self, done: int, text: str | None = None, state: str = "") -> None:
        """Move the bar, and show in it what is at work and its state."""

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


class ConsoleProgress(Progress):
    """Prints a line for each message and each end of an epoch.

    On a terminal a bar below them shows epoch, iteration, time left, loss and items a second, drawn
    at probes and every :data:`SHOWN_SECONDS`; elsewhere a line after a long silence says how far
    the run is.

    Args:
        bars: where several runs have their bars; by default this run has one of its own.
        name: of one of several runs, before what its bar and its lines show; with bars it has no
            lines for epochs.
    """

    def __init__(self, console: Console, bars: Bars | None = None, name: str = "") -> None:
        self.console, self.bars, self.name = console, bars or make_bars(console), name
        self._task: TaskID | None = None
        self._total, self._unit = 0, ""
        self._said, self._shown, self._item_slots = 0.0, 0.0, 0.0
        self._last: tuple[int, float] = (0, 0.0)

    def begin(self, title: str, total: int, done: int) -> None:
        """Print the title and start the bar."""
        start = f", from iteration {done:,}" if done else ""
        if not self.name:
            self.say(f"{title}: {total:,} iterations{start}")
        self.start(total, done)

    def start(self, total: int, done: int, unit: str = "iteration") -> None:
        """Start the bar."""
        self._total, self._unit, self._said = total, unit, time.perf_counter()
        if self.bars is not None:
            self._task = self.bars.add_task("", total=total, state="")
            self._update("starting", completed=done)
            self.bars.start()

    def advance(self, iteration: int, item_slots: float) -> None:
        """Move the bar, or break a long silence."""
        self._item_slots = item_slots
        self.move(iteration)

    def move(self, done: int, text: str | None = None, state: str = "") -> None:
        """Move the bar, or break a long silence."""
        now = time.perf_counter()
        if self.bars is None:
            what = f"{text}{state}: {self._unit}" if text else self._unit
            self._break_silence(what, done, self._total)
        elif now - self._shown >= SHOWN_SECONDS:
            self._shown = now
            self._update(text, completed=done, **({"state": state} if text else {}))

    def embedded(self, done: int, total: int) -> None:
        """Show the items in place of the epoch until the next row, or break a long silence."""
        if self.bars is None:
            self._break_silence("embedded item", done, total)
        self._update(f"item {done:,} of {total:,}")

    def record(self, row: Mapping[str, Any]) -> None:
        """Print a row that ends an epoch, and show it in the bar, with the rate since the last."""
        ends_epoch = row["test_recall_at_50"] is not None or row["epoch"] == int(row["epoch"])
        if ends_epoch and not (self.name and self.bars):
            parts = [f"epoch {row['epoch']:6.2f}", f"iteration {row['iteration']:6d}"]
            self.say("  ".join([*parts, *describe_quality(row), f"{row['train_seconds']:.1f} s"]))
        state = f", loss {row['probe_loss']:.4f}"
        iterations, seconds = row["iteration"] - self._last[0], row["train_seconds"] - self._last[1]
        if seconds > 0:
            state += f", {iterations * self._item_slots / seconds:,.0f} items/s"
        self._last = (row["iteration"], row["train_seconds"])
        self._update(f"epoch {row['epoch']:.2f}", completed=row["iteration"], state=state)

    def _break_silence(self, what: str, done: int, total: int) -> None:
        """Print how far the run is, if nothing was printed for a while."""
        if time.perf_counter() - self._said >= SILENCE_SECONDS:
            self.say(f"{what} {done:,} of {total:,}")

    def say(self, text: str) -> None:
        """Print a message."""
        self.console.print(f"{self.name}: {text}" if self.name else text, soft_wrap=True)
        self._said = time.perf_counter()

    def end(self) -> None:
        """Remove the bar."""
        if self.bars is not None and self._task is not None:
            self.bars.remove_task(self._task)
            self._task = None
            if not self.bars.tasks:
                self.bars.stop()

    def _update(self, text: str | None = None, **more: Any) -> None:
        if self.bars is not None and self._task is not None:
            if text is not None:
                more["description"] = f"{self.name} {text}".strip()
            self.bars.update(self._task, **more)
            self.bars.refresh()


class LoggingProgress(ConsoleProgress):
    """Prints each row of the curve as a line of JSON on standard output too, for other programs."""

    def record(self, row: Mapping[str, Any]) -> None:
        """Print what the row measured."""
        super().record(row)
        measured = {name: row[name] for name in LOGGED if row[name] is not None}
        line = {"step": row["iteration"], **measured}
        print(json.dumps(line), flush=True)


class ArmProgress(Progress):
    """Shows an arm of a race in the bar of the race, which counts seconds.

    Args:
        race: shows the race.
        spent: returns the seconds that the race has taken.
    """

    def __init__(self, race: Progress, name: str, *, spent: Callable[[], float]) -> None:
        self.race, self.name, self.spent = race, name, spent
        self._measure = ""

    def begin(self, title: str, total: int, done: int) -> None:
        """Show the arm as it starts."""
        self._show("starting")

    def advance(self, iteration: int, item_slots: float) -> None:
        """Show the arm's iteration, and its last measure."""
        self._show(f"iteration {iteration:,}{self._measure}")

    def embedded(self, done: int, total: int) -> None:
        """Show the items in place of the iteration."""
        self._show(f"item {done:,} of {total:,}")

    def record(self, row: Mapping[str, Any]) -> None:
        """Keep the recall of a row for what is shown next."""
        _, *recalls = describe_quality(row)
        for text in recalls[:1]:
            self._measure = f", {text}"

    def _show(self, state: str) -> None:
        self.race.move(int(self.spent()), self.name, f", {state}")


def describe_quality(row: Mapping[str, Any]) -> list[str]:
    """Return the probe loss and the recalls of a row of a curve in words."""
    recalls = {split: row[f"{split}_recall_at_50"] for split in ("validation", "test")}
    words = [
        f"{split} recall@50 {value:.4f}" for split, value in recalls.items() if value is not None
    ]
    return [f"probe loss {row['probe_loss']:.4f}", *words]


def make_bars(console: Console) -> Bars | None:
    """Return the bars of runs, which are drawn when they are moved, and by no thread beside
    training; None for a console that cannot draw anew.
    """
    if not console.is_terminal or console.is_dumb_terminal:
        return None
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    # The time left stands before what a narrow terminal may cut.
    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=12),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("left{task.fields[state]}", markup=False),
        console=console,
        auto_refresh=False,
        transient=True,
    )
