"""Checkpoints: folders of BERT-like models, kept beside a data set for the encoder ``bert``."""

from __future__ import annotations

import filecmp
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from ncfbench.data.assets import pieces
from ncfbench.data.assets.architecture import (
    checkpoint_digest,
    present_files,
    read_verified,
    require_files,
)
from ncfbench.data.store import Dataset
from ncfbench.errors import DataError, UsageError
from ncfbench.storage import tables

AGAIN = "Give its folder again, with --set checkpoint=FOLDER."


def kept_path(folder: Path | None, digest: str) -> Path:
    """Return where a checkpoint is kept; a DataError for a data set in memory.

    Args:
        folder: of the data set's content.
    """
    if folder is None:
        raise DataError("A data set that is in no folder cannot hold a checkpoint.")
    return folder / f"checkpoint-{digest}"


@contextmanager
def opened_checkpoint(dataset: Dataset, digest: str) -> Iterator[Path]:
    """Yield the folder of a checkpoint, or a UsageError if it was not kept for this data set; a
    DataError in the block also says how to give it again.
    """
    path = kept_path(dataset.folder, digest)
    if not path.exists():
        raise UsageError(f"Data set {dataset.name!r} has no checkpoint {digest}. {AGAIN}")
    try:
        yield path
    except DataError as error:
        raise DataError(f"{error} {AGAIN}") from error


def keep_checkpoint(folder: Path, dataset: Dataset, say: Callable[[str], None]) -> str:
    """Keep the files of a checkpoint beside a data set, and return the digest that names them."""
    require_files(folder, "checkpoint")
    tokenizer = dataset.manifest.get("tokenizer")
    if tokenizer is None or tokenizer["sha256"] != pieces.tokenizer_digest(folder):
        made = "words" if tokenizer is None else f"the tokenizer of {tokenizer['name']}"
        raise UsageError(
            f"{dataset.name} was prepared with {made}, and --encoder bert needs the pieces of its"
            f" checkpoint. Prepare it again with --tokenizer {folder}."
        )
    try:
        read_verified(folder)
    except DataError as error:
        raise DataError(
            f"{error} Get its files again, or use another checkpoint, such as MiniLM's."
        ) from error
    digest = checkpoint_digest(folder)
    home = kept_path(dataset.folder, digest)
    # The configuration last: without it, copies that were cut off are refused.
    for name in (pieces.tokenizer_file(folder).name, *reversed(present_files(folder))):
        file, kept = folder / name, home / name
        with tables.storage_errors(kept):
            if not (kept.exists() and filecmp.cmp(file, kept, shallow=False)):
                kept.parent.mkdir(parents=True, exist_ok=True)
                with tables.atomic_path(kept) as new:
                    shutil.copyfile(file, new)
    say(f"Checkpoint {digest}: {folder.name}.")
    return digest
