"""Results as two frames: ``arms``, a row for each run, and ``probes``, a row for each probe.

A row of ``arms`` is a :class:`Run`, an arm with one seed; its ``curve`` are its rows of ``probes``.
:func:`group` finds the rows that compare. Columns that need other rows are added by pure functions:
:func:`with_baselines` here, times of a profile in
:mod:`ncfbench.reporting.profiles`. :func:`over_seeds` combines seeds into a ratio.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Hashable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeAlias, TypeVar

import pyarrow as pa

from ncfbench.catalog import baseline_sampler, find_encoder
from ncfbench.errors import UsageError
from ncfbench.runs.arms import Variant, shared_settings
from ncfbench.runs.curves import falling
from ncfbench.runs.folder import RunRecord, clock_at
from ncfbench.statistics import speedups
from ncfbench.statistics.curves import Curve, iterations_to
from ncfbench.statistics.speedups import AtTarget
from ncfbench.storage import schemas

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)
Arms: TypeAlias = "Mapping[Variant, Mapping[int, Run]]"
"""Rows of a group by arm and seed."""


@dataclass(frozen=True, repr=False)
class Run(RunRecord):
    """A row of ``arms``: an arm with one seed.

    Attributes:
        chosen_baseline: the sampler that speedups are measured against; None: the loss's own.
        baseline: the arm of the baseline; None before :func:`with_baselines`, or where none fits.
        base: the baseline's run of this seed; None before :func:`with_baselines`.
        target: probe loss that both are to come down to.
        iterations_to_target: linear between probes; None if it never came down to the target.
    """

    chosen_baseline: str | None = None
    baseline: Variant | None = None
    base: Run | None = None
    target: float | None = None
    iterations_to_target: float | None = None

    @classmethod
    def of(cls, record: RunRecord) -> Run:
        """Return the row of a run's records."""
        return record if isinstance(record, cls) else cls(**vars(record))

    @cached_property
    def variant(self) -> Variant:
        """Its sampler, and the settings in which arms differ."""
        return Variant.of(self.config)

    @property
    def baseline_sampler(self) -> str:
        """The sampler that speedups are measured against."""
        return self.chosen_baseline or baseline_sampler(self.config.loss)

    @property
    def seconds(self) -> float:
        """Median seconds of an iteration (full account), if it :attr:`is_timed`."""
        return float(self.summary["full_iteration_seconds"])

    @property
    def is_timed(self) -> bool:
        """True if it is known how long its iterations are."""
        return self.summary["full_iteration_seconds"] is not None

    @property
    def has_diverged(self) -> bool:
        """True if its loss was no longer finite."""
        return bool(self.summary["status"] == "diverged")

    def evaluated(self, column: str) -> bool:
        """Return whether some probe of its curve has a column."""
        return any(row[column] is not None for row in self.curve)

    @cached_property
    def probes(self) -> Curve:
        """Its probes and times, as statistics read them."""
        return falling(self, "probe_loss")

    @property
    def seconds_to_target(self) -> float | None:
        """Seconds of training until it came down to the target."""
        iterations = self.iterations_to_target
        return iterations * self.seconds if iterations is not None and self.is_timed else None

    @property
    def shorter(self) -> float | None:
        """How many times shorter its iterations are than the baseline's; None where their
        environments differ.
        """
        base = self.base
        if base is None or not (base.is_timed and self.is_timed):
            return None
        is_same = base.environment["key"] == self.environment["key"]
        return base.seconds / self.seconds if is_same else None

    @property
    def fewer(self) -> float | None:
        """How many times fewer iterations it takes to the target than the baseline."""
        theirs = self.base.iterations_to(self.target) if self.base else None
        needed = self.iterations_to_target
        # An arm that is there before training needs no iteration: there is no ratio.
        return theirs / needed if needed and theirs else None

    @property
    def sooner(self) -> float | None:
        """How many times sooner it comes down to the target: the product of both."""
        return self.fewer * self.shorter if self.fewer and self.shorter else None

    def iterations_to(self, level: float | None) -> float | None:
        """Return the iterations until its probe first comes down to a level; None if never."""
        if level is None:
            return None
        return iterations_to(level, self.probes.iterations, self.probes.losses)


def group(records: Iterable[RunRecord], baseline: str | None = None) -> list[list[Run]]:
    """Return finished and diverged runs, those together that differ only in
    :data:`ncfbench.runs.arms.ARM_SETTINGS`, in a stable order, beside their baselines.

    The newest run of an arm and seed counts. Diverged runs count: without them an arm would look
    better than it is.

    Args:
        baseline: the sampler that speedups are measured against; by default the loss's own.
    """
    groups: dict[tuple[Any, ...], dict[tuple[Variant, int], Run]] = {}
    for record in sorted(records, key=lambda row: (str(row.environment.get("time")), row.name)):
        if record.summary["status"] in ("finished", "diverged"):
            run = Run.of(record)
            groups.setdefault(compared_by(run), {})[run.variant, run.config.seed] = run
    return [
        with_baselines([replace(run, chosen_baseline=baseline) for run in groups[key].values()])
        for key in sorted(groups)
    ]


