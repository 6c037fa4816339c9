"""A sweep on Slurm: its cells as the tasks of one array job, submitted through submitit.

``jobs/NAME`` below the runs holds submitit's files and, in ``cells.json``, the settings behind each
job id, so that no cell is submitted twice.
"""

from __future__ import annotations

import logging
import math
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ncfbench.config import Locations, RunConfig, complete
from ncfbench.errors import CheckFailedError, DataError, UsageError, install_command
from ncfbench.runs.folder import make_folder
from ncfbench.storage import locks, tables
from ncfbench.sweeps.cells import Cell, cell_identity
from ncfbench.sweeps.files import Sweep, write_sweep
from ncfbench.sweeps.jobs import Task, read_failure
from ncfbench.sweeps.plan import SweepRun

if TYPE_CHECKING:
    from submitit import SlurmJob

FOLDER = "jobs"
"""Below the folder of the runs."""
CELLS = "cells.json"
"""File in the folder of a submission, with a job id and settings for each cell."""
MOST_TIMEOUTS = 100
"""A task is requeued after this many time limits at most."""
ALIKE = ("devices", "shard_tables")
"""Settings that decide which resources a task needs; all tasks of an array get the same."""
OWN_OPTIONS = "array error job-name nodes ntasks ntasks-per-node open-mode output signal"
"""Options of ``sbatch`` that submitit or this module sets."""
SAVING_SECONDS = 120
"""Slurm warns a task this long before its time limit."""
SHORTEST_MINUTES = 5
"""A shorter time limit leaves no time to train between the start and the warning."""


def launch(
    sweep: Sweep,
    locations: Locations,
    parameters: Mapping[str, Any],
    *,
    dry_run: bool = False,
    tell: Callable[[str], None] = lambda text: None,
) -> SweepRun:
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
    _require_submitit()
    jobs = _jobs_folder(locations.runs_dir)
    run = SweepRun.of(sweep, locations, tell)
    _require_alike(run.cells)
    # Without the lock, two commands at once would both find the queue empty.
    with nullcontext() if dry_run else locks.held(jobs, "submitting jobs from"):
        # In this order, a task that ends in between is found in the queue or is over.
        queued, failures, problems = read_queue(jobs, run.cells)
        run.read()
        run.problems = [*problems, *run.problems]
        for cell in (cell for cell in run.cells if not cell.is_over):
            if cell in queued:
                cell.status, cell.job = "in queue", queued[cell]
            elif cell in failures:
                cell.status, cell.message = "failed", failures[cell]
        left = [cell for cell in run.cells if not cell.is_over and cell.job is None]
        if left and not dry_run:
            run.folder = _submit(left, jobs, locations, sweep.name, parameters)
            run.file = write_sweep(sweep, locations.runs_dir)
    return run


def read_queue(
    jobs: Path, cells: Sequence[Cell]
) -> tuple[dict[Cell, str], dict[Cell, str], list[str]]:
    """Ask Slurm which of the cells are in its queue, by the jobs submitted from this folder.

    A cell counts by what its run would be: a job of another sweep may train it. A job whose state
    Slurm does not tell is taken to be in the queue.

    Returns:
        Ids of jobs that wait or run; messages of cells whose last job failed; and messages on what
        cannot be known.
    """
    from submitit import SlurmJob
    from submitit.core.utils import JobPaths

    wanted = {cell_identity(cell.config): cell for cell in cells}
    failures: dict[Cell, str] = {}
    waiting: list[tuple[Cell, SlurmJob[str]]] = []
    problems: list[str] = []
    for path in sorted(jobs.glob(f"*/{CELLS}"), key=lambda path: path.stat().st_mtime_ns):
        try:
            submitted = _read_submission(path)
        except (DataError, UsageError) as error:
            problems.append(f"The jobs of {path.parent.name} cannot be known: {error}")
            continue
        for job_id, config in submitted:
            cell = wanted.get(cell_identity(config))
            if cell is None:
                continue
            paths = JobPaths(path.parent, job_id)
            if not paths.result_pickle.exists():
                waiting.append((cell, SlurmJob(path.parent, job_id)))
                continue
            failures.pop(cell, None)
            if (failure := read_failure(paths)) is not None:
                failures[cell] = f"job {job_id}: {failure}"
    queued: dict[Cell, str] = {}
    unknown: dict[str, Path] = {}
    for cell, job in waiting:
        if not job.done():
            queued[cell] = job.job_id
            if job.state == "UNKNOWN":
                unknown[job.job_id] = job.paths.folder / CELLS
        else:
            failures[cell] = f"job {job.job_id}: {job.state.lower()}; see {job.paths.stderr}"
    if unknown:
        problems.append(
            f"Slurm (sacct) does not report the state of {', '.join(unknown)}:"
            " taken to be in the queue. If they are gone, remove"
            f" {', '.join(dict.fromkeys(map(str, unknown.values())))}."
        )
    return queued, failures, problems


