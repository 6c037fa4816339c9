"""Folders that one process at a time works in, held through locks that end with the process."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from ncfbench.errors import UsageError, shown
from ncfbench.storage.tables import storage_errors

PATIENCE_SECONDS = 1.0
"""Seconds of waiting before the wait is announced."""
MOST_VANISHINGS = 100
"""So often a folder that others made and removed is made once more."""


@contextmanager
def held(folder: Path, what: str, wait: Callable[[str], object] | None = None) -> Iterator[None]:
    """Hold a folder for this process; the system releases it when the process ends, also by a kill.

    Args:
        folder: it is made if it is missing, and goes again if nothing is written into it; the lock
            is the file ``.lock`` in it.
        what: what a holder does, for messages: ``preparing`` this folder.
        wait: waits for another process, which is announced through this function after a second;
            None refuses at once.

    Raises:
        DataError: the folder cannot be written.
        UsageError: another process holds the folder, and ``wait`` is None.
    """
    path = folder / ".lock"
    lock = FileLock(path)
    with storage_errors(folder):
        made = _acquire(lock, folder, what, wait)
    try:
        yield
    finally:
        # Removed while it is held: nobody else writes into the folder meanwhile.
        with suppress(OSError):
            if made and [*folder.iterdir()] == [path]:
                path.unlink()
                for each in made:
                    each.rmdir()
        lock.release()


def _acquire(
    lock: FileLock, folder: Path, what: str, wait: Callable[[str], object] | None
) -> list[Path]:
    """Return the folders that were made, the deepest first."""
    made: list[Path] = []
    announced, vanished = False, 0
    while not lock.is_locked:
        try:
            if not folder.exists():
                made = [each for each in (folder, *folder.parents) if not each.exists()]
            folder.mkdir(parents=True, exist_ok=True)
            lock.acquire(timeout=0 if wait is None else PATIENCE_SECONDS)
        except Timeout as error:
            vanished = 0
            if wait is None:
                raise UsageError(
                    f"Another process is {what} {shown(folder)}. Wait until it ends, or choose"
                    " another folder."
                ) from error
            if not announced:
                wait(f"Another process is {what} {folder}: waiting until it ends (Ctrl-C to stop).")
                announced = True
        except (FileExistsError, FileNotFoundError):
            # Another process wrote nothing and removed the folder just now; or something stands in
            # its place, and stays.
            vanished += 1
            if vanished == MOST_VANISHINGS:
                raise
    return made
