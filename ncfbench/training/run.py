"""The lifecycle of a run: a plan, a recorder, and the training of the one into the other."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ncfbench.config import Locations, RunConfig
from ncfbench.distributed.process_group import ProcessGroup
from ncfbench.distributed.signals import deferred_signals
from ncfbench.errors import UsageError, shown
from ncfbench.runs import choice
from ncfbench.runs import folder as runs
from ncfbench.runs.folder import RunRecord
from ncfbench.runs.progress import Progress
from ncfbench.runs.recorder import Recorder, RunRecorder
from ncfbench.storage import locks
from ncfbench.timing.contention import OtherPrograms
from ncfbench.timing.ledger import Ledger
from ncfbench.training.plan import RunPlan
from ncfbench.training.recommend import write_finished
from ncfbench.training.session import Session

STOPPING = "Stopping {}, then saving. Ctrl-C again stops at once, back to the last checkpoint."


def run(
    config: RunConfig,
    locations: Locations,
    *,
    resume: bool = False,
    again: bool = False,
    progress: Progress | None = None,
    trace: Path | None = None,
    recommend: int | None = None,
    in_group: bool = False,
) -> RunRecord | None:
    """Train a run into a folder, and return it as the folder holds it.

    A run that is finished is returned, and not trained again. Only the first of several processes
    writes, shows and returns the run; the others return None.

    Args:
        resume: continue the newest run with these settings and data; its curve ends as if it had
            never been interrupted.
        again: train a new run even if there is one with these settings and data; with ``resume``,
            only if there is none.
        progress: shows the run to its user; by default nothing is shown.
        trace: write a trace of JAX's profiler of a few iterations into this folder.
        recommend: write this many test items of each user at the end; or, where the run to resume
            is finished, from its checkpoint.
        in_group: train together with the other processes, which call this alike.

    Raises:
        DataError: the data set is not prepared, or a folder cannot be written.
        DivergedError: the loss stopped being finite; what was recorded is kept.
        KeyboardInterrupt: interrupted; the run can be resumed.
        UsageError: the run cannot work, see :meth:`RunPlan.of`; there is none to resume; there is
            one to resume, and neither ``resume`` nor ``again`` is given; or there are several
            processes without ``in_group``.
    """
    ledger = Ledger()
    with ledger.line("initialising"):  # the first question for devices starts JAX
        group = ProcessGroup.current()
        others = OtherPrograms()
    if group.count > 1 and not in_group:
        raise UsageError("JAX has joined several processes: train with ncfbench run --coordinator.")
    shown = progress if progress and group.is_first else Progress()
    plan = RunPlan.of(
        config, locations, trace=trace, recommend=recommend, ledger=ledger, say=shown.say
    )
    folder = choose_folder(plan, resume=resume, again=again) if group.is_first else None
    with open_recorder(plan, ledger, shown, folder=folder) as recorder:
        return train(plan, recorder, others)


def choose_folder(plan: RunPlan, *, resume: bool, again: bool) -> Path | None:
    """Return the folder of the run that a command means; None for a new one.

    Args:
        resume, again: see :func:`run`.

    Raises:
        UsageError: see :func:`run`.
    """
    config, fingerprint = plan.config, plan.dataset.fingerprint
    runs_dir = plan.locations.runs_dir
    if resume:
        found = choice.find(runs_dir, config, fingerprint, anywhere=plan.recommend is not None)
        if found is None and not again:
            nearest = choice.describe_nearest(runs_dir, config, fingerprint)
            raise UsageError(
                f"No run in {shown(runs_dir)} with these settings, data and devices to resume."
                f"{nearest} To train a new one, use --again in place of --resume."
            )
        return found
    if again:
        return None
    finished, begun = choice.find_trained(runs_dir, config, fingerprint)
    if finished is None and begun is not None:
        raise UsageError(
            f"{begun} holds a run with these settings that is not finished. --resume continues it;"
            " --again trains a new one."
        )
    return finished


@contextmanager
def open_recorder(
    plan: RunPlan, ledger: Ledger, progress: Progress, *, folder: Path | None = None
) -> Iterator[Recorder]:
    """Open the recorder of this process, and hold the run's folder meanwhile.

    In processes other than the first it writes nothing.

    Args:
        ledger: charged with the run's time.
        progress: shows the run to its user.
        folder: the folder of a run to continue; by default a new one is made.

    Raises:
        DataError: a folder cannot be written.
        UsageError: another process holds the folder.
    """
    if not ProcessGroup.current().is_first:
        yield Recorder(ledger, progress)
        return
    config, fingerprint = plan.config, plan.dataset.fingerprint
    folder = folder or runs.create(plan.locations.runs_dir, config, fingerprint)
    with locks.held(folder, "writing"):
        yield RunRecorder(folder, config, fingerprint, plan.schedule, ledger, progress)


def train(
    plan: RunPlan, recorder: Recorder, others: OtherPrograms | None = None
) -> RunRecord | None:
    """Train a run to its end, and return it as its folder holds it; None without a folder.

    A finished run is not trained again; its recommendations are written if the plan wants them.

    Args:
        others: made a while ago; says whether the machine is free before and after training.

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
                f"Already finished: {shown(finished.folder)}."
                + (" No trace was written." if plan.trace else "")
                + " To train it again, use --again."
            )
            if plan.recommend is not None:
                write_finished(finished, plan.dataset, plan.recommend, say)
        return finished
    if others is None or group.count > 1:  # the other processes of the run would count as others
        others = None
    else:
        with recorder.ledger.line("initialising"):
            others.warn(say)
    when = "after this iteration" if group.count == 1 else "all processes at the next probe"
    stopping = STOPPING.format(when)
    with deferred_signals(say, stopping) as interrupted, recorder.ledger.noticing_compilation():
        with recorder.ledger.line("initialising"):
            session = Session(plan, recorder, interrupted)
        with session:
            while not session.is_done:
                session.advance_epoch()
            if others is not None:
                with recorder.ledger.line("initialising"):
                    others.warn(say, is_over=True)
            session.finish()
    return recorder.read()
