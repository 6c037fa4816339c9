"""Cells as jobs of submitit: tasks of a Slurm array job, or single processes on this machine.

Every job trains one cell, alone on its devices, and resumes its run where one was begun. When Slurm
warns a task of its time limit or of preemption, the task ends its iteration, saves, and is
requeued. ``jobs/NAME`` below the runs holds submitit's files and, in ``cells.json``, the settings
behind each job id, so that no cell is submitted twice.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ncfbench import errors
from ncfbench.config import Locations, RunConfig, complete
from ncfbench.errors import CheckFailedError, DataError, NcfbenchError, UsageError
from ncfbench.storage import locks, tables
from ncfbench.sweeps.files import Sweep, write_sweep
from ncfbench.sweeps.grid import Grid, SweepStatus, cell_identity, expand, read_status

if TYPE_CHECKING:
    from submitit.core.core import Job
    from submitit.core.utils import DelayedSubmission, JobPaths

FOLDER = "jobs"
"""Below the folder of the runs."""
CELLS = "cells.json"
"""In the folder of a submission: a job id and settings for each cell."""
MOST_TIMEOUTS = 100
"""A task is requeued after this many time limits at most."""
LOCAL_MINUTES = 60 * 24 * 365
"""The time limit of a process on this machine: none, in effect."""
ALIKE = ("devices", "shard_tables")
"""Settings that decide which resources a task needs; all tasks of an array get the same."""


@dataclass(frozen=True)
class Task:
    """Trains one cell in a job. submitit pickles it with the cell's settings as its argument."""

    locations: Locations

    def __call__(self, settings: Mapping[str, Any]) -> str:
        """Train, and return the run's folder."""
        from ncfbench.timing import allocator

        allocator.reexec_with_tunables()
        return self.train(complete(settings))

    def checkpoint(self, settings: Mapping[str, Any]) -> DelayedSubmission:
        """Return what the requeued job calls: the same, which resumes from the run's checkpoint."""
        from submitit.core.utils import DelayedSubmission

        return DelayedSubmission(self, settings)

    def train(self, config: RunConfig) -> str:
        """Train a cell, or resume it, and return the run's folder.

        Raises:
            NcfbenchError: training failed; whatever the failure, the message has one line.
        """
        from ncfbench.distributed.simulation import simulate
        from ncfbench.report.render.terminal import make_console
        from ncfbench.runs.progress import PlainProgress
        from ncfbench.sweeps.runner import FAILURES, first_line
        from ncfbench.timing.compile_cache import keep_compiled
        from ncfbench.training import run as training

        progress = PlainProgress(make_console())
        simulate(config.devices)
        keep_compiled(progress.say)
        try:
            with _requeue_when_warned():
                record = training.run(config, self.locations, resume=True, progress=progress)
        except NcfbenchError:
            raise
        except FAILURES as error:
            raise NcfbenchError(first_line(error)) from error
        return str(record.folder)


@contextmanager
def _requeue_when_warned() -> Iterator[None]:
    """Interrupt the training when the scheduler warns, and let submitit requeue once it saved."""
    import submitit

    number = getattr(signal, f"SIG{submitit.JobEnvironment.USR_SIG}")
    requeue = signal.getsignal(number)
    is_warned = False

    def warn(number: int, frame: object) -> None:
        nonlocal is_warned
        is_warned = True
        signal.raise_signal(signal.SIGINT)

    signal.signal(number, warn)
    try:
        yield
    except KeyboardInterrupt:
        if is_warned and callable(requeue):
            requeue(number, None)  # submitit's handler, which ends the process
        raise
    finally:
        signal.signal(number, requeue)


@dataclass(frozen=True)
class Queue:
    """What is known of the jobs of earlier submissions, of whatever sweep.

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
    grid = expand(sweep.axes)
    for each in grid.left_out:
        tell(f"Left out ({each.combinations}): {each.reason}")
    _require_alike(grid.cells)
    jobs = _plain_folder(locations.runs_dir)
    fingerprints = {
        name: open_dataset(locations.data_dir, name, tell).fingerprint
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


def start_process(config: RunConfig, locations: Locations) -> Job[str]:
    """Start a process on this machine that trains one cell.

    Raises:
        DataError: the job's folder cannot be written.
    """
    import submitit

    folder = _create_folder(_plain_folder(locations.runs_dir), "local")
    # submitit hides all GPUs unless it is told how many to show: restore the user's choice.
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    name = "CUDA_VISIBLE_DEVICES"
    words = ["env", "-u", name] if visible is None else ["env", f"{name}={visible}"]
    executor = submitit.AutoExecutor(
        folder, cluster="local", local_python=shlex.join([*words, sys.executable])
    )
    executor.update_parameters(timeout_min=LOCAL_MINUTES)
    with tables.storage_errors(folder):
        return executor.submit(Task(_absolute(locations)), config.to_dict())


def read_failure(paths: JobPaths) -> tuple[str, int] | None:
    """Return the message and exit code of a job that failed; None if it did not fail.

    A job that ended without a result was killed.
    """
    from submitit.core.utils import pickle_load

    if not paths.result_pickle.exists():
        return f"it ended without a result; see {paths.stderr}", NcfbenchError.exit_code
    outcome, result = pickle_load(paths.result_pickle)
    if outcome == "success":
        return None
    # The result is a traceback, which ends with the exception's class and message.
    last = result.strip().splitlines()[-1]
    name, _, message = last.partition(": ")
    kind = getattr(errors, name.removeprefix(f"{errors.__name__}."), None)
    if kind is None:
        return f"{last}; see {paths.stderr}", NcfbenchError.exit_code
    return message, kind.exit_code


def require_submitit(launcher: str) -> None:
    """Refuse a launcher if submitit is not installed, and silence submitit's own messages.

    Raises:
        UsageError: it is not installed.
    """
    try:
        import submitit  # noqa: F401
    except ImportError as error:
        raise UsageError(
            f"--launcher {launcher} needs submitit. Install it with: pip install 'ncfbench[slurm]'"
        ) from error
    import logging

    logging.getLogger("submitit").setLevel(logging.CRITICAL)


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
        problems.append(
            f"Slurm (sacct) does not tell the state of {', '.join(job.job_id for job in unknown)}:"
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
    folder = _create_folder(_plain_folder(locations.runs_dir), plain)
    executor = submitit.AutoExecutor(folder, cluster="slurm", slurm_max_num_timeout=MOST_TIMEOUTS)
    executor.update_parameters(name=f"ncfbench-{plain}", **parameters)
    task = Task(_absolute(locations))
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


def _plain_folder(runs_dir: Path) -> Path:
    """Return the folder of the jobs; refuse a path that Slurm or submitit would change."""
    folder = runs_dir.resolve() / FOLDER
    if re.search(r"[\x00-\x1f\x7f%\\]", str(folder)):
        raise UsageError(
            f"The folder of the runs, {str(runs_dir.resolve())!r}, has a percent sign, a backslash"
            " or a control character, which jobs cannot have. Choose another --runs-dir."
        )
    return folder


def _create_folder(jobs: Path, name: str) -> Path:
    number = 1
    with tables.storage_errors(jobs):
        while True:
            folder = jobs / (name if number == 1 else f"{name}-{number}")
            try:
                folder.mkdir(parents=True)
            except FileExistsError:
                number += 1
            else:
                return folder


def _absolute(locations: Locations) -> Locations:
    return Locations(locations.data_dir.resolve(), locations.runs_dir.resolve())
