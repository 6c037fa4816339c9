"""Files of users that runs need: kept beside a data set, and named by a digest of their content.

A run that is resumed, a sweep and the other processes of a run need the user's own files no more,
and runs with other content are others.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from ncfbench.data.store import Dataset
from ncfbench.errors import DataError, UsageError
from ncfbench.storage import tables

DIGITS = 12
"""Hexadecimal digits of a SHA-256 that name a file; see :func:`ncfbench.config.is_digest`."""


@dataclass(frozen=True)
class KeptKind:
    """A kind of files that are kept."""

    noun: str
    again: str
    """How a user gives them again."""
    pattern: str
    """Name of the file or folder that is kept, with ``{}`` for the digest."""

    def path(self, folder: Path | None, digest: str) -> Path:
        """Return where the content of a digest is kept, beside the content of a data set.

        Raises:
            DataError: the data set is in no folder.
        """
        if folder is None:
            raise DataError(f"A data set that is in no folder cannot hold {self.noun}.")
        return folder / self.pattern.format(digest)

    def find(self, dataset: Dataset, digest: str) -> Path:
        """Return the path of what was kept.

        Raises:
            UsageError: there is nothing of that digest.
        """
        path = self.path(dataset.folder, digest)
        if not path.exists():
            raise UsageError(
                f"Data set {dataset.name!r} has no {self.noun} {digest}. Give {self.again}."
            )
        return path

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Add to a DataError about what was kept how a user gives it again."""
        try:
            yield
        except DataError as error:
            raise DataError(f"{error} Give {self.again}.") from error

    def keep(
        self,
        dataset: Dataset,
        sha256: str,
        write: Callable[[Path], None],
        is_whole: Callable[[Path], bool],
    ) -> str:
        """Keep content, whole or not at all, and return the digest that names it.

        Args:
            sha256: of the content.
            write: writes it to a path, unless it is there already, undamaged.
            is_whole: returns whether the content at a path is undamaged; a DataError counts as no.

        Raises:
            DataError: it cannot be written.
        """
        digest = sha256[:DIGITS]
        path = self.path(dataset.folder, digest)
        if _is_there(path, is_whole):
            return digest
        with tables.storage_errors(path):
            scratch, damaged = (
                path.with_name(f".{state}-{path.name}-{os.getpid()}") for state in ("new", "old")
            )
            try:
                write(scratch)
                with suppress(FileNotFoundError):
                    path.rename(damaged)
                scratch.rename(path)
            except OSError:
                if not _is_there(path, is_whole):  # or another process was faster
                    raise
            finally:
                for each in (scratch, damaged):
                    shutil.rmtree(each, ignore_errors=True)
                    if each.is_file():
                        each.unlink()
        return digest


def _is_there(path: Path, is_whole: Callable[[Path], bool]) -> bool:
    try:
        return path.exists() and is_whole(path)
    except DataError:
        return False


WORD_VECTORS = KeptKind(
    "word vectors", "their file again, with --word-vectors FILE", "word-vectors-{}.npy"
)
CHECKPOINT = KeptKind("checkpoint", "its folder again, with --checkpoint FOLDER", "checkpoint-{}")
