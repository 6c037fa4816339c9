"""Progress of a long computation: a live bar on a terminal, plain lines elsewhere, or nothing."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress as Bars
    from rich.progress import TaskID

SILENCE_SECONDS = 60.0
"""After this time without a line, lines say how far the work is."""
SHOWN_SECONDS = 2.0
"""Between two moves of a bar beside training, whose clock has them: each takes about 1 ms."""
LOGGED = ("probe_loss", "validation_recall_at_50", "test_recall_at_50")
"""Columns of the curve in a line of JSON, where they were measured."""


class Progress:
    """Shows the events of a run, or of other work: a line for each message and each epoch.

    On a terminal a bar below them shows epoch, iteration, time left, loss and items a second, drawn
    at probes and every :data:`SHOWN_SECONDS`; elsewhere a line after a long silence says how far
    the work is.

    Args:
        console: where it is shown; nothing is by default.
        bars: where several runs have their bars; by default this run has one of its own.
        name: of one of several runs, before what its bar and its lines show; with bars it has no
            lines for epochs.
        logs: print each row of the curve as a line of JSON on standard output, for other programs.
    """

    console: Console | None = None
    bars: Bars | None = None
    name, logs = "", False
    _task: TaskID | None = None
    _total, _unit, _item_slots = 0, "", 0.0
    _said, _shown = 0.0, 0.0
    _last: tuple[int, float] = (0, 0.0)

    def __init__(
        self,
        console: Console | None = None,
        bars: Bars | None = None,
        name: str = "",
        *,
        logs: bool = False,
    ) -> None:
        self.console, self.name, self.logs = console, name, logs
        self.bars = bars or (None if console is None else make_bars(console))

    def begin(self, title: str, total: int, done: int) -> None:
        """Begin training of ``total`` iterations, ``done`` of which are done."""
        if not self.name:
            start = f", from iteration {done:,}" if done else ""
            self.say(f"{title}: {total:,} iterations{start}")
        self.start(total, done)

    def start(self, total: int, done: int, unit: str = "iteration") -> None:
        """Start a bar of some units of work, without a title."""
        self._total, self._unit, self._said = total, unit, time.perf_counter()
        if self.bars is not None:
            self._task = self.bars.add_task("", total=total, state="")
            self.bars.start()
        self._draw("starting", completed=done)

    def move(self, done: int, text: str | None = None, state: str = "") -> None:
        """Move the bar, and show in it what is at work and its state."""
        now = time.perf_counter()
        if self.bars is None:
            what = f"{text}{state}: {self._unit}" if text else self._unit
            self._break_silence(f"{what} {done:,} of {self._total:,}")
        elif now - self._shown >= SHOWN_SECONDS:
            self._shown = now
            self._draw(text, completed=done, **({"state": state} if text else {}))

    def advance(self, iteration: int, item_slots: float) -> None:
        """Note that an iteration was dispatched; its batch embeds about ``item_slots`` items."""
        self._item_slots = item_slots
        self.move(iteration)

    def embedded(self, done: int, total: int) -> None:
        """Show how many items a probe or an evaluation has embedded, where an item is costly."""
        self._draw(f"item {done:,} of {total:,}")
        self._break_silence(f"embedded item {done:,} of {total:,}")

    def record(self, row: Mapping[str, Any]) -> None:
        """Show a row of the curve: a line at an epoch's end, and the rate since the last row."""
        if self.console is None:
            return
        ends_epoch = row["test_recall_at_50"] is not None or row["epoch"] == int(row["epoch"])
        if ends_epoch and not (self.name and self.bars):
            parts = [f"epoch {row['epoch']:6.2f}", f"iteration {row['iteration']:6d}"]
            self.say("  ".join([*parts, *describe_quality(row), f"{row['train_seconds']:.1f} s"]))
        state = f", loss {row['probe_loss']:.4f}"
        iterations, seconds = row["iteration"] - self._last[0], row["train_seconds"] - self._last[1]
        if seconds > 0:
            state += f", {iterations * self._item_slots / seconds:,.0f} items/s"
        self._last = (row["iteration"], row["train_seconds"])
        self._draw(f"epoch {row['epoch']:.2f}", completed=row["iteration"], state=state)
        if self.logs:
            measured = {name: row[name] for name in LOGGED if row[name] is not None}
            print(json.dumps({"step": row["iteration"], **measured}), flush=True)

    def say(self, text: str) -> None:
        """Show a message."""
        if self.console is not None:
            self.console.print(f"{self.name}: {text}" if self.name else text, soft_wrap=True)
            self._said = time.perf_counter()

    def end(self) -> None:
        """Remove the bar, however the work ended."""
        if self.bars is not None and self._task is not None:
            self.bars.remove_task(self._task)
            self._task = None
            if not self.bars.tasks:
                self.bars.stop()

    def _break_silence(self, text: str) -> None:
        if self.bars is None and time.perf_counter() - self._said >= SILENCE_SECONDS:
            self.say(text)

    def _draw(self, text: str | None, **more: Any) -> None:
        if self.bars is not None and self._task is not None:
            if text is not None:
                more["description"] = f"{self.name} {text}".strip()
            self.bars.update(self._task, **more)
            self.bars.refresh()


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
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bars

    # The time left stands before what a narrow terminal may cut.
    return Bars(
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=12),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("left{task.fields[state]}", markup=False),
        console=console,
        auto_refresh=False,
        transient=True,
    )
