"""A run as a command means it: trained into a folder, continued there, or found finished.

JAX is imported when a run is to be trained.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from contextlib import closing
from typing import Any

from ncfbench.catalog.presets import preset as preset_of
from ncfbench.config import Folder, Locations, RunConfig, complete, unused_settings
from ncfbench.data import Dataset
from ncfbench.data.assets import merge_named
from ncfbench.distributed import simulate
from ncfbench.distributed.process_group import ProcessGroup
from ncfbench.errors import DataError, UsageError, first_line, shown
from ncfbench.runs.folder import RunRecord
from ncfbench.runs.plan import RunPlan
from ncfbench.runs.progress import Progress
from ncfbench.runs.quality import can_rank, describe_unranked
from ncfbench.runs.signals import deferred_signals
from ncfbench.timing.compile_cache import keep_compiled
from ncfbench.timing.contention import OtherPrograms
from ncfbench.timing.ledger import Ledger

FLOORS_SECONDS = 120.0
"""That the floors of a run may take."""
STOPPING = "Stopping {}, then saving. Ctrl-C again stops at once, back to the last checkpoint."


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
    if ProcessGroup.current().count > 1:
        raise UsageError(
            "JAX is initialised with several processes: use ncfbench run --coordinator."
        )
    progress = progress or Progress()
    folders = {"data_dir": data_dir, "runs_dir": runs_dir}
    given, locations = merge_named(progress.say, settings | folders)
    config = complete({**preset_of(preset), **given})
    for warning in unused_settings(given, config):
        warnings.warn(warning, stacklevel=2)
    simulate(config.devices)
    record = run_and_blend(
        config, locations, fits_floors=preset == "good", progress=progress, again=again
    )
    assert record is not None, "several processes are refused"
    return record


def run_and_blend(
    config: RunConfig,
    locations: Locations,
    *,
    fits_floors: bool,
    progress: Progress,
    again: bool = False,
) -> RunRecord | None:
    """Train a run as :func:`run` does, and blend it with the best kept floors of its data.

    A floor whose fit takes longer than the training, and than two minutes, is not blended.

    Args:
        fits_floors: fit floors first that are not kept, in :data:`FLOORS_SECONDS`.
        progress, again: as for :func:`run`.
    """
    group, ledger = ProcessGroup.current(), Ledger()
    say = progress.say if group.is_first else Progress().say
    plan = RunPlan.of(config, locations, ledger=ledger, say=say)
    dataset = plan.dataset
    say(
        f"{dataset.name}: {dataset.n_users:,} users, {dataset.n_items:,} items,"
        f" {dataset.graph.n_links:,} links for training."
    )
    if fits_floors and group.count == 1:
        _fit_floors(dataset, locations, say)
    record = run(plan, again=again, progress=progress, ledger=ledger)
    if record is None or group.count > 1:
        return record
    from ncfbench.training import blended

    try:
        floors = blended.quick_floors(record, dataset, say)
        blended.blend_run(record, dataset, floors, say=say)
    except blended.failures() as error:
        say(f"No blend: {first_line(error)}")
    return record


def _fit_floors(dataset: Dataset, locations: Locations, say: Callable[[str], None]) -> None:
    """Fit the floors of a data set that are not kept and have time, and say what stands in the
    way of others.
    """
    from ncfbench.floors.floor import fit_within

    has_flag = dataset.manifest.get("source") in ("custom", "citeulike")
    if has_flag and dataset.n_words and dataset.item_features is None:
        say(
            "Dense features of texts by LSA mostly help, and these data have none: see"
            " ncfbench prepare with --lsa 300."
        )
    try:
        floors = fit_within(dataset, FLOORS_SECONDS, locations.data_dir, say)
        for note in floors.notes if floors else ():
            say(note)
    except (DataError, UsageError) as error:
        say(f"No floors: {error}")


def run(
    plan: RunPlan,
    *,
    again: bool = False,
    progress: Progress | None = None,
    on_all_links: bool = False,
    ledger: Ledger | None = None,
) -> RunRecord | None:
    """Train a run into a folder, and return it as the folder holds it.

    A run that is finished is returned, and not trained again. One that was begun is continued; its
    curve ends as if it had never been interrupted. Several processes call it together; only the
    first one writes, shows and returns the run, and the others return None.

    Args:
        again: delete what there is of the run, and train it from the start.
        progress: shows the run to its user; by default nothing is shown.
        on_all_links: the data have all of their links for training
            (:meth:`ncfbench.data.store.Dataset.on_all_links`): that nothing is ranked is no news.
        ledger: charged with the run's time; it has that of loading.

    Raises:
        DataError: a folder cannot be written, or records are damaged.
        DivergedError: the loss stopped being finite; what was recorded is kept.
        KeyboardInterrupt: interrupted; the run was saved and can be resumed.
        UsageError: the run cannot work, see :func:`ncfbench.training.limits.layout_for`; the
            processes differ; or another process holds the folder.
    """
    progress, ledger = progress or Progress(), ledger or Ledger()
    group, programs = ProcessGroup.current(), OtherPrograms()
    progress = progress if group.is_first else Progress()
    group.require_alike(plan.config, plan.dataset.fingerprint)
    finished = plan.read_finished() if group.is_first and not again else None
    (is_finished,) = group.any(finished is not None)
    if is_finished:
        if finished is not None and not on_all_links:
            progress.say(
                f"Already finished: {shown(finished.folder)}. To train it again, use --again."
            )
        return finished
    if not on_all_links:
        _warn_unranked(plan, progress.say)
    keep_compiled(progress.say)
    from ncfbench.training.train import Run
    from ncfbench.training.train import train as train_run

    with ledger.turn():
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
