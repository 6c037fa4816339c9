"""Pretrained models: the files that a run needs, kept beside the data set that they go with."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path

from ncfbench.data.kept_files import CHECKPOINT
from ncfbench.data.pieces import tokenizer_digest, tokenizer_file
from ncfbench.data.readers.files import sha256
from ncfbench.data.store import Dataset
from ncfbench.errors import UsageError

WEIGHTS = "model.safetensors"
CONFIG = "config.json"
POOLING = "1_Pooling/config.json"
MODULES = "modules.json"


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
    digest = hashlib.sha256("\n".join(digests).encode()).hexdigest()

    def copy(home: Path) -> None:
        for name in (*files, tokenizer_file(folder).name):
            (home / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(folder / name, home / name)

    return CHECKPOINT.keep(dataset, digest, copy)
