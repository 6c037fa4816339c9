"""A run as a command means it: trained into a folder, continued there, or floors finished."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from contextlib import closing
from typing import Any

import jax
from scipy.linalg import LinAlgError

from ncfbench.catalog.presets import preset as preset_of
from ncfbench.config import Folder, Locations, RunConfig, complete, unused_settings
from ncfbench.data import Dataset, open_dataset
from ncfbench.data.assets import merge_named
from ncfbench.distributed import simulate
from ncfbench.distributed.process_group import ProcessGroup
from ncfbench.errors import DataError, NcfbenchError, UsageError, first_line, shown
from ncfbench.runs import folder as runs
from ncfbench.runs.folder import RunRecord
from ncfbench.runs.progress import Progress
from ncfbench.runs.quality import can_rank
from ncfbench.runs.signals import deferred_signals
from ncfbench.timing.compile_cache import keep_compiled
from ncfbench.timing.contention import OtherPrograms
from ncfbench.timing.ledger import Ledger
from ncfbench.training.evaluation import describe_unranked
from ncfbench.training.plan import RunPlan
from ncfbench.training.train import Run
from ncfbench.training.train import train as train_run

FLOORS_SECONDS = 120.0
"""That the floors of a run may take."""
STOPPING = "Stopping {}, then saving. Ctrl-C again stops at once, back to the last checkpoint."
FAILURES = (NcfbenchError, MemoryError, OSError, jax.errors.JaxRuntimeError)
"""Failures of one run that leave the others whole: out of memory, a full disk, a held folder."""


def train(
    *,
    data_dir: Folder = None,
    runs_dir: Folder = None,
    again: bool = False,
    progress: Progress | None = None,
    preset: str = "paper",
    **settings: Any,
) -> RunRecord:
    """Train one recommender in this process, and return its records as its folder keeps them.

    A run with these settings and data that is finished is returned, and not trained again; one that
    was interrupted is continued.

    Args:
        again: delete what there is of the run, and train it from the start.
        preset: a name of :data:`ncfbench.catalog.presets.PRESETS`, whose settings the others
            replace.

    Raises:
        DataError, DivergedError, KeyboardInterrupt, UsageError: see :func:`run`.
    """
    progress = progress or Progress()
    folders = {"data_dir": data_dir, "runs_dir": runs_dir}
    given, locations = merge_named(progress.say, settings | folders)
    config = complete({**preset_of(preset), **given})
    for warning in unused_settings(given, config):
        warnings.warn(warning, stacklevel=2)
    simulate(config.devices)
    more = {"again": again, "progress": progress}
    record = run_and_blend(config, locations, fits_floors=preset == "good", **more)
    assert record is not None, "several processes are refused"
    return record


def run_and_blend(
    config: RunConfig, locations: Locations, *, fits_floors: bool, **more: Any
) -> RunRecord | None:
    """Train a run as :func:`run` does, and blend it with the best kept floor of its data.

    A floor whose fit takes longer than the training, and than a minute, is not blended.

    Args:
        fits_floors: fit floors first that are not kept, in :data:`FLOORS_SECONDS`.
        more: as for :func:`run`.
    """
    from ncfbench.floors.floor import fit_within
    from ncfbench.training.blended import blend_run

    progress = more["progress"]
    if fits_floors and ProcessGroup.current().count == 1:
        try:
            data = open_dataset(config.dataset, data_dir=locations.data_dir, say=progress.say)
            has_flag = data.manifest.get("source") in ("custom", "citeulike")
            if has_flag and data.n_words and data.item_features is None:
                progress.say(
                    "Dense features of texts by LSA mostly help, and these data have none: see"
                    " ncfbench prepare with --lsa 300."
                )
            floors = fit_within(data, FLOORS_SECONDS, locations.data_dir, progress.say)
            for note in floors.notes if floors else ():
                progress.say(note)
        except (DataError, UsageError) as error:
            progress.say(f"No floors: {error}")
    record = run(config, locations, **more)
    if record is None or ProcessGroup.current().count > 1:
        return record
    try:
        blend_run(record, data_dir=locations.data_dir, say=progress.say)
    except (*FAILURES, LinAlgError) as error:
        progress.say(f"No blend: {first_line(error)}")
    return record


def run(
    config: RunConfig,
    locations: Locations,
    *,
    again: bool = False,
    progress: Progress | None = None,
    in_group: bool = False,
    all_links: Dataset | None = None,
) -> RunRecord | None:
    """Train a run into a folder, and return it as the folder holds it.

    A run that is finished is returned, and not trained again. One that was begun is continued; its
    curve ends as if it had never been interrupted. Only the first of several processes writes,
    shows and returns the run; the others return None.

    Args:
        again: delete what there is of the run, and train it from the start.
        progress: shows the run to its user; by default nothing is shown.
        in_group: train together with the other processes, which call this alike.
        all_links: the data set with all of its links for training
            (:meth:`ncfbench.data.store.Dataset.on_all_links`); by default nothing held out trains.

    Raises:
        DataError: the data set is not prepared, a folder cannot be written, or records are damaged.
        DivergedError: the loss stopped being finite; what was recorded is kept.
        KeyboardInterrupt: interrupted; the run was saved and can be resumed.
        UsageError: the run cannot work, see :meth:`RunPlan.of`; there are several processes without
            ``in_group``; or another process holds the folder.
    """
    progress, ledger = progress or Progress(), Ledger()
    keep_compiled(progress.say)
    with ledger.turn():
        with ledger.line("initialising"):  # the first question for devices starts JAX
            group = ProcessGroup.current()
            programs = OtherPrograms()
        if group.count > 1 and not in_group:
            raise UsageError(
                "JAX is initialised with several processes: use ncfbench run --coordinator."
            )
        progress = progress if group.is_first else Progress()
        plan = RunPlan.of(config, locations, dataset=all_links, ledger=ledger, say=progress.say)
        finished = _read_finished(plan) if group.is_first and not again else None
        (is_finished,) = group.any(finished is not None)
        if is_finished:
            if finished is not None and all_links is None:
                progress.say(
                    f"Already finished: {shown(finished.folder)}. To train it again, use --again."
                )
            return finished
        if all_links is None:
            _warn_unranked(plan, progress.say)
        if group.count == 1:  # else the other processes of the run would count as others
            with ledger.line("initialising"):
                programs.warn(progress.say)
        when = "after this iteration" if group.count == 1 else "all processes at the next probe"
        with (
            deferred_signals(progress.say, STOPPING.format(when)) as interrupted,
            closing(Run(plan, ledger, progress, interrupted, again=again)) as opened,
        ):
            for _ in train_run(opened):
                pass
        if group.count == 1:
            programs.warn(progress.say)
        return opened.recorder.read()


def _warn_unranked(plan: RunPlan, say: Callable[[str], None]) -> None:
    """Say that a run will have no recall, and what to do for some."""
    encoder, dataset = plan.config.encoder, plan.dataset
    if reason := describe_unranked(encoder, dataset):
        advice = "prepare the data with --hold-out links, or train with --encoder bow"
        if can_rank(encoder, dataset):
            advice = "prepare data with more users, items and links"
        say(
            f"Warning: nothing can be ranked: {reason}. The run measures losses and times, and no"
            f" recall. For recall {advice}."
        )


def _read_finished(plan: RunPlan) -> RunRecord | None:
    """Return the run of a plan if it is finished."""
    folder = runs.path_of(plan.locations.runs_dir, plan.config, plan.dataset.fingerprint)
    if not (folder / "summary.parquet").exists():
        return None
    record = runs.read(folder)
    return record if record.summary["status"] == "finished" else None
