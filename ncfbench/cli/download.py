"""The progress bars of downloads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import TaskID


class DownloadBar:
    """A bar for each file, with the methods of tqdm's that pooch calls. A context manager."""

    total = 0.0
    """Bytes of the current file, which pooch sets."""

    def __init__(self, console: Console) -> None:
        from rich.progress import BarColumn, DownloadColumn, Progress, TransferSpeedColumn

        columns = ("Downloading", BarColumn(), DownloadColumn(), TransferSpeedColumn())
        self._bar = Progress(*columns, console=console)
        self._task: TaskID | None = None

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._bar.stop()

    def update(self, size: float) -> None:
        """Add bytes of a file that have arrived."""
        if self._task is None:
            self._task = self._bar.add_task("download", total=self.total)
        self._bar.advance(self._task, size)

    def reset(self) -> None:
        """Start the file again; pooch calls this before it reports the whole size once more."""
        if self._task is not None:
            self._bar.reset(self._task)

    def close(self) -> None:
        """End a file; its bar stays above the next one's."""
        self._task = None
