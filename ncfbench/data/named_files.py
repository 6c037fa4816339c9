"""Settings that are files: they are kept beside the data set, and named by a digest."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from ncfbench.config import SETTINGS, is_digest
from ncfbench.data import open_dataset

if TYPE_CHECKING:
    from ncfbench.data.store import Dataset

    Keep: TypeAlias = Callable[[Path, Dataset, Callable[[str], None]], str]


def _keep_word_vectors(file: Path, dataset: Dataset, say: Callable[[str], None]) -> str:
    from ncfbench.data.word_vectors import keep_word_vectors

    found = keep_word_vectors(file, dataset)
    say(f"Word vectors {found.digest}: {found.coverage}.")
    return found.digest


def _keep_checkpoint(folder: Path, dataset: Dataset, say: Callable[[str], None]) -> str:
    from ncfbench.data.pretrained import keep_checkpoint

    digest = keep_checkpoint(folder, dataset)
    say(f"Checkpoint {digest}: {folder.name}.")
    return digest


FILES: Mapping[str, Keep] = {"word_vectors": _keep_word_vectors, "checkpoint": _keep_checkpoint}
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
    found = dict(given)
    for name, keep in FILES.items():
        value = given.get(name)
        if value and (not is_digest(value) or Path(value).exists()):
            dataset = open_dataset(data_dir, given.get("dataset", SETTINGS["dataset"].default), say)
            found[name] = keep(Path(value), dataset, say)
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
    for name in found.keys() & FILES.keys():
        for dataset in datasets:
            given = [{"dataset": dataset, name: value} for value in axes[name]]
            found[name] = tuple(name_files(each, data_dir, say)[name] for each in given)
    return found
