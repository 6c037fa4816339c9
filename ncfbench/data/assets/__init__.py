"""Assets: users' files that runs need, kept beside a data set and named by a digest."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ncfbench.config import SETTINGS, Choices, Locations, is_digest, merge


def merge_named(
    say: Callable[[str], None],
    flags: Mapping[str, Any],
    assignments: Sequence[str] = (),
    file: Path | None = None,
    chosen: Choices | None = None,
) -> tuple[dict[str, Any], Locations]:
    """Return the settings that a user gives, with digests for files, and the folders.

    Arguments and errors are those of :func:`ncfbench.config.merge` and :func:`name_files`.
    """
    given, locations = merge(flags, assignments, file, chosen)
    return name_files(given, locations.data_dir, say), locations


def name_files(
    given: Mapping[str, Any], data_dir: Path, say: Callable[[str], None]
) -> dict[str, Any]:
    """Return a user's settings with digests for files and folders, whose content is kept.

    Raises:
        DataError: the data set is not prepared, or a file is damaged or cannot be kept.
        UsageError: a file is missing, or does not go with the data set.
    """
    value = given.get("checkpoint")
    if not value or (is_digest(value) and not Path(value).exists()):
        return dict(given)
    # They import NumPy, which help does without.
    from ncfbench.data import open_dataset
    from ncfbench.data.assets.checkpoint import keep_checkpoint

    dataset = open_dataset(
        given.get("dataset", SETTINGS["dataset"].default), data_dir=data_dir, say=say
    )
    return {**given, "checkpoint": keep_checkpoint(Path(value), dataset, say)}
