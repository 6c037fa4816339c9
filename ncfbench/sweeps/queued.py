"""Which cells are in Slurm's queue: what tasks of earlier jobs, of whatever sweep, are to train or
are training.
"""

from __future__ import annotations

import dataclasses
import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ncfbench.config import RunConfig, resolve
from ncfbench.errors import CheckFailedError, DataError, NcfbenchError, UsageError, reason
from ncfbench.storage import tables
from ncfbench.sweeps import slurm
from ncfbench.sweeps.grid import identity
from ncfbench.sweeps.slurm import Submission

LIST = "squeue"
PATIENCE_SECONDS = 120.0
"""For its answer."""


@dataclass(frozen=True)
class Queue:
    """Cells that tasks of earlier jobs wait to train, or train.

    Args:
        tasks: by cell, such as ``7_3``.
        problems: why the queue cannot be known, or not all of it.
    """

    tasks: Mapping[RunConfig, str]
    problems: tuple[str, ...] = ()


def note(folder: Path, submission: Submission) -> None:
    """Keep a job's id in its folder, beside those of earlier jobs with the same cells.

    Raises:
        DataError: it cannot be written.
    """
    try:
        earlier = submissions(folder)
    except DataError:  # said when the queue was looked at
        earlier = []
    tables.write_json(
        folder / slurm.JOBS, [dataclasses.asdict(each) for each in (*earlier, submission)]
    )


def submissions(folder: Path) -> list[Submission]:
    """The jobs that a folder knows of.

    Raises:
        DataError: what it says is damaged.
    """
    path = folder / slurm.JOBS
    if not path.exists():
        return []
    try:
        found = [Submission(**each) for each in tables.read_json(path)]
        if not all(
            isinstance(each.id, str) and isinstance(each.cluster, str | None) for each in found
        ):
            raise TypeError("a job's id is a text")
    except TypeError as error:
        raise DataError(f"{path} is damaged: {reason(error)}.") from error
    return found


def find(runs_dir: Path, cells: Sequence[RunConfig]) -> Queue:
    """Ask Slurm, where there were earlier jobs, which of the cells are in its queue.

    A cell counts by what its run would be: another sweep's task may train it. What cannot be known
    is said, and taken for not in the queue.
    """
    problems: list[str] = []
    folders: dict[str | None, dict[str, Path]] = {}
    for path in sorted((runs_dir / slurm.FOLDER).glob(f"*/{slurm.JOBS}")):
        try:
            for each in submissions(path.parent):
                folders.setdefault(each.cluster, {})[each.id] = path.parent
        except DataError as error:
            problems.append(f"What an earlier job has in the queue cannot be known: {error}")
    wanted = {identity(config): config for config in cells}
    tasks: dict[RunConfig, str] = {}
    for cluster, known in folders.items():
        try:
            found = _tasks(cluster)
        except NcfbenchError as error:
            problems.append(f"What earlier jobs have in the queue cannot be known: {error}")
            continue
        for job, index in found:
            if job in known:
                try:
                    config, _ = resolve(file=known[job] / "cells" / f"{index}.toml", environment={})
                except UsageError as error:
                    problems.append(f"What task {job}_{index} trains cannot be known: {error}")
                    continue
                if identity(config) in wanted:
                    tasks.setdefault(wanted[identity(config)], f"{job}_{index}")
    return Queue(tasks, tuple(problems))


def _tasks(cluster: str | None) -> list[tuple[str, str]]:
    """Ids of the user's array jobs and indices of their tasks that wait or run.

    Raises:
        CheckFailedError: Slurm does not say.
        UsageError: its command is not here.
    """
    command = shutil.which(LIST)
    if command is None:
        raise UsageError(f"{LIST}, Slurm's command, is not on the PATH.")
    words = [command, "--noheader", "--array", "--format=%F_%K", f"--user={os.getuid()}"]
    words += [] if cluster is None else [f"--clusters={cluster}"]
    try:
        done = subprocess.run(
            words,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            timeout=PATIENCE_SECONDS,
        )
    except subprocess.TimeoutExpired as error:
        raise CheckFailedError(f"{LIST} did not answer for {PATIENCE_SECONDS:g} s.") from error
    if done.returncode:
        message = " ".join((done.stderr or done.stdout).split())[:500]
        raise CheckFailedError(f"{LIST} failed: {message}")
    # Of several clusters it names each in a line of its own.
    return re.findall(r"^\s*(\d+)_(\d+)\s*$", done.stdout, re.MULTILINE)
