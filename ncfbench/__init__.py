"""Benchmark of mini-batch samplers for two-tower and content-based recommenders.

The functions here are the program's commands as Python functions. Arguments are named as the
command's flags and mean the same (``ncfbench run --help``); ``settings`` are those of
``docs/settings.md``, and ``lambda`` is written ``lambda_``. ``say`` receives messages, a line each;
``progress`` shows the work, by default nothing. All raise the exceptions of
:mod:`ncfbench.errors`: a DataError where a data set is not prepared or a folder cannot be written,
a UsageError for unknown settings and those that cannot work. ``import ncfbench`` imports neither
JAX nor NumPy: a function imports what it needs when it is called.

The commands restart themselves with a memory allocator that does not disturb times. ``run``,
``sweep`` and ``profile`` cannot do that to the program that calls them; they warn once, with the
words to put before ``python``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ncfbench.advice.pipeline import Advice
    from ncfbench.auditing.audit import Record as AuditRecord
    from ncfbench.config import Locations
    from ncfbench.data import Dataset
    from ncfbench.profiling.profile import Record as ProfileRecord
    from ncfbench.reporting.collecting import collect as report
    from ncfbench.runs.folder import RunRecord
    from ncfbench.runs.progress import Progress
    from ncfbench.sweeps.pipeline import SweepRun

__all__ = ["advise", "audit", "open_dataset", "prepare", "profile", "report", "run", "sweep"]
__version__ = "0.1.0"

Folder = str | PathLike[str] | None
Say = Callable[[str], None]


def __getattr__(name: str) -> Any:
    """Import the function that compares runs when it is first asked for."""
    if name != "report":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from ncfbench.reporting.collecting import collect

    return collect


def prepare(
    source: str,
    *,
    name: str | None = None,
    force: bool = False,
    data_dir: Folder = None,
    say: Say = print,
    **options: Any,
) -> Dataset:
    """Prepare a data set and open it; instant if it is there already.

    Args:
        source: ``citeulike``, ``citeulike-t``, ``mind``, ``synthetic`` or ``custom``.
        options: as the flags of ``ncfbench prepare SOURCE``, such as ``max_length=40``.

    Raises:
        DataError, UsageError, VerificationError: see :func:`ncfbench.data.prepare`.
    """
    import dataclasses

    from ncfbench import data
    from ncfbench.data.sources import find_source
    from ncfbench.errors import UsageError, nearest

    kind = find_source(source).load().Options
    valid = [field.name for field in dataclasses.fields(kind)]
    if unknown := [option for option in options if option not in valid]:
        raise UsageError(
            f"{source} has no option {unknown[0]!r}{nearest(unknown[0], valid)} Valid:"
            f" {', '.join(valid)}."
        )
    folder = _folders(data_dir).data_dir
    data.prepare(source, kind(**options), folder, name, replace=force, say=say)
    return data.open_dataset(folder, name or source, say)


def open_dataset(name: str, *, data_dir: Folder = None, say: Say = print) -> Dataset:
    """Open a prepared data set; ``synthetic`` is made first if it is not there.

    Raises:
        DataError: it is not prepared; the message names the command that prepares it.
    """
    from ncfbench import data

    return data.open_dataset(_folders(data_dir).data_dir, name, say)


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

    Raises:
        DivergedError: the loss stopped being finite; what was recorded is kept.
        UsageError: no run to resume, or an interrupted one that ``resume`` would continue.
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
    say: Say = print,
    **settings: Any,
) -> SweepRun:
    """Train the cells of a sweep that are not finished, and return what became of them.

    ``settings`` replace those of the sweep; a list makes an axis of the grid.

    Raises:
        UsageError: no such sweep, or no cell that can work.
    """
    from ncfbench.sweeps.files import read_sweep, with_named_files
    from ncfbench.sweeps.pipeline import run_sweep
    from ncfbench.timing.heap import warn_once

    if not dry_run:
        warn_once()
    locations = _folders(data_dir, runs_dir)
    wanted = read_sweep(str(source), flags=settings, seeds=seeds)
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
    say: Say = print,
    **asked: Any,
) -> Advice:
    """Race candidates within a budget of time, and return what to train with, and why.

    The same question continues its race.

    Args:
        asked: sequences of ``samplers``, ``batch_sizes``, ``stratum_sizes``, ``negatives`` and
            ``learning_rates`` to try, and settings that all candidates share.

    Raises:
        UsageError: a question without an answer, or a budget too small for one rung.
    """
    import dataclasses

    from ncfbench.advice import pipeline
    from ncfbench.advice.question import Question

    names = {field.name for field in dataclasses.fields(Question)}
    tried = {name: tuple(asked.pop(name)) for name in sorted(names & asked.keys())}
    tried["losses"] = (loss,) if isinstance(loss, str) else tuple(loss)
    shared = {"dataset": dataset, "encoder": encoder, **asked}
    fixed, locations = _resolve(shared, say, data_dir, runs_dir)
    question = Question(fixed, target=target, seeds=seeds, **tried)  # type: ignore[arg-type]
    return pipeline.advise(question, locations, budget_seconds, dry_run=dry_run, say=say)


def audit(
    *,
    samplers: Sequence[str] | None = None,
    losses: Sequence[str] | None = None,
    noises: Sequence[str] = ("unigram", "uniform", "0.75"),
    batches: int = 1536,
    data_dir: Folder = None,
    say: Say = print,
    progress: Progress | None = None,
    **settings: Any,
) -> AuditRecord:
    """Measure the bias and the variance of samplers' gradients; ``record.failures`` names faults.

    Nothing is written: ``record.tables`` holds the rows.

    Raises:
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
    name = complete({"dataset": given.get("dataset")}).dataset
    dataset = open_dataset(name, data_dir=locations.data_dir, say=say)
    return auditing.run(dataset, given, options, progress)


def profile(
    *,
    samplers: Sequence[str] | None = None,
    rounds: int = 11,
    data_dir: Folder = None,
    say: Say = print,
    progress: Progress | None = None,
    **settings: Any,
) -> ProfileRecord:
    """Measure what an iteration is made of, and predict each sampler's iteration from it.

    Nothing is written: ``record.tables`` holds the rows.

    Raises:
        UsageError: too few rounds, or no sampler that can work.
    """
    from ncfbench.catalog import SAMPLERS
    from ncfbench.distributed.simulation import simulate
    from ncfbench.profiling import profile as profiling
    from ncfbench.timing.heap import warn_once

    warn_once()
    if samplers is None:
        samplers = [name for name, info in SAMPLERS.items() if info.in_paper]
    given, locations = _resolve(settings, say, data_dir)
    configs = profiling.configurations(given, tuple(samplers))
    first = next(iter(configs.values()))
    simulate(first.devices)
    dataset = open_dataset(first.dataset, data_dir=locations.data_dir, say=say)
    return profiling.run(dataset, configs, rounds=rounds, progress=progress)


def _resolve(
    settings: dict[str, Any], say: Say, data_dir: Folder = None, runs_dir: Folder = None
) -> tuple[dict[str, Any], Locations]:
    """Return the settings by their own types, with digests for files, and the folders."""
    from ncfbench.config import merge
    from ncfbench.data.assets import name_files

    given, locations = merge(settings | {"data_dir": data_dir, "runs_dir": runs_dir})
    return name_files(given, locations.data_dir, say), locations


def _folders(data_dir: Folder = None, runs_dir: Folder = None) -> Locations:
    from ncfbench.config import merge

    return merge({"data_dir": data_dir, "runs_dir": runs_dir})[1]


def _discard(text: str) -> None:
    """Show no message."""
