"""Settings that are files: they are kept beside the data set, and named by a digest."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any


def name_files(
    given: Mapping[str, Any], data_dir: Path, say: Callable[[str], None]
) -> dict[str, Any]:
    """Return settings in which digests stand for files and folders, whose content is kept.

    Args:
        given: settings that a user gave; ``word_vectors`` and ``checkpoint`` may be paths.
        say: receives what was found in them.

    Raises:
        DataError: the data set is not prepared, or a file is damaged or cannot be kept.
        UsageError: a file is missing, or does not go with the data set.
    """
    found = dict(given)
    if given.get("word_vectors"):
        from ncfbench.data.word_vectors import name_word_vectors

        found = name_word_vectors(found, data_dir, say)
    if given.get("checkpoint"):
        from ncfbench.data.pretrained import name_checkpoint

        found = name_checkpoint(found, data_dir, say)
    return found
