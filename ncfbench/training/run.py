"""The lifecycle of a run: a plan, a recorder, and the training of the one into the other."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ncfbench.config import Locations, RunConfig
from ncfbench.distributed.process_group import ProcessGroup
from ncfbench.distributed.signals import deferred_signals
from ncfbench.errors import UsageError
from ncfbench.runs import folder as runs
from ncfbench.runs.folder import RunRecord
from ncfbench.runs.progress import Progress
from ncfbench.runs.recorder import Recorder, RunRecorder
from ncfbench.storage import locks
from ncfbench.timing.ledger import Ledger
from ncfbench.training.plan import RunPlan
from ncfbench.training.recommend import write_finished
from ncfbench.training.session import Session

STOPPING = (
    "Stopping after this iteration, then saving. Ctrl-C again stops at once, back to the last"
    " checkpoint."
)
STOPPING_TOGETHER = (
    "Stopping all processes at the next probe, then saving. Ctrl-C again stops at once, back to the"
    " last checkpoint."
)


def run(
    config: RunConfig,
    locations: Locations,
    *,
    resume: bool = False,
    progress: Progress | None = None,
    trace: Path | None = None,
    recommend: int | None = None,
) -> RunRecord:
    """Train a run into a folder, and return it as the folder holds it.

    Args:
        resume: continue the newest run with these settings and data, if there is one; its curve
            ends as if it had never been interrupted.
        progress: shows the run to its user; by default nothing is shown.
        trace: write a trace of JAX's profiler of a few iterations into this folder.
        recommend: write this many test items of each user at the end; or, where the run to resume
            is finished, from its checkpoint.

    Raises:
        DataError: the data set is not prepared, or a folder cannot be written.
        DivergedError: the loss stopped being finite; what was recorded is kept.
        KeyboardInterrupt: interrupted; the run can be resumed.
        UsageError: the run cannot work; see :meth:`RunPlan.of`.
    """
    if ProcessGroup.current().count > 1:
        raise UsageError("JAX has joined several processes: train with ncfbench run --coordinator.")
    record = run_in_group(
        config, locations, resume=resume, progress=progress, trace=trace, recommend=recommend
    )
    assert record is not None
    return record


def run_in_group(
    config: RunConfig,
    locations: Locations,
    *,
    resume: bool = False,
    progress: Progress | None = None,
    trace: Path | None = None,
    recommend: int | None = None,
) -> RunRecord | None:
    """Train a run like :func:`run`, together with the other processes, which call it alike.

    The first process writes, shows and returns the run. The others return None.
    """
    shown = progress if progress and ProcessGroup.current().is_first else Progress()
    ledger = Ledger()
    plan = RunPlan.of(
        config, locations, trace=trace, recommend=recommend, ledger=ledger, say=shown.say
    )
    with open_recorder(plan, ledger, shown, resume=resume) as recorder:
        return train(plan, recorder)


@contextmanager
def open_recorder(
    plan: RunPlan,
    ledger: Ledger,
    progress: Progress,
    *,
    resume: bool = False,
    folder: Path | None = None,
) -> Iterator[Recorder]:
    """Open the recorder of this process, and hold the run's folder meanwhile.

    In processes other than the first it writes nothing.

    Args:
        ledger: charged with the run's time.
        progress: shows the run to its user.
        resume: choose the folder of a run to continue, if there is one.
        folder: the folder of a run to continue. Without either, a new one is made.

    Raises:
        DataError: a folder cannot be written.
        UsageError: another process holds the folder.
    """
    if not ProcessGroup.current().is_first:
        yield Recorder(ledger, progress)
        return
    config, fingerprint = plan.config, plan.dataset.fingerprint
    runs_dir = plan.locations.runs_dir
    if resume:
        folder = runs.find(runs_dir, config, fingerprint, anywhere=plan.recommend is not None)
        if folder is None:
            progress.say(
                "No run with these settings, data and devices to resume: starting a new one."
            )
    folder = folder or runs.create(runs_dir, config, fingerprint)
    with locks.held(folder, "writing"):
        yield RunRecorder(folder, config, fingerprint, plan.schedule, ledger, progress)


def train(plan: RunPlan, recorder: Recorder) -> RunRecord | None:
    """Train a run to its end, and return it as its folder holds it; None without a folder.

    A finished run is not trained again; its recommendations are written if the plan wants them.

    Raises:
        DataError: a folder cannot be written, or records are damaged.
        DivergedError: the loss stopped being finite; what was recorded is kept.
        KeyboardInterrupt: interrupted; the run was saved and can be resumed.
    """
    group, say = ProcessGroup.current(), recorder.progress.say
    finished = recorder.finished()
    (is_finished,) = group.any(finished is not None)
    if is_finished:
        if finished is not None:
            say(
                f"Already finished: {finished.folder}"
                + (" (no trace was written)" if plan.trace else "")
            )
            if plan.recommend is not None:
                write_finished(finished, plan.dataset, plan.recommend, say)
        return finished
    stopping = STOPPING if group.count == 1 else STOPPING_TOGETHER
    with deferred_signals(say, stopping) as interrupted, recorder.ledger.noticing_compilation():
        with recorder.ledger.line("initialising"):
            session = Session(plan, recorder, interrupted)
        with session:
            while not session.is_done:
                session.advance_epoch()
            session.finish()
    return recorder.read()
