"""Where assets are kept, and how: whole or not at all."""

from __future__ import annotations

import filecmp
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from ncfbench.data.store import Dataset
from ncfbench.errors import DataError, UsageError
from ncfbench.storage import tables

DIGITS = 12
"""Hexadecimal digits of a SHA-256 that name an asset; see :func:`ncfbench.config.is_digest`."""


@dataclass(frozen=True)
class AssetKind:
    """A kind of assets.

    Args:
        noun: for messages.
        again: how a user gives one again.
        pattern: name of the file or folder that is kept, with ``{}`` for the digest.
    """

    noun: str
    again: str
    pattern: str

    def path(self, folder: Path | None, digest: str) -> Path:
        """Return where an asset is kept; a DataError for a data set that is in no folder."""
        if folder is None:
            raise DataError(f"A data set that is in no folder cannot hold {self.noun}.")
        return folder / self.pattern.format(digest)

    def find(self, dataset: Dataset, digest: str) -> Path:
        """Return the path of an asset that was kept; a UsageError where it was not."""
        path = self.path(dataset.folder, digest)
        if not path.exists():
            raise UsageError(
                f"Data set {dataset.name!r} has no {self.noun} {digest}. Give {self.again}."
            )
        return path

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Add to a DataError about an asset how a user gives it again."""
        try:
            yield
        except DataError as error:
            raise DataError(f"{error} Give {self.again}.") from error

    def keep(self, dataset: Dataset, content_sha256: str, write: Callable[[Path], None]) -> str:
        """Keep an asset, unless it is there undamaged, and return the digest that names it.

        Args:
            content_sha256: names the content.
            write: writes it to a path.

        Raises:
            DataError: it cannot be written.
        """
        digest = content_sha256[:DIGITS]
        path = self.path(dataset.folder, digest)
        new = path.with_name(f".new-{path.name}-{os.getpid()}")
        with tables.storage_errors(path):
            try:
                write(new)
                if not _are_equal(path, new):
                    _remove(path)
                    new.rename(path)
            except OSError:
                if not _are_equal(path, new):  # or another process was faster
                    raise
            finally:
                _remove(new)
        return digest


def _are_equal(path: Path, other: Path) -> bool:
    """Return whether two files, or the files of two folders, are there and hold the same."""
    names = {file.relative_to(home) for home in (path, other) for file in (home, *home.rglob("*"))}
    try:
        return all(
            (path / name).is_dir()
            if (other / name).is_dir()
            else filecmp.cmp(path / name, other / name, shallow=False)
            for name in names
        )
    except OSError:
        return False


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


WORD_VECTORS = AssetKind(
    "word vectors", "their file again, with --word-vectors FILE", "word-vectors-{}.npy"
)
CHECKPOINT = AssetKind("checkpoint", "its folder again, with --checkpoint FOLDER", "checkpoint-{}")
