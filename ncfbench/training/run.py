"""One run, from its settings to its records: by itself, or in turn with others."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from ncfbench.config import Locations, RunConfig
from ncfbench.data import Dataset, open_dataset
from ncfbench.distributed import signals
from ncfbench.distributed.mesh import make_layout
from ncfbench.distributed.process_group import ProcessGroup
from ncfbench.models.precision import require
from ncfbench.models.towers import Content
from ncfbench.rng import Streams
from ncfbench.runs import folder as runs
from ncfbench.runs.progress import Progress
from ncfbench.sampling import make_sampler
from ncfbench.storage import locks, tables
from ncfbench.timing.ledger import Ledger
from ncfbench.training.recommend import require_items, write_finished
from ncfbench.training.session import OpenRun

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
    places: Locations,
    *,
    resume: bool = False,
    progress: Progress | None = None,
    trace: Path | None = None,
    recommend: int | None = None,
) -> runs.RunRecord:
    """Train, and leave a run folder behind.

    Args:
        recommend: test items of each user to write at the end, or where a run to resume is
            finished, from its checkpoint.
        trace: write a trace of JAX's profiler of a few iterations into this folder.
        resume: continue the newest run with these settings and data, if there is one; its curve
            ends as if it had never been interrupted.

    Returns:
        The run as its folder holds it.

    Raises:
        DataError: the data set is not prepared, or a folder cannot be written.
        DivergedError: the loss stopped being finite; what was recorded is kept.
        KeyboardInterrupt: interrupted; the run can be resumed.
        UsageError: the device cannot compute at the precision, the processes are not alike, or
            there is nothing to recommend.
    """
    require(config.precision)
    progress = progress or Progress()
    ledger = Ledger()
    if trace is not None:
        with tables.storage_errors(trace):
            trace.mkdir(parents=True, exist_ok=True)
    with ledger.line("loading"):
        dataset = open_dataset(places.data_dir, config.dataset, progress.say)
    make_sampler(dataset.graph, config, Streams(config.seed))  # refuses before a folder is made
    make_layout(config)
    if recommend is not None:
        require_items(config, dataset, recommend)
    ProcessGroup.current().require_alike(config, dataset.fingerprint)
    any_finished = recommend is not None
    folder = (
        runs.find(places.runs_dir, config, dataset.fingerprint, anywhere=any_finished)
        if resume
        else None
    )
    if folder is None:
        if resume:
            progress.say(
                "No run with these settings, data and devices to resume: starting a new one."
            )
        folder = runs.create(places.runs_dir, config, dataset.fingerprint)
    with locks.held(folder, "writing"):
        done = runs.read(folder) if resume and (folder / "summary.parquet").exists() else None
        (is_over,) = ProcessGroup.current().any(
            done is not None and done.summary["status"] == "finished"
        )
        if done is not None and is_over:
            progress.say(
                f"Already finished: {folder}" + (" (no trace was written)" if trace else "")
            )
            if recommend is not None:
                write_finished(done, dataset, recommend, progress.say)
            return done
        stopping = STOPPING if ProcessGroup.current().count == 1 else STOPPING_TOGETHER
        with (
            signals.deferred_signals(progress.say, stopping) as interrupted,
            ledger.noticing_compilation(),
        ):
            with ledger.line("initialising"):
                begun = OpenRun(config, dataset, folder, progress, interrupted, ledger, trace)
            begun.recommend = recommend
            begun.go()
        return runs.read(folder)


@contextmanager
def opened(
    config: RunConfig,
    dataset: Dataset,
    folder: Path,
    progress: Progress,
    interrupted: Callable[[], bool],
    ledger: Ledger,
    *,
    content: Content,
    session: str,
) -> Iterator[OpenRun]:
    """A run that takes its turn with others: the caller advances it epoch by epoch, and finishes
    it.

    Args:
        folder: of :func:`runs.create`, or of an unfinished run, which goes on from its last
            checkpoint. It is held for this process meanwhile.
        interrupted: asked after each iteration; when true, the run is saved and raises
            KeyboardInterrupt.
        ledger: charged with what happens here; the caller sees to it that it counts this run's
            turns only.
        content: the data set's texts on the device, which all runs share.
        session: names the runs that take turns with each other; see :func:`runs.interleaved`.

    Raises:
        DataError: the folder's records are damaged, or cannot be written.
        UsageError: another process holds the folder, or the settings do not fit the data or the
            device.
    """
    with locks.held(folder, "writing"):
        with ledger.line("initialising"):
            begun = OpenRun(
                config,
                dataset,
                folder,
                progress,
                interrupted,
                ledger,
                content=content,
                session=session,
            )
        with begun:
            yield begun
