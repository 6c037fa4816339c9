"""Results as two frames: ``arms``, a row for each run, and ``probes``, a row for each probe.

A row of ``arms`` is a :class:`Run`, an arm with one seed; its ``curve`` are its rows of ``probes``.
Columns that need other rows are added by pure functions: :func:`with_targets` here, the seconds of
a profile in :mod:`ncfbench.reporting.profiles`. :func:`over_seeds` combines seeds into a ratio.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import pyarrow as pa

from ncfbench.runs.arms import Variant
from ncfbench.runs.folder import RunRecord
from ncfbench.storage import schemas
from ncfbench.timing import speedups
from ncfbench.timing.intervals import Estimate
from ncfbench.timing.speedups import AtTarget

Rule = Callable[[speedups.Arm, speedups.Arm], float]
"""Returns the target of an arm and its baseline from the probes of both, of one seed."""


@dataclass(frozen=True, repr=False)
class Run(RunRecord):
    """A row of ``arms``: an arm with one seed.

    Attributes:
        profile_ratio: how many times shorter its iterations are than the baseline's by the profile
            that says how long they are; None where the run's own times count.
        base: the baseline's run of this seed; None before :func:`with_targets`.
        target: probe loss that both are to come down to.
        iterations_to_target: linear between probes; None if it never came down to the target.
    """

    profile_ratio: Estimate | None = None
    base: Run | None = None
    target: float | None = None
    iterations_to_target: float | None = None

    @classmethod
    def of(cls, record: RunRecord) -> Run:
        """Return the row of a run's records."""
        return record if isinstance(record, cls) else cls(**vars(record))

    @property
    def seconds(self) -> float:
        """Median seconds of an iteration (full account), if it :attr:`is_timed`."""
        return float(self.summary["full_iteration_seconds"])

    @property
    def seconds_source(self) -> str:
        """The origin of its times: ``run`` or ``profile``."""
        return "run" if self.profile_ratio is None else "profile"

    @property
    def is_timed(self) -> bool:
        """True if it is known how long its iterations are."""
        return self.summary["full_iteration_seconds"] is not None

    @property
    def has_diverged(self) -> bool:
        """True if its loss was no longer finite."""
        return bool(self.summary["status"] == "diverged")

    @cached_property
    def probes(self) -> speedups.Arm:
        """Its probes and times, as statistics read them."""
        return speedups.Arm(
            iterations=[row["iteration"] for row in self.curve],
            losses=[row["probe_loss"] for row in self.curve],
            full_iteration_seconds=self.summary["full_iteration_seconds"],
        )

    @property
    def seconds_to_target(self) -> float | None:
        """Seconds of training until it came down to the target."""
        iterations = self.iterations_to_target
        return iterations * self.seconds if iterations is not None and self.is_timed else None

    @property
    def shorter(self) -> float | None:
        """How many times shorter its iterations are than the baseline's."""
        is_known = self.base is not None and self.base.is_timed and self.is_timed
        return self.base.seconds / self.seconds if self.base and is_known else None

    @property
    def fewer(self) -> float | None:
        """How many times fewer iterations it takes to the target than the baseline."""
        theirs = self.base.iterations_to(self.target) if self.base else None
        own = self.iterations_to_target
        # An arm that is there before training needs no iteration: there is no ratio.
        return theirs / own if own and theirs else None

    @property
    def sooner(self) -> float | None:
        """How many times sooner it comes down to the target: the product of both."""
        return self.fewer * self.shorter if self.fewer and self.shorter else None

    def iterations_to(self, level: float | None) -> float | None:
        """Return the iterations until its probe first comes down to a level; None if never."""
        if level is None:
            return None
        return speedups.iterations_to(level, self.probes.iterations, self.probes.losses)


def smallest_of_baseline(own: speedups.Arm, base: speedups.Arm) -> float:
    """Return the target of a report: the smallest loss of the baseline of that seed."""
    return min(base.losses)


def latest_common_level(own: speedups.Arm, base: speedups.Arm) -> float:
    """Return the target of a race: the lowest loss that both have reached."""
    return max(min(own.losses), min(base.losses))


def with_targets(
    runs: Mapping[int, Run], bases: Mapping[int, Run], rule: Rule = smallest_of_baseline
) -> dict[int, Run]:
    """Return the runs of the seeds that the baseline has too, by seed, beside the baseline's run
    and with the target, where both have probes.
    """
    found = {}
    for seed in sorted(runs.keys() & bases.keys()):
        run, base = runs[seed], bases[seed]
        has_probes = bool(run.curve and base.curve)
        target = rule(run.probes, base.probes) if has_probes else None
        reached = run.iterations_to(target)
        found[seed] = replace(run, base=base, target=target, iterations_to_target=reached)
    return found


