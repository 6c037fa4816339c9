"""Benchmark of mini-batch samplers for two-tower and content-based recommenders.

The functions here are the program's commands as Python functions. Settings are keyword arguments
named as in ``docs/settings.md``; ``data_dir`` and ``runs_dir`` default to ``NCFBENCH_DATA_DIR`` and
``NCFBENCH_RUNS_DIR``, then to ``data`` and ``runs``. ``import ncfbench`` imports neither JAX nor
NumPy: a function imports what it needs when it is called. All of them raise the exceptions of
:mod:`ncfbench.errors`.

The commands restart themselves with a memory allocator that does not disturb times. ``run``,
``sweep`` and ``profile`` cannot do that to the program that calls them; they warn once, with the
words to put before ``python``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ncfbench.advice.pipeline import Advice
    from ncfbench.auditing.audit import Record as AuditRecord
    from ncfbench.config import Locations
    from ncfbench.data import Dataset
    from ncfbench.profiling.profile import Record as ProfileRecord
    from ncfbench.reporting.results import Results
    from ncfbench.runs.folder import RunRecord
    from ncfbench.runs.progress import Progress
    from ncfbench.sweeps.pipeline import SweepRun

__all__ = ["advise", "audit", "open_dataset", "prepare", "profile", "report", "run", "sweep"]
__version__ = "0.1.0"

Folder = str | PathLike[str] | None


def prepare(
    source: str,
    *,
    name: str | None = None,
    force: bool = False,
    data_dir: Folder = None,
    say: Callable[[str], None] = print,
    **options: Any,
) -> Dataset:
    """Prepare a data set and open it; instant if it is there already.

    Args:
        source: ``citeulike``, ``citeulike-t``, ``mind``, ``synthetic`` or ``custom``.
        name: the data set's name; by default the source's.
        force: replace a data set of that name and other content.
        say: receives messages, a line each.
        options: as the flags of ``ncfbench prepare SOURCE``, such as ``max_length=40``.

    Raises:
        DataError: a file is missing or malformed, or the data set cannot be written.
        UsageError: an unknown source or option, options that cannot work, or a data set of that
            name and other content without ``force``.
        VerificationError: a downloaded file is not the published one.
    """
    import dataclasses

    from ncfbench import data
    from ncfbench.data.sources import find_source
    from ncfbench.errors import UsageError, nearest

    kind = find_source(source).load().Options
    valid = [field.name for field in dataclasses.fields(kind)]
    for option in options:
        if option not in valid:
            raise UsageError(
                f"{source} has no option {option!r}{nearest(option, valid)} Valid:"
                f" {', '.join(valid)}."
            )
    chosen = kind(**options)
    folder = _locations(data_dir).data_dir
    data.prepare(source, chosen, folder, name, replace=force, say=say)
    return data.open_dataset(folder, name or source, say)


def open_dataset(
    name: str, *, data_dir: Folder = None, say: Callable[[str], None] = print
) -> Dataset:
    """Open a prepared data set; ``synthetic`` is made first if it is not there.

    Raises:
        DataError: it is not prepared; the message names the command that prepares it.
    """
    from ncfbench import data

    return data.open_dataset(_locations(data_dir).data_dir, name, say)


def run(
    *,
    data_dir: Folder = None,
    runs_dir: Folder = None,
    resume: bool = False,
    again: bool = False,
    recommend: int | None = None,
    progress: Progress | None = None,
    **settings: Any,
) -> RunRecord:
    """Train one recommender, and return its records as its folder keeps them.

    A run with these settings and data that is finished is returned, and not trained again.

    Args:
        resume: continue the newest interrupted run with these settings.
        again: train a new run even if there is one with these settings.
        recommend: write this many held-out items of each user at the end.
        progress: shows the run; by default nothing is shown.
        settings: as in ``docs/settings.md``, such as ``dataset="citeulike", sampler="ns"``;
            ``lambda`` is written ``lambda_``.

    Raises:
        DataError: the data set is not prepared, or a folder cannot be written.
        DivergedError: the loss stopped being finite; what was recorded is kept.
        UsageError: an unknown setting, settings that cannot work, no run to resume, or an
            interrupted one that ``resume`` would continue.
    """
    import warnings

    from ncfbench.config import complete, unused_settings
    from ncfbench.distributed.simulation import simulate
    from ncfbench.timing.compile_cache import keep_compiled
    from ncfbench.timing.heap import warn_once
    from ncfbench.training import run as training

    warn_once()
    say = progress.say if progress else _discard
    given, locations = _resolve(settings, say, data_dir, runs_dir)
    config = complete(given)
    for warning in unused_settings(given, config):
        warnings.warn(warning, stacklevel=2)
    simulate(config.devices)
    keep_compiled(say)
    record = training.run(
        config, locations, resume=resume, again=again, recommend=recommend, progress=progress
    )
    assert record is not None, "several processes are refused"
    return record


def sweep(
    source: str | PathLike[str],
    *,
    data_dir: Folder = None,
    runs_dir: Folder = None,
    seeds: int | None = None,
    dry_run: bool = False,
    budget_seconds: float | None = None,
    say: Callable[[str], None] = print,
    **settings: Any,
) -> SweepRun:
    """Train the cells of a sweep that are not finished, and return what became of them.

    Args:
        source: a preset's name or a TOML file.
        seeds: how many seeds, counted from the sweep's first.
        dry_run: only predict the time and memory that the cells still need.
        budget_seconds: leave out seeds, then groups of cells, until the prediction fits.
        settings: replace those of the sweep; a list makes an axis of the grid.

    Raises:
        DataError: a data set is not prepared, or a folder cannot be written.
        UsageError: no such sweep, an unknown setting, or no cell that can work.
    """
    from ncfbench.sweeps.files import read_sweep, with_named_files
    from ncfbench.sweeps.pipeline import run_sweep
    from ncfbench.timing.heap import warn_once

    if not dry_run:
        warn_once()
    wanted = read_sweep(str(source), flags=settings, seeds=seeds)
    locations = _locations(data_dir, runs_dir)
    wanted = with_named_files(wanted, locations.data_dir, say)
    return run_sweep(wanted, locations, dry_run=dry_run, budget_seconds=budget_seconds, tell=say)


def advise(
    dataset: str,
    *,
    encoder: str = "cnn",
    budget_seconds: float = 600.0,
    target: str = "loss",
    loss: str | Sequence[str] = (),
    seeds: int = 2,
    dry_run: bool = False,
    data_dir: Folder = None,
    runs_dir: Folder = None,
    say: Callable[[str], None] = print,
    **asked: Any,
) -> Advice:
    """Race candidates within a budget of time, and return what to train with, and why.

    The same question continues its race.

    Args:
        budget_seconds: wall time for all of it.
        target: ``loss`` or ``recall``.
        loss: one loss; for recall any number of them, by default all.
        seeds: seeds of the finalists.
        dry_run: only choose the candidates.
        asked: what to try, as ``samplers``, ``batch_sizes``, ``stratum_sizes``, ``negatives`` and
            ``learning_rates``, each a sequence; and settings that all candidates share, such as
            ``dimension=20``.

    Raises:
        DataError: the data set is not prepared, or a folder cannot be written.
        UsageError: a question without an answer, or a budget too small for one rung.
    """
    import dataclasses

    from ncfbench.advice import pipeline
    from ncfbench.advice.question import Question

    names = {each.name for each in dataclasses.fields(Question)}
    tried = {name: tuple(asked.pop(name)) for name in sorted(names & asked.keys())}
    tried["losses"] = (loss,) if isinstance(loss, str) else tuple(loss)
    shared = {"dataset": dataset, "encoder": encoder, **asked}
    fixed, locations = _resolve(shared, say, data_dir, runs_dir)
    question = Question(
        fixed,
        target=target,  # type: ignore[arg-type]
        seeds=seeds,
        **tried,
    )
    return pipeline.advise(question, locations, budget_seconds, dry_run=dry_run, say=say)


def report(
    runs_dir: Folder = None,
    *,
    data_dir: Folder = None,
    allow_mixed: bool = False,
    only: Mapping[str, Sequence[Any]] | None = None,
    baseline: str | None = None,
) -> Results:
    """Compare the runs of a folder; the tables are ``results.tables``, rows ``results.speedup``.

    Args:
        allow_mixed: divide times of different environments too.
        only: values by setting of the runs to compare, such as ``{"sampler": ["iid", "ns"]}``.
        baseline: sampler that speedups are measured against; by default ``iid``, of pairwise losses
            ``neg``.

    Raises:
        DataError: a table cannot be read.
        UsageError: ``only`` names an unknown setting, or a value that no run has; no run has the
            baseline's sampler.
    """
    from ncfbench.reporting.collecting import collect

    locations = _locations(data_dir, runs_dir)
    return collect(
        locations.runs_dir,
        locations.data_dir,
        allow_mixed=allow_mixed,
        locations={},
        only=only,
        baseline=baseline,
    )


def audit(
    *,
    samplers: Sequence[str] | None = None,
    losses: Sequence[str] | None = None,
    noises: Sequence[str] = ("unigram", "uniform", "0.75"),
    batches: int = 1536,
    data_dir: Folder = None,
    say: Callable[[str], None] = print,
    progress: Progress | None = None,
    **settings: Any,
) -> AuditRecord:
    """Measure the bias and the variance of samplers' gradients; ``record.failures`` names faults.

    Nothing is written: ``record.tables`` holds the rows.

    Args:
        samplers: names; all built-in ones by default, and so for ``losses``.
        batches: how many batches of each sampler; 0 for the conformance suite and the X-ray only.

    Raises:
        DataError: the data set is not prepared.
        UsageError: no combination can work, or the data set is too large for exact gradients.
    """
    from ncfbench.auditing import audit as auditing
    from ncfbench.catalog import LOSSES, SAMPLERS
    from ncfbench.config import complete

    given, locations = _resolve(settings, say, data_dir)
    options = auditing.Options(
        tuple(SAMPLERS if samplers is None else samplers),
        tuple(LOSSES if losses is None else losses),
        tuple(noises),
        batches=batches,
    )
    name = complete({"dataset": given["dataset"]} if "dataset" in given else {}).dataset
    dataset = open_dataset(name, data_dir=locations.data_dir, say=say)
    return auditing.run(dataset, given, options, progress)


def profile(
    *,
    samplers: Sequence[str] | None = None,
    rounds: int = 11,
    data_dir: Folder = None,
    say: Callable[[str], None] = print,
    progress: Progress | None = None,
    **settings: Any,
) -> ProfileRecord:
    """Measure what an iteration is made of, and predict each sampler's iteration from it.

    Nothing is written: ``record.tables`` holds the rows.

    Args:
        samplers: names; the paper's by default.

    Raises:
        DataError: the data set is not prepared.
        UsageError: too few rounds, or settings that cannot work.
    """
    from ncfbench.catalog import SAMPLERS, find_sampler
    from ncfbench.distributed.simulation import simulate
    from ncfbench.profiling import profile as profiling
    from ncfbench.timing.heap import warn_once

    warn_once()
    if samplers is None:
        samplers = [name for name in SAMPLERS if find_sampler(name).in_paper]
    given, locations = _resolve(settings, say, data_dir)
    configs = profiling.configurations(given, tuple(samplers))
    first = next(iter(configs.values()))
    simulate(first.devices)
    dataset = open_dataset(first.dataset, data_dir=locations.data_dir, say=say)
    return profiling.run(dataset, configs, rounds=rounds, progress=progress)


def _resolve(
    settings: dict[str, Any],
    say: Callable[[str], None],
    data_dir: Folder = None,
    runs_dir: Folder = None,
) -> tuple[dict[str, Any], Locations]:
    """Return the settings by their own types, with digests for files, and the folders."""
    from ncfbench.config import merge
    from ncfbench.data.assets import name_files

    given, locations = merge(settings | {"data_dir": data_dir, "runs_dir": runs_dir})
    return name_files(given, locations.data_dir, say), locations


def _locations(data_dir: Folder = None, runs_dir: Folder = None) -> Locations:
    return _resolve({}, _discard, data_dir, runs_dir)[1]


def _discard(text: str) -> None:
    """Show no message."""
