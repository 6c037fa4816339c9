"""The progress bar of downloads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from rich.console import Console


class DownloadBar:
    """A progress bar with the methods of tqdm's that pooch calls. Use as a context manager."""

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
        """Add bytes that have arrived."""
        self._bar.advance(self._task, size)

    def reset(self) -> None:
        """Start the file again; pooch calls this before it reports the whole size once more."""
        self._bar.reset(self._task, total=self._total)

    def close(self) -> None:
        """End a file; the bar stays for the next."""
