"""Jobs of submitit that train one cell each: what a job does, and how it ends.

A job trains alone on its devices, and resumes the cell's run where one was begun. When Slurm warns
a job of its time limit or of preemption, the job ends its iteration, saves, and is requeued.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ncfbench import errors
from ncfbench.config import Locations, RunConfig, complete
from ncfbench.errors import NcfbenchError
from ncfbench.runs.signals import handled_by

if TYPE_CHECKING:
    from submitit.core.utils import DelayedSubmission, JobPaths


@dataclass(frozen=True)
class Task:
    """Trains one cell in a job. submitit pickles it with the cell's settings as its argument.

    Args:
        locations: absolute paths: a job may start in another folder.
    """

    locations: Locations

    def __call__(self, settings: Mapping[str, Any]) -> str:
        """Train, and return the run's folder."""
        from ncfbench.timing import allocator

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
        from ncfbench.distributed import simulate
        from ncfbench.reporting.render.terminal import make_console
        from ncfbench.runs.progress import ConsoleProgress
        from ncfbench.training import run as training
        from ncfbench.training.run import FAILURES, first_line

        progress = ConsoleProgress(make_console())
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

    with handled_by(warn, number):
        try:
            yield
        except KeyboardInterrupt:
            if is_warned and callable(requeue):
                requeue(number, None)  # submitit's handler, which ends the process
            raise


def read_failure(paths: JobPaths) -> str | None:
    """Return the message of a job that has left a result; None if it did not fail."""
    from submitit.core.utils import pickle_load

    outcome, result = pickle_load(paths.result_pickle)
    if outcome == "success":
        return None
    # The result is a traceback, which ends with the exception's class and message.
    last = result.strip().splitlines()[-1]
    name, _, message = last.partition(": ")
    is_ours = hasattr(errors, name.removeprefix(f"{errors.__name__}."))
    return message if is_ours else f"{last}; see {paths.stderr}"