def over_seeds(runs: Iterable[Run]) -> AtTarget:
    """Return how many times sooner an arm comes down to the targets of its runs."""
    known = [
        (run.target, (run.probes, run.base.probes))
        for run in runs
        if run.base is not None and run.target is not None
    ]
    return speedups.speedup_at([level for level, _ in known], [pair for _, pair in known])


def interval_columns(name: str, estimate: Estimate | None) -> dict[str, float | None]:
    """Return the three columns of an estimate: its value, and the ends of its interval."""
    value, lower, upper = (
        (None, None, None) if estimate is None else (estimate.value, estimate.lower, estimate.upper)
    )
    return {name: value, f"{name}_lower": lower, f"{name}_upper": upper}


ARMS: Mapping[str, tuple[pa.DataType, Callable[[Run], Any]]] = {
    "run": (pa.string(), lambda run: run.name),
    "dataset": (pa.string(), lambda run: run.config.dataset),
    "data_fingerprint": (pa.string(), lambda run: run.data_fingerprint),
    "encoder": (pa.string(), lambda run: run.config.encoder),
    "loss": (pa.string(), lambda run: run.config.loss),
    "sampler": (pa.string(), lambda run: run.config.sampler),
    "variant": (pa.string(), lambda run: Variant.of(run.config).note(run.config.encoder)),
    "batch_size": (pa.int64(), lambda run: run.config.batch_size),
    "stratum_size": (pa.int64(), lambda run: Variant.of(run.config).stratum_size),
    "negatives": (pa.int64(), lambda run: Variant.of(run.config).negatives),
    "learning_rate": (pa.float64(), lambda run: run.config.learning_rate),
    "seed": (pa.int64(), lambda run: run.config.seed),
    "status": (pa.string(), lambda run: run.summary["status"]),
    "iterations": (pa.int64(), lambda run: run.summary["iterations"]),
    "epochs": (pa.float64(), lambda run: run.summary["epochs"]),
    "item_slots": (pa.float64(), lambda run: run.summary["item_slots"]),
    "iteration_seconds": (pa.float64(), lambda run: run.summary["full_iteration_seconds"]),
    "seconds_source": (pa.string(), lambda run: run.seconds_source),
    "smallest_probe_loss": (pa.float64(), lambda run: min(run.probes.losses, default=None)),
    "baseline_run": (pa.string(), lambda run: run.base and run.base.name),
    "target": (pa.float64(), lambda run: run.target),
    "reached": (
        pa.bool_(),
        lambda run: None if run.target is None else run.iterations_to_target is not None,
    ),
    "iterations_to_target": (pa.float64(), lambda run: run.iterations_to_target),
    "seconds_to_target": (pa.float64(), lambda run: run.seconds_to_target),
    "times_shorter": (pa.float64(), lambda run: run.shorter),
    "times_fewer": (pa.float64(), lambda run: run.fewer),
    "times_sooner": (pa.float64(), lambda run: run.sooner),
    "reported_epoch": (pa.float64(), lambda run: run.summary["reported_epoch"]),
    "test_recall_at_50": (pa.float64(), lambda run: run.summary["test_recall_at_50"]),
    "environment_key": (pa.string(), lambda run: run.environment["key"]),
}
"""Columns of the frame ``arms`` in docs/results.md: type, and value of a run."""


def arms_table(runs: Iterable[Run]) -> pa.Table:
    """Return the frame ``arms``: a row for each run, with the columns of :data:`ARMS`."""
    rows = [{name: value(run) for name, (_, value) in ARMS.items()} for run in runs]
    return pa.Table.from_pylist(rows, pa.schema([(name, kind) for name, (kind, _) in ARMS.items()]))


def probes_table(runs: Iterable[Run]) -> pa.Table:
    """Return the frame ``probes``: a row for each run and probe.

    The columns are the run, seconds of training by ``iteration_seconds`` of ``arms``, and those of
    ``curve.parquet``.
    """
    rows = [
        {
            "run": run.name,
            "seconds": row["iteration"] * run.seconds if run.is_timed else None,
            **row,
        }
        for run in runs
        for row in run.curve
    ]
    own = [pa.field("run", pa.string()), pa.field("seconds", pa.float64())]
    return pa.Table.from_pylist(rows, pa.schema([*own, *schemas.CURVE]))
