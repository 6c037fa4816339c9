"""Settings that are files: they are kept beside the data set, and named by a digest."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

FILES = ("word_vectors", "checkpoint")
"""The settings that are files or folders."""


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


def name_axes(
    axes: Mapping[str, Sequence[Any]],
    datasets: Sequence[str],
    data_dir: Path,
    say: Callable[[str], None],
) -> dict[str, tuple[Any, ...]]:
    """Return the axes of a grid with digests for files and folders; see :func:`name_files`.

    Args:
        axes: values by setting.
        datasets: the data sets beside which they are kept.
    """
    found = {name: tuple(values) for name, values in axes.items()}
    for name in found.keys() & set(FILES):
        for dataset in datasets:
            given = [{"dataset": dataset, name: value} for value in axes[name]]
            found[name] = tuple(name_files(each, data_dir, say)[name] for each in given)
    return found