def compared_by(record: RunRecord, but: Container[str] = ()) -> tuple[Any, ...]:
    """Return the key of the runs that compare with a run: their data and shared settings.

    Args:
        but: settings that may differ too.
    """
    shared = shared_settings(record.config).items()
    settings = {name: value for name, value in shared if name not in but}
    return (
        *(settings[name] for name in ("dataset", "encoder", "loss")),
        record.data_fingerprint,
        tuple(sorted((name, str(value)) for name, value in settings.items())),
    )


def grouped(items: Iterable[T], key: Callable[[T], K]) -> dict[K, list[T]]:
    """Return items by a key, in their order."""
    groups: dict[K, list[T]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups


def by_variant(runs: Iterable[Run]) -> dict[Variant, dict[int, Run]]:
    """Return the rows of a group by arm and seed."""
    arms: dict[Variant, dict[int, Run]] = {}
    for run in runs:
        arms.setdefault(run.variant, {})[run.config.seed] = run
    return arms


def paired(runs: Iterable[Run]) -> list[tuple[Run, Run]]:
    """Return an arm's runs of the seeds that its baseline has too, each with that, by seed."""
    pairs = [(run, run.base) for run in runs if run.base is not None]
    return sorted(pairs, key=lambda pair: pair[0].config.seed)


def with_baselines(runs: Iterable[Run]) -> list[Run]:
    """Return the rows of a group by arm, each beside the run of its baseline and seed, with the
    smallest loss of that as its target where both have probes.

    Raises:
        UsageError: as for :func:`_baseline_of`.
    """
    arms, rows = by_variant(runs), []
    for variant, by_seed in arms.items():
        baseline = _baseline_of(variant, next(iter(by_seed.values())), arms)
        for seed, run in by_seed.items():
            base = arms[baseline].get(seed) if baseline else None
            target = min(base.probes.losses) if base and base.curve and run.curve else None
            reached = run.iterations_to(target)
            row = replace(run, baseline=baseline, base=base, target=target)
            rows.append(replace(row, iterations_to_target=reached))
    return rows


def _baseline_of(variant: Variant, run: Run, arms: Iterable[Variant]) -> Variant | None:
    """Return the baseline of an arm: that of the same k, else of the paper's k, else the only one;
    of several the one that has the paper's other settings.

    Raises:
        UsageError: several arms of the chosen baseline differ in a setting other than k, and none
            has the paper's.
    """
    encoder = run.config.encoder
    baselines = [arm for arm in arms if arm.sampler == run.baseline_sampler]
    by_k = grouped(baselines, lambda arm: arm.negatives)
    usual = by_k.get(find_encoder(encoder).negatives)
    alike = by_k.get(variant.negatives) or usual or (baselines if len(baselines) == 1 else [])
    papers = [arm for arm in alike if not replace(arm, negatives=None).note(encoder)]
    if len(alike) == 1 or papers:
        return (papers or alike)[0]
    if run.chosen_baseline and alike:
        names = ", ".join(arm.label(encoder) for arm in alike)
        raise UsageError(
            f"--baseline {run.chosen_baseline} stands for several arms: {names}. Leave one of them"
            " by --only, such as --only stratum_size=2."
        )
    return None


def over_seeds(runs: Iterable[Run]) -> AtTarget:
    """Return how many times sooner an arm comes down to the targets of its runs."""
    pairs = [(run, run.base) for run in runs if run.base and run.target is not None]
    levels = [run.target for run, _ in pairs if run.target is not None]
    return speedups.speedup_at(levels, [(run.probes, base.probes) for run, base in pairs])


def arms_table(runs: Iterable[Run]) -> pa.Table:
    """Return the frame ``arms``: a row for each run, with the columns of
    :data:`ncfbench.storage.schemas.ARMS`.
    """
    rows: list[dict[str, Any]] = []
    for run in runs:
        row: dict[str, Any] = {**run.config.to_dict(), **run.summary, **vars(run)}
        rows.append(
            row
            | {
                "run": run.name,
                "variant": run.variant.note(run.config.encoder),
                "stratum_size": run.variant.stratum_size,
                "negatives": run.variant.negatives,
                "iteration_seconds": run.summary["full_iteration_seconds"],
                "smallest_probe_loss": min(run.probes.losses, default=None),
                "baseline_run": run.base and run.base.name,
                "reached": None if run.target is None else run.iterations_to_target is not None,
                "seconds_to_target": run.seconds_to_target,
                "times_shorter": run.shorter,
                "times_fewer": run.fewer,
                "times_sooner": run.sooner,
                "environment_key": run.environment["key"],
            }
        )
    names = schemas.ARMS.names
    return pa.Table.from_pylist([{name: row[name] for name in names} for row in rows], schemas.ARMS)


def probes_table(runs: Iterable[Run]) -> pa.Table:
    """Return the frame ``probes``: a row for each run and probe, with the run, seconds of training
    by ``iteration_seconds`` of ``arms``, and the columns of ``curve.parquet``.
    """
    rows = []
    for run in runs:
        for row in run.curve:
            seconds = clock_at(run, row["iteration"]) if run.is_timed else None
            rows.append({"run": run.name, "seconds": seconds, **row})
    more = [pa.field("run", pa.string()), pa.field("seconds", pa.float64())]
    return pa.Table.from_pylist(rows, pa.schema([*more, *schemas.CURVE]))
