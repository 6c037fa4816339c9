"""Settings that are files or folders: their content is kept, and a digest takes their place."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ncfbench.config import SETTINGS, is_digest

if TYPE_CHECKING:
    from ncfbench.data.store import Dataset


KEPT = ("word_vectors", "checkpoint")
"""Settings that are files or folders."""


def _keep(name: str, path: Path, dataset: Dataset, say: Callable[[str], None]) -> str:
    if name == "word_vectors":
        from ncfbench.data.assets.word_vectors import keep_word_vectors

        return keep_word_vectors(path, dataset, say)
    from ncfbench.data.assets.checkpoint import keep_checkpoint

    return keep_checkpoint(path, dataset, say)


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
    from ncfbench.data import open_dataset

    named = dict(given)
    for name in KEPT:
        value = given.get(name)
        if value and (not is_digest(value) or Path(value).exists()):
            dataset = open_dataset(data_dir, given.get("dataset", SETTINGS["dataset"].default), say)
            named[name] = _keep(name, Path(value), dataset, say)
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
    for name in named.keys() & set(KEPT):
        for dataset in datasets:
            given = [{"dataset": dataset, name: value} for value in axes[name]]
            named[name] = tuple(name_files(cell, data_dir, say)[name] for cell in given)
    return named
