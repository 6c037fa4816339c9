"""A sweep on Slurm: its cells as the tasks of one array job, submitted through submitit.

``jobs/NAME`` below the runs holds submitit's files and, in ``cells.json``, the settings behind each
job id, so that no cell is submitted twice.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ncfbench.config import Locations, RunConfig, complete
from ncfbench.errors import CheckFailedError, DataError, UsageError
from ncfbench.storage import locks, tables
from ncfbench.sweeps.files import Sweep, write_sweep
from ncfbench.sweeps.grid import Grid, SweepStatus, cell_identity, expand, read_status
from ncfbench.sweeps.jobs import (
    FOLDER,
    Task,
    absolute,
    create_folder,
    jobs_folder,
    read_failure,
    require_submitit,
)

if TYPE_CHECKING:
    pass

CELLS = "cells.json"
"""File in the folder of a submission, with a job id and settings for each cell."""
MOST_TIMEOUTS = 100
"""A task is requeued after this many time limits at most."""
ALIKE = ("devices", "shard_tables")
"""Settings that decide which resources a task needs; all tasks of an array get the same."""


@dataclass(frozen=True)
class Queue:
    """The jobs of earlier submissions, of any sweep, as far as they are known.

    Args:
        jobs: ids of jobs that wait or run, by cell.
        failures: messages of the last jobs of cells whose job failed.
        problems: messages on what cannot be known.
    """

    jobs: Mapping[RunConfig, str] = field(default_factory=dict)
    failures: Mapping[RunConfig, str] = field(default_factory=dict)
    problems: tuple[str, ...] = ()


@dataclass(frozen=True)
class Launch:
    """A sweep on Slurm.

    Args:
        submitted: job ids by cell; empty after a dry run.
        left: cells that are neither over nor in the queue.
        folder: of the submission; None if nothing was submitted.
        file: the sweep's own file; None if nothing was submitted.
    """

    grid: Grid
    status: SweepStatus
    queue: Queue
    left: Sequence[RunConfig]
    submitted: Mapping[RunConfig, str]
    folder: Path | None = None
    file: Path | None = None


def launch(
    sweep: Sweep,
    locations: Locations,
    parameters: Mapping[str, Any],
    *,
    dry_run: bool = False,
    tell: Callable[[str], None] = lambda text: None,
) -> Launch:
    """Submit the cells of a sweep that are neither over nor in Slurm's queue, as one array job.

    Args:
        parameters: of submitit's ``AutoExecutor.update_parameters``; ``timeout_min`` is needed.
        dry_run: only find out which cells these are.
        tell: shows a message.

    Raises:
        CheckFailedError: Slurm refused the job.
        DataError: a data set is not prepared, or a folder cannot be written.
        UsageError: Slurm's commands or submitit are missing, the cells need different resources,
            or another process submits jobs from the same folder.
    """
    from ncfbench.data import open_dataset

    require_submitit("slurm")
    grid = expand(sweep.axes, sweep.cells)
    for each in grid.left_out:
        tell(f"Left out ({each.combinations}): {each.reason}")
    _require_alike(grid.cells)
    jobs = jobs_folder(locations.runs_dir)
    fingerprints = {
        name: open_dataset(name, data_dir=locations.data_dir, say=tell).fingerprint
        for name in dict.fromkeys(config.dataset for config in grid.cells)
    }
    # Without the lock, two commands at once would both find the queue empty.
    with nullcontext() if dry_run else locks.held(jobs, "submitting jobs from"):
        # In this order, a task that ends in between is found in the queue or is over.
        queue = read_queue(locations.runs_dir, grid.cells)
        status = read_status(locations.runs_dir, grid.cells, fingerprints)
        left = [
            config
            for config, state in status.states.items()
            if not state.is_over and config not in queue.jobs
        ]
        if dry_run or not left:
            return Launch(grid, status, queue, left, {})
        folder, submitted = _submit(left, locations, sweep.name, parameters)
        return Launch(
            grid, status, queue, left, submitted, folder, write_sweep(sweep, locations.runs_dir)
        )


def read_queue(runs_dir: Path, cells: Sequence[RunConfig]) -> Queue:
    """Ask Slurm which of the cells are in its queue, by the jobs submitted from this folder.

    A cell counts by what its run would be: a job of another sweep may train it. A job whose state
    Slurm does not tell is taken to be in the queue.
    """
    from submitit import SlurmJob
    from submitit.core.utils import JobPaths

    wanted = {cell_identity(config): config for config in cells}
    failures: dict[RunConfig, str] = {}
    waiting: list[tuple[RunConfig, SlurmJob[str]]] = []
    problems: list[str] = []
    paths = (runs_dir / FOLDER).glob(f"*/{CELLS}")
    for path in sorted(paths, key=lambda path: path.stat().st_mtime_ns):
        try:
            found = _read_cells(path)
        except (DataError, UsageError) as error:
            problems.append(f"The jobs of {path.parent.name} cannot be known: {error}")
            continue
        for job_id, settings in found:
            config = wanted.get(cell_identity(settings))
            if config is None:
                continue
            job_paths = JobPaths(path.parent, job_id)
            if not job_paths.result_pickle.exists():
                waiting.append((config, SlurmJob(path.parent, job_id)))
                continue
            failure = read_failure(job_paths)
            failures.pop(config, None)
            if failure is not None:
                failures[config] = f"job {job_id}: {failure[0]}"
    jobs: dict[RunConfig, str] = {}
    unknown = []
    for config, job in waiting:
        if not job.done():
            jobs[config] = job.job_id
            if job.state == "UNKNOWN":
                unknown.append(job)
        else:
            failures[config] = f"job {job.job_id}: {job.state.lower()}; see {job.paths.stderr}"
    if unknown:
        folders = ", ".join(dict.fromkeys(str(job.paths.folder / CELLS) for job in unknown))
        ids = ", ".join(job.job_id for job in unknown)
        problems.append(
            f"Slurm (sacct) does not report the state of {ids}:"
            f" taken to be in the queue. If they are gone, remove {folders}."
        )
    failures = {config: text for config, text in failures.items() if config not in jobs}
    return Queue(jobs, failures, tuple(problems))


def _submit(
    cells: Sequence[RunConfig], locations: Locations, name: str, parameters: Mapping[str, Any]
) -> tuple[Path, dict[RunConfig, str]]:
    """Submit an array job, and return its folder and the job ids by cell."""
    import submitit
    from submitit.core.utils import FailedJobError, FailedSubmissionError

    for command in ("sbatch", "srun"):
        if shutil.which(command) is None:
            raise UsageError(
                f"{command}, Slurm's command, is not on the PATH. Repeat this where jobs are"
                " submitted; --dry-run lists the cells."
            )
    plain = re.sub(r"[^\w.-]+", "-", name, flags=re.ASCII)[:64]
    folder = create_folder(jobs_folder(locations.runs_dir), plain)
    executor = submitit.AutoExecutor(folder, cluster="slurm", slurm_max_num_timeout=MOST_TIMEOUTS)
    executor.update_parameters(name=f"ncfbench-{plain}", **parameters)
    task = Task(absolute(locations))
    try:
        with tables.storage_errors(folder):
            jobs = executor.map_array(task, [config.to_dict() for config in cells])
    except (FailedJobError, FailedSubmissionError) as error:
        shutil.rmtree(folder)
        raise CheckFailedError(f"sbatch refused the job: {str(error).strip()[:500]}") from error
    submitted = {config: str(job.job_id) for config, job in zip(cells, jobs, strict=True)}
    try:
        tables.write_json(
            folder / CELLS,
            [{"job": job, "settings": config.to_dict()} for config, job in submitted.items()],
        )
    except DataError as error:
        raise DataError(
            f"Jobs {', '.join(submitted.values())} are submitted, but the list of them is not"
            f" written: {error}"
        ) from error
    return folder, submitted


def _read_cells(path: Path) -> list[tuple[str, RunConfig]]:
    found = tables.read_json(path)
    try:
        return [(str(row["job"]), complete(row["settings"])) for row in found]
    except (TypeError, KeyError, AttributeError) as error:
        raise DataError(f"{path} is damaged: {error!r}.") from error


def _require_alike(cells: Sequence[RunConfig]) -> None:
    """Refuse cells that need different resources."""
    for name in ALIKE:
        values = list(dict.fromkeys(getattr(config, name) for config in cells))
        if len(values) > 1:
            shown = [str(value).lower() for value in values]
            raise UsageError(
                f"The cells differ in {name} ({', '.join(shown)}), and every task of an array job"
                " gets the same resources. Submit one sweep for each, for example with --set"
                f" {name}={shown[-1]}."
            )
