"""A race as it goes: a live table of all arms on a terminal, lines elsewhere, or nothing."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ncfbench.racing.entry import Entry
from ncfbench.reporting.formats import three_digits
from ncfbench.reporting.table import Col, Table

if TYPE_CHECKING:
    from rich.console import Console

SHOWN_SECONDS = 1.0
"""Between two drawings: each takes time from the arms."""
SILENCE_SECONDS = 60.0
COLUMNS = (
    Col("", "name"),
    Col("s trained", "trained_seconds", ".1f"),
    Col("lines", lambda each: len(each.readings)),
    Col(
        "last",
        lambda each: next((line.value for line in each.readings[::-1]), None),
        three_digits,
    ),
    Col("", lambda each: "running" if each.is_running else each.status.value, align="left"),
)


class Display:
    """Shows a race.

    Args:
        console: None shows nothing.
        budget_seconds: for the title.
    """

    def __init__(self, console: Console | None, budget_seconds: float) -> None:
        self.console, self.budget_seconds = console, budget_seconds
        self.entries: Sequence[Entry] = ()
        self._began = self._shown = self._said = time.perf_counter()
        self._live = None
        if console is not None and console.is_terminal and not console.is_dumb_terminal:
            from rich.live import Live

            self._live = Live(console=console, auto_refresh=False, transient=True)
            self._live.start()

    def say(self, text: str) -> None:
        """Print a message."""
        if self.console is not None:
            self.console.print(text, soft_wrap=True)
            self._said = time.perf_counter()

    def tick(self) -> None:
        """Draw anew, or break a long silence."""
        now = time.perf_counter()
        if self._live is not None and now - self._shown >= SHOWN_SECONDS:
            from ncfbench.reporting.render.terminal import TableView

            self._shown = now
            self._live.update(
                TableView(Table.of(self._title(now), COLUMNS, self.entries)), refresh=True
            )
        elif self._live is None and now - self._said >= SILENCE_SECONDS:
            running = [each.name for each in self.entries if each.is_running]
            self.say(f"{self._title(now)}: {', '.join(running) or 'ending'}")

    def end(self) -> None:
        """Remove the table."""
        if self._live is not None:
            self._live.stop()

    def _title(self, now: float) -> str:
        return f"{now - self._began:.0f} of {self.budget_seconds:.0f} s"
