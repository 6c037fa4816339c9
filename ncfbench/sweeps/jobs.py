"""Jobs of submitit that train one cell each: what a job does, how it ends, and where its files are.

A job trains alone on its devices, and resumes the cell's run where one was begun. When Slurm warns
a job of its time limit or of preemption, the job ends its iteration, saves, and is requeued.
"""

from __future__ import annotations

import os
import re
import shlex
import signal
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ncfbench import errors
from ncfbench.config import Locations, RunConfig, complete
from ncfbench.errors import NcfbenchError, UsageError, install_command
from ncfbench.storage import tables

if TYPE_CHECKING:
    from submitit.core.core import Job
    from submitit.core.utils import DelayedSubmission, JobPaths

FOLDER = "jobs"
"""Below the folder of the runs."""
LOCAL_MINUTES = 60 * 24 * 365
"""The time limit of a process on this machine: none, in effect."""


@dataclass(frozen=True)
class Task:
    """Trains one cell in a job. submitit pickles it with the cell's settings as its argument."""

    locations: Locations

    def __call__(self, settings: Mapping[str, Any]) -> str:
        """Train, and return the run's folder."""
        from ncfbench.timing import allocator

        if os.environ.get("SUBMITIT_EXECUTOR") == "local" and not _leads_session(os.getpid()):
            # Ctrl-C of the terminal reaches the sweep alone, which passes it on.
            signal.signal(signal.SIGINT, signal.default_int_handler)
            os.setsid()
        allocator.restart()
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
        from ncfbench.reporting.render.terminal import make_console
        from ncfbench.runs.progress import PlainProgress
        from ncfbench.training import run as training
        from ncfbench.training.run import FAILURES, first_line

        progress = PlainProgress(make_console())
        simulate(config.devices)
        try:
            with _requeue_when_warned():
                record = training.run(
                    config, self.locations, resume=True, again=True, progress=progress
                )
        except NcfbenchError:
            raise
        except FAILURES as error:
            raise NcfbenchError(first_line(error)) from error
        assert record is not None, "several processes are refused"
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


def start_process(config: RunConfig, locations: Locations) -> Job[str]:
    """Start a process on this machine that trains one cell.

    Raises:
        DataError: the job's folder cannot be written.
    """
    import submitit

    folder = create_folder(jobs_folder(locations.runs_dir), "local")
    # submitit hides all GPUs unless it is told how many to show: restore the user's choice.
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    name = "CUDA_VISIBLE_DEVICES"
    words = ["env", "-u", name] if visible is None else ["env", f"{name}={visible}"]
    executor = submitit.AutoExecutor(
        folder, cluster="local", local_python=shlex.join([*words, sys.executable])
    )
    executor.update_parameters(timeout_min=LOCAL_MINUTES)
    with tables.storage_errors(folder), _ignore_ctrl_c():
        return executor.submit(Task(absolute(locations)), config.to_dict())


def interrupt(job: Job[str]) -> bool:
    """Interrupt a process on this machine like Ctrl-C; return False if it is not ready for that."""
    import psutil

    try:
        for task in psutil.Process(int(job.job_id)).children():
            if _leads_session(task.pid):
                task.send_signal(signal.SIGINT)
                return True
    except (psutil.NoSuchProcess, ProcessLookupError):
        pass  # it ended
    return False


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
            f"--launcher {launcher} needs submitit. Install it with: {install_command('slurm')}"
        ) from error
    import logging

    logging.getLogger("submitit").setLevel(logging.CRITICAL)


def jobs_folder(runs_dir: Path) -> Path:
    """Return the folder of the jobs; refuse a path that Slurm or submitit would change."""
    folder = runs_dir.resolve() / FOLDER
    if re.search(r"[\x00-\x1f\x7f%\\]", str(folder)):
        raise UsageError(
            f"The folder of the runs, {str(runs_dir.resolve())!r}, has a percent sign, a backslash"
            " or a control character, which jobs cannot have. Choose another --runs-dir."
        )
    return folder


def create_folder(jobs: Path, name: str) -> Path:
    """Create a folder for a submission, with a number behind the name where it is taken."""
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


def absolute(locations: Locations) -> Locations:
    """Return absolute paths: a job may start in another folder."""
    return Locations(locations.data_dir.resolve(), locations.runs_dir.resolve())


@contextmanager
def _ignore_ctrl_c() -> Iterator[None]:
    """Ignore Ctrl-C here and in processes that are started meanwhile."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _leads_session(process: int) -> bool:
    return os.getsid(process) == process
