"""Where assets are kept."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from ncfbench.data.store import Dataset
from ncfbench.errors import DataError, UsageError


@dataclass(frozen=True)
class AssetKind:
    """A kind of assets: its noun, how a user gives one again, and the pattern of names of the files
    or folders that are kept, with ``{}`` for the digest.
    """

    noun: str
    again: str
    pattern: str

    def path(self, folder: Path | None, digest: str) -> Path:
        """Return where an asset is kept; a DataError for a data set in memory."""
        if folder is None:
            raise DataError(f"A data set that is in no folder cannot hold {self.noun}.")
        return folder / self.pattern.format(digest)

    @contextmanager
    def opened(self, dataset: Dataset, digest: str) -> Iterator[Path]:
        """Yield the path of an asset, or a UsageError if it was not kept for this data set; a
        DataError in the block also says how to give it again.
        """
        path = self.path(dataset.folder, digest)
        if not path.exists():
            raise UsageError(
                f"Data set {dataset.name!r} has no {self.noun} {digest}. Give {self.again}."
            )
        try:
            yield path
        except DataError as error:
            raise DataError(f"{error} Give {self.again}.") from error


WORD_VECTORS = AssetKind(
    "word vectors", "their file again, with --word-vectors FILE", "word-vectors-{}.npy"
)
CHECKPOINT = AssetKind("checkpoint", "its folder again, with --checkpoint FOLDER", "checkpoint-{}")
