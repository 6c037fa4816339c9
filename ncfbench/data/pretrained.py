"""Pretrained models: the files that a run needs, kept beside the data set that they go with.

What is kept is named by a digest of its content, so that a run that is resumed, a sweep and the
other processes of a run need the user's folder no more, and runs with other weights are others.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ncfbench.config import SETTINGS, is_digest
from ncfbench.data import open_dataset
from ncfbench.data.pieces import tokenizer_digest, tokenizer_file
from ncfbench.data.readers.files import sha256
from ncfbench.data.store import Dataset
from ncfbench.errors import DataError, UsageError
from ncfbench.storage import tables

WEIGHTS = "model.safetensors"
CONFIG = "config.json"
POOLING = "1_Pooling/config.json"
MODULES = "modules.json"
DIGITS = 12


def name_checkpoint(
    given: Mapping[str, Any], data_dir: Path, say: Callable[[str], None]
) -> dict[str, Any]:
    """Return settings in which a digest stands for the folder of a checkpoint, whose files are
    kept.

    Args:
        given: settings that a user gave.

    Raises:
        DataError, UsageError: the data set is not prepared; see :func:`keep_checkpoint`.
    """
    value = given.get("checkpoint")
    if not value or (is_digest(value) and not Path(value).exists()):
        return dict(given)
    name = given.get("dataset", SETTINGS["dataset"].default)
    digest = keep_checkpoint(Path(value), open_dataset(data_dir, name, say))
    say(f"Checkpoint {digest}: {Path(value).name}.")
    return {**given, "checkpoint": digest}


def keep_checkpoint(folder: Path, dataset: Dataset) -> str:
    """Keep the files of a checkpoint beside a data set, and return the digest that names them.

    Raises:
        DataError: the tokenizer is missing or damaged, or the folder cannot be written.
        UsageError: a file is missing, or the data set was prepared with words or with another
            tokenizer.
    """
    for name in (CONFIG, WEIGHTS):
        if not (folder / name).is_file():
            raise UsageError(
                f"--checkpoint {folder}: there is no {name}. Name the folder of a pretrained model."
            )
    tokenizer = dataset.manifest.get("tokenizer")
    if tokenizer is None or tokenizer["sha256"] != tokenizer_digest(folder):
        made = "words" if tokenizer is None else f"the tokenizer of {tokenizer['name']}"
        raise UsageError(
            f"{dataset.name} was prepared with {made}, and --encoder bert needs the pieces of its"
            f" checkpoint. Prepare it again with --tokenizer {folder}."
        )
    files = [name for name in (CONFIG, WEIGHTS, POOLING, MODULES) if (folder / name).is_file()]
    digests = [f"{name} {sha256(folder / name)}" for name in files]
    digest = hashlib.sha256("\n".join(digests).encode()).hexdigest()[:DIGITS]
    home = checkpoint_folder(dataset.folder, digest)
    if not home.exists():
        with tables.storage_errors(home):
            scratch = home.with_name(f".new-{digest}-{os.getpid()}")
            for name in (*files, tokenizer_file(folder).name):
                (scratch / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(folder / name, scratch / name)
            try:
                scratch.rename(home)
            except OSError:  # another process was faster
                shutil.rmtree(scratch, ignore_errors=True)
                if not home.exists():
                    raise
    return digest


def checkpoint_folder(folder: Path | None, digest: str) -> Path:
    """Return the folder of a kept checkpoint, beside the content of a data set.

    Raises:
        DataError: the data set is in no folder.
    """
    if folder is None:
        raise DataError("A data set that is in no folder cannot hold a checkpoint.")
    return folder / f"checkpoint-{digest}"
