"""Pretrained models: the files that a run needs, kept beside the data set that they go with."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path

from ncfbench.data.bert_checkpoint import CONFIG, MODULES, POOLING, WEIGHTS, read_verified
from ncfbench.data.kept_files import CHECKPOINT
from ncfbench.data.pieces import tokenizer_digest, tokenizer_file
from ncfbench.data.readers.files import sha256
from ncfbench.data.store import Dataset
from ncfbench.errors import DataError, UsageError

FILES = (CONFIG, WEIGHTS, POOLING, MODULES)
"""Files of a model that decide its vectors; the last two may be missing."""


def keep_checkpoint(folder: Path, dataset: Dataset) -> str:
    """Keep the files of a checkpoint beside a data set, and return the digest that names them.

    A copy that was damaged meanwhile is replaced.

    Raises:
        DataError: a file is damaged, the model is none of BERT's kind, the tokenizer is missing, or
            the folder cannot be written.
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
    try:
        read_verified(folder)
    except DataError as error:
        raise DataError(
            f"{error} Get its files again, or use another checkpoint, such as MiniLM's."
        ) from error
    digest, token_file = _digest(folder), tokenizer_file(folder)

    def copy(home: Path) -> None:
        for name in (*_present(folder), token_file.name):
            (home / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(folder / name, home / name)

    def is_whole(home: Path) -> bool:
        return _digest(home) == digest and sha256(home / token_file.name) == sha256(token_file)

    return CHECKPOINT.keep(dataset, digest, copy, is_whole)


def _present(folder: Path) -> list[str]:
    return [name for name in FILES if (folder / name).is_file()]


def _digest(folder: Path) -> str:
    lines = [f"{name} {sha256(folder / name)}" for name in _present(folder)]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()
