"""A race as it goes: a line on a terminal, lines after long silences elsewhere, or nothing."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ncfbench.racing.entry import Entry
from ncfbench.reporting.formats import three_digits

if TYPE_CHECKING:
    from rich.console import Console

SHOWN_SECONDS = 1.0
"""Between two drawings: each takes time from the arms."""
SILENCE_SECONDS = 60.0


class Display:
    """Shows a race.

    Args:
        console: None shows nothing.
        budget_seconds: for the line.
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
            from rich.text import Text

            self._shown = now
            line = Text(self._line(now), no_wrap=True, overflow="ellipsis")
            self._live.update(line, refresh=True)
        elif self._live is None and now - self._said >= SILENCE_SECONDS:
            self.say(self._line(now))

    def end(self) -> None:
        """Remove the line."""
        if self._live is not None:
            self._live.stop()

    def _line(self, now: float) -> str:
        running = next((each for each in self.entries if each.is_running), None)
        last = running.readings[-1:] if running else []
        values = "".join(f", {three_digits(line.value)}" for line in last)
        arm = f"{running.name}{values}" if running else "ending"
        return f"{now - self._began:.0f} of {self.budget_seconds:.0f} s: {arm}"