def _submit(
    cells: Sequence[Cell],
    jobs: Path,
    locations: Locations,
    name: str,
    parameters: Mapping[str, Any],
) -> Path:
    """Submit an array job, give the cells their job ids, and return the submission's folder."""
    import submitit
    from submitit.core.utils import FailedJobError, FailedSubmissionError

    for command in ("sbatch", "srun"):
        if shutil.which(command) is None:
            raise UsageError(
                f"{command}, Slurm's command, is not on the PATH. Repeat this where jobs are"
                " submitted; --dry-run lists the cells."
            )
    plain = re.sub(r"[^\w.-]+", "-", name, flags=re.ASCII)[:64]
    folder = make_folder(jobs, plain)
    executor = submitit.AutoExecutor(folder, cluster="slurm", slurm_max_num_timeout=MOST_TIMEOUTS)
    executor.update_parameters(name=f"ncfbench-{plain}", **parameters)
    task = Task(Locations(locations.data_dir.resolve(), locations.runs_dir.resolve()))
    try:
        with tables.storage_errors(folder):
            submitted = executor.map_array(task, [cell.config.to_dict() for cell in cells])
    except (FailedJobError, FailedSubmissionError) as error:
        shutil.rmtree(folder)
        raise CheckFailedError(f"sbatch refused the job: {str(error).strip()[:500]}") from error
    for cell, job in zip(cells, submitted, strict=True):
        cell.job = str(job.job_id)
    try:
        rows = [{"job": cell.job, "settings": cell.config.to_dict()} for cell in cells]
        tables.write_json(folder / CELLS, rows)
    except DataError as error:
        raise DataError(
            f"Jobs {', '.join(str(cell.job) for cell in cells)} are submitted, but the list of them"
            f" is not written: {error}"
        ) from error
    return folder


def _read_submission(path: Path) -> list[tuple[str, RunConfig]]:
    rows = tables.read_json(path)
    try:
        return [(str(row["job"]), complete(row["settings"])) for row in rows]
    except (TypeError, KeyError, AttributeError) as error:
        raise DataError(f"{path} is damaged: {error!r}.") from error


def _require_submitit() -> None:
    try:
        import submitit  # noqa: F401
    except ImportError as error:
        raise UsageError(
            f"--launcher slurm needs submitit. Install it with: {install_command('slurm')}"
        ) from error
    logging.getLogger("submitit").setLevel(logging.CRITICAL)


def _require_alike(cells: Sequence[Cell]) -> None:
    for name in ALIKE:
        values = list(dict.fromkeys(getattr(cell.config, name) for cell in cells))
        if len(values) > 1:
            shown = [str(value).lower() for value in values]
            raise UsageError(
                f"The cells differ in {name} ({', '.join(shown)}), and every task of an array job"
                " gets the same resources. Submit one sweep for each, for example with --set"
                f" {name}={shown[-1]}."
            )


def _jobs_folder(runs_dir: Path) -> Path:
    """Return the folder of the jobs; refuse a path that Slurm or submitit would change."""
    folder = runs_dir.resolve() / FOLDER
    if re.search(r"[\x00-\x1f\x7f%\\]", str(folder)):
        raise UsageError(
            f"The folder of the runs, {str(runs_dir.resolve())!r}, has a percent sign, a backslash"
            " or a control character, which jobs cannot have. Choose another --runs-dir."
        )
    return folder


def slurm_parameters(assignments: Sequence[str]) -> dict[str, Any]:
    """Return submitit's parameters for ``KEY=VALUE`` and ``KEY`` options of ``sbatch``.

    ``array_parallelism`` (tasks at once) and ``signal_delay_s`` (seconds between the warning and
    the time limit) are submitit's own.

    Raises:
        UsageError: an option is malformed, not the user's to set, or the time limit is missing.
    """
    own: dict[str, int] = {"signal_delay_s": SAVING_SECONDS}
    more: dict[str, str | bool] = {}
    for text in assignments:
        key, equals, value = text.strip().removeprefix("--").partition("=")
        name = key.replace("-", "_")
        if not re.fullmatch(r"[a-z][a-z_-]*", key) or re.search(r"[\x00-\x1f\x7f]", value):
            raise UsageError(
                f"--slurm {text!r} is not of the form KEY=VALUE or KEY, for example --slurm"
                " partition=gpu."
            )
        if name.replace("_", "-") in OWN_OPTIONS.split():
            raise UsageError(f"--slurm {key}: the sweep sets that itself.")
        if name in ("array_parallelism", "signal_delay_s"):
            if not re.fullmatch("[1-9][0-9]*", value):
                raise UsageError(f"--slurm {text}: it must be a whole number above 0.")
            own[name] = int(value)
        else:
            more[name] = value if equals else True
    time = str(more.pop("time", ""))
    minutes = _minutes(time)
    if minutes is None or minutes < SHORTEST_MINUTES:
        raise UsageError(
            f"--launcher slurm needs the time limit of a task, of {SHORTEST_MINUTES} minutes or"
            f" more, for example --slurm time=2:00:00{f', not time={time}' if time else ''}. A task"
            " that needs longer is requeued and resumes."
        )
    specific = {f"slurm_{name}": value for name, value in own.items()}
    return {"timeout_min": minutes, "slurm_additional_parameters": more, **specific}


def _minutes(text: str) -> int | None:
    """Return a time limit as ``sbatch`` reads it (m, m:s, h:m:s, d-h, d-h:m, d-h:m:s) in whole
    minutes; None if it is none.
    """
    if not re.fullmatch(r"(\d+-)?\d+(:\d+){0,2}", text):
        return None
    days, dash, rest = text.rpartition("-")
    parts = [int(part) for part in rest.split(":")]
    units = (3600, 60, 1) if dash or len(parts) == 3 else (60, 1)
    seconds = sum(unit * part for unit, part in zip(units, parts, strict=False))
    return math.ceil((86400 * int(days or 0) + seconds) / 60)
