"""Settings that are files or folders: their content is kept, and a digest takes their place."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ncfbench.config import SETTINGS, is_digest
from ncfbench.data import open_dataset

if TYPE_CHECKING:
    from ncfbench.data.store import Dataset


def _keep_word_vectors(file: Path, dataset: Dataset, say: Callable[[str], None]) -> str:
    from ncfbench.data.assets.word_vectors import keep_word_vectors

    vectors = keep_word_vectors(file, dataset)
    say(f"Word vectors {vectors.digest}: {vectors.coverage}.")
    return vectors.digest


def _keep_checkpoint(folder: Path, dataset: Dataset, say: Callable[[str], None]) -> str:
    from ncfbench.data.assets.checkpoint import keep_checkpoint

    digest = keep_checkpoint(folder, dataset)
    say(f"Checkpoint {digest}: {folder.name}.")
    return digest


KEEPERS = {"word_vectors": _keep_word_vectors, "checkpoint": _keep_checkpoint}
"""Keepers of the settings that are files or folders."""


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
    named = dict(given)
    for name, keep in KEEPERS.items():
        value = given.get(name)
        if value and (not is_digest(value) or Path(value).exists()):
            dataset = open_dataset(data_dir, given.get("dataset", SETTINGS["dataset"].default), say)
            named[name] = keep(Path(value), dataset, say)
    return named


def name_axes(
    axes: Mapping[str, Sequence[Any]],
    datasets: Sequence[str],
    data_dir: Path,
    say: Callable[[str], None],
) -> dict[str, tuple[Any, ...]]:
    """Return the axes of a grid, values by setting, with digests for files and folders, which are
    kept beside each data set; see :func:`name_files`.
    """
    named = {name: tuple(values) for name, values in axes.items()}
    for name in named.keys() & KEEPERS.keys():
        for dataset in datasets:
            given = [{"dataset": dataset, name: value} for value in axes[name]]
            named[name] = tuple(name_files(cell, data_dir, say)[name] for cell in given)
    return named
