"""Folders that one process at a time works in, held through locks that end with the process."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from ncfbench.errors import UsageError, shown
from ncfbench.storage.tables import storage_errors

PATIENCE_SECONDS = 1.0
"""Seconds of waiting before the wait is announced."""


@contextmanager
def held(folder: Path, what: str, wait: Callable[[str], object] | None = None) -> Iterator[None]:
    """Hold a folder for this process; the system releases it when the process ends, also by a kill.

    Args:
        folder: it is made if it is missing, and stays; the lock is the file ``.lock`` in it.
        what: what a holder does, for messages: ``preparing`` this folder.
        wait: waits for another process, which is announced through this function after a second;
            None refuses at once.

    Raises:
        DataError: the folder cannot be written.
        UsageError: another process holds the folder, and ``wait`` is None.
    """
    lock = FileLock(folder / ".lock")
    with storage_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        try:
            lock.acquire(timeout=0 if wait is None else PATIENCE_SECONDS)
        except Timeout as error:
            if wait is None:
                raise UsageError(
                    f"Another process is {what} {shown(folder)}. Wait until it ends, or choose"
                    " another folder."
                ) from error
            wait(f"Another process is {what} {folder}: waiting until it ends (Ctrl-C to stop).")
            lock.acquire()
    try:
        yield
    finally:
        lock.release()
