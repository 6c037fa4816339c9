"""Assets: users' files that runs need, kept beside a data set and named by a digest."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ncfbench.config import SETTINGS, is_digest

KEPT = ("word_vectors", "checkpoint")
"""Settings that are files or folders."""


def name_files(
    given: Mapping[str, Any], data_dir: Path, say: Callable[[str], None]
) -> dict[str, Any]:
    """Return settings in which digests stand for files and folders, whose content is kept.

    Args:
        given: settings that a user gave; those of :data:`KEPT` may be paths.
        say: receives what was found in them.

    Raises:
        DataError: the data set is not prepared, or a file is damaged or cannot be kept.
        UsageError: a file is missing, or does not go with the data set.
    """
    named = dict(given)
    for name in KEPT:
        value = given.get(name)
        if not value or (is_digest(value) and not Path(value).exists()):
            continue
        # They import NumPy, which help does without.
        from ncfbench.data import open_dataset
        from ncfbench.data.assets.checkpoint import keep_checkpoint
        from ncfbench.data.assets.word_vectors import keep_word_vectors

        keep = keep_checkpoint if name == "checkpoint" else keep_word_vectors
        dataset = open_dataset(data_dir, given.get("dataset", SETTINGS["dataset"].default), say)
        named[name] = keep(Path(value), dataset, say)
    return named
