"""Runs that trained, opened again: records, data set, and the parameters that a run reports."""

from __future__ import annotations

from collections.abc import Callable
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

from ncfbench.config import Folder, Locations
from ncfbench.data import Dataset, open_dataset
from ncfbench.errors import DataError, UsageError, nearest
from ncfbench.runs import folder as runs
from ncfbench.runs.folder import RunRecord
from ncfbench.timing.compile_cache import keep_compiled

if TYPE_CHECKING:  # they import JAX
    from ncfbench.training.checkpoint import Best
    from ncfbench.training.inference import Embedder

OPEN = ("finished", "interrupted")
"""Statuses of runs whose last checkpoint is that of their records."""


def read_trained(run: str | PathLike[str], runs_dir: Folder) -> RunRecord:
    """Read the records of a run that finished, or was interrupted, as those of a race are.

    Args:
        run: its folder, or the folder's name below ``runs_dir``.

    Raises:
        DataError: there is no such run, or a record is damaged.
        UsageError: it diverged, or is not over.
    """
    below = Locations.of(runs_dir=runs_dir).runs_dir
    folder = next((path for path in (Path(run), below / run) if path.is_dir()), None)
    if folder is None:
        names = [path.parent.name for path in below.glob("*/config.json")]
        raise DataError(
            f"There is no run {str(run)!r}, neither as a folder nor by name in {below}"
            f"{nearest(Path(run).name, names)}"
        )
    record = runs.read(folder)
    if (status := record.summary["status"]) not in OPEN:
        raise UsageError(f"{folder} is {status} and has no usable checkpoint.")
    return record


def open_data(record: RunRecord, data_dir: Folder, say: Callable[[str], None]) -> Dataset:
    """Open the data set that a run was trained on.

    Raises:
        DataError: it is not prepared, damaged, or has other content.
    """
    name, folder = record.config.dataset, Locations.of(data_dir).data_dir
    dataset = open_dataset(name, data_dir=folder, say=say)
    if dataset.fingerprint != record.data_fingerprint:
        raise DataError(
            f"{name} in {folder} is not the data set that {record.folder} was trained on. Prepare"
            " that again, or name its folder with --data-dir."
        )
    return dataset


def restore_trained(
    record: RunRecord, dataset: Dataset, say: Callable[[str], None]
) -> tuple[Embedder, Best]:
    """Return an embedder, and the parameters of the epoch that a run reports; those of its last
    iteration, with a message, where it never evaluated an epoch.

    Raises:
        DataError: the checkpoint is gone or damaged, or keeps parameters of another epoch.
    """
    keep_compiled(say)
    from ncfbench.models.towers import DeviceContent
    from ncfbench.training.checkpoint import Best, Checkpoints
    from ncfbench.training.step import Trainer

    one_device = record.config.on_one_device()  # a checkpoint knows nothing of devices
    trainer = Trainer.without_state(one_device, dataset)
    saved = Checkpoints(record.folder / "checkpoints", say).restore(trainer.shapes)
    embedder = trainer.embedder(DeviceContent.of(dataset, [one_device]))
    iteration, reported = record.summary["iterations"], record.reported_iteration
    if saved is not None and saved.best is not None and saved.best.iteration == reported:
        return embedder, saved.best
    if saved is None or int(saved.state.iteration) != iteration:
        raise DataError(
            f"The final checkpoint of {record.folder} (iteration {iteration:,}) is missing. Train"
            " it again: ncfbench run --again."
        )
    if reported not in (iteration, None):
        raise DataError(
            f"{record.folder} keeps no parameters of the epoch that it reports (iteration"
            f" {reported:,}). Train it again: ncfbench run --again."
        )
    if reported is None:
        say(
            f"No epoch of {record.folder} was evaluated: the parameters are those of its last"
            f" iteration, {iteration:,}, and no recall belongs to them."
        )
    # An interruption within a block leaves rows whose momentum and decay are still to come.
    state = trainer.settle(saved.state)
    return embedder, Best(iteration, state.parameters)
