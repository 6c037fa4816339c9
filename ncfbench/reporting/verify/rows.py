"""Expected rows of ``speedup.parquet`` and ``recall.parquet``, from the runs alone."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ncfbench.catalog import (
    baseline_sampler,
    find_encoder,
)
from ncfbench.config import revisions_of
from ncfbench.reporting.verify.runs import Run, unusual_settings
from ncfbench.reporting.verify.statistics import Floats, mean, ratio_interval, t_interval
from ncfbench.runs.arms import Variant, shared_settings
from ncfbench.runs.folder import are_interleaved
from ncfbench.storage import schemas

KEY = ("dataset", "encoder", "loss", "sampler", "variant", "settings", "data_fingerprint")
"""Columns that name a row; each value stands once in a table."""
Key = tuple[str, ...]
Pairs = Sequence[tuple[Run, Run]]
Values = dict[str, Any]
"""Values of a row by column; NaN where a number is missing."""


@dataclass(frozen=True)
class Cell:
    """Runs by seed of a row; None for a baseline that no run has."""

    baseline: str
    runs: Mapping[int, Run]
    baselines: Mapping[int, Run] | None = None

    @property
    def pairs(self) -> Pairs:
        """Runs paired with the baseline's run of the same seed."""
        bases = self.baselines or {}
        return [(self.runs[seed], bases[seed]) for seed in sorted(self.runs) if seed in bases]

    @property
    def is_of_one_environment(self) -> bool:
        """True if times may be divided."""
        return all(run.environment["key"] == base.environment["key"] for run, base in self.pairs)


def newest(runs: Sequence[Run]) -> list[Run]:
    """Return the finished and diverged runs, the newest of each arm and seed."""
    found = {}
    for run in sorted(runs, key=lambda run: (str(run.environment.get("time")), run.name)):
        if run.is_over:
            found[run.compared_by(), run.variant, run.seed] = run
    return list(found.values())


def cells(runs: Sequence[Run]) -> dict[Key, Cell]:
    """Return every row that the tables must have; unfinished runs are in none."""
    comparisons: dict[str, dict[Variant, dict[int, Run]]] = {}
    for run in newest(runs):
        comparisons.setdefault(run.compared_by(), {}).setdefault(run.variant, {})[run.seed] = run
    found = {}
    for arms in comparisons.values():
        some = next(run for own in arms.values() for run in own.values())
        loss, usual = some.config.loss, find_encoder(some.config.encoder).negatives
        sampler = baseline_sampler(loss)
        by_k = {arm.negatives: own for arm, own in arms.items() if arm.sampler == sampler}
        only = next(iter(by_k.values())) if len(by_k) == 1 else None
        for arm, own in arms.items():
            bases = by_k.get(arm.negatives, by_k.get(usual, only))
            found[_key(some, arm.sampler, arm.note(some.config.encoder))] = Cell(
                sampler, own, bases
            )
    return found


def _key(some: Run, sampler: str, variant: str) -> Key:
    config = some.config
    shared = shared_settings(config).keys() - {"dataset", "encoder", "loss"}
    unusual = [f"{name}={of}" for name, of in unusual_settings(config).items() if name in shared]
    own, present = some.record.revisions, revisions_of(config)
    differing = {kind for kind in {*own, *present} if own.get(kind, 1) != present.get(kind, 1)}
    unusual += [f"{kind} revision {own.get(kind, 1)}" for kind in sorted(differing)]
    names = (config.dataset, config.encoder, config.loss, sampler, variant, ", ".join(unusual))
    return (*names, some.record.data_fingerprint)


def recall_row(cell: Cell) -> Values:
    """Return the values of a row of the recall table."""
    own, values = list(cell.runs.values()), _unknown(schemas.RECALL)
    values["runs"] = [run.name for run in own]
    values["seeds"] = len(own)
    if any(run.has_diverged for run in own):
        return values | {"status": "diverged"}
    for column in ("reported_epoch", *(f"test_recall_at_{m}" for m in schemas.CUTOFFS)):
        of_seeds = np.array([run.reported[column] for run in own], float)
        values[column] = float(of_seeds.mean())
        if column != "reported_epoch" and len(own) > 1:
            values[f"{column}_lower"], values[f"{column}_upper"] = t_interval(of_seeds)
    has_none = any(run.record.summary["recall_reason"] for run in own)
    return values | {"status": "no recall" if has_none else "measured"}


def speedup_row(cell: Cell) -> Values:
    """Return the values of a row of the speedup table."""
    own, pairs, values = list(cell.runs.values()), cell.pairs, _unknown(schemas.SPEEDUP)
    bases = (cell.baselines or {}).values()
    values |= {
        "baseline": cell.baseline,
        "interleaved": bool(pairs) and all(are_interleaved(a.record, b.record) for a, b in pairs),
        "simulated": any(run.record.is_simulated for run in [*own, *bases]),
        "same_environment": None,
    }
    if any(math.isnan(run.full) for run in own):
        pairs, status = [], "diverged" if any(run.has_diverged for run in own) else "no times"
    elif not pairs:
        status = "no baseline" if cell.baselines is None else "no baseline of this seed"
    elif any(math.isnan(base.full) for _, base in pairs):
        status = "diverged" if any(run.has_diverged for run, _ in pairs) else "no baseline"
    else:
        values["same_environment"] = cell.is_of_one_environment
        values["full_iteration_spread"] = max(run.spread for pair in pairs for run in pair)
        status = _compare(pairs, values, is_timed=cell.is_of_one_environment)
        if cell.runs is cell.baselines and status != "diverged":
            status = "not trained" if status == "no baseline" else "baseline"
    if counted := [run for run, _ in pairs] or own:
        values["seeds"] = len(counted)
        values["full_iteration_seconds"] = mean(run.full for run in counted)
        values["step_iteration_seconds"] = mean(run.step for run in counted)
        values["item_slots"] = mean(run.item_slots for run in counted)
    names = {"runs": counted, "baseline_runs": [base for _, base in pairs]}
    listed = {column: [run.name for run in runs] for column, runs in names.items()}
    return values | listed | {"status": status}


def _compare(pairs: Pairs, values: Values, *, is_timed: bool) -> str:
    """Add the speedups of runs that have times; return the status of an arm."""
    if is_timed:
        full, step = (
            np.array([getattr(base, name) / getattr(run, name) for run, base in pairs])
            for name in ("full", "step")
        )
        values |= ratios("per_iteration_speedup", full) | ratios("step_per_iteration_speedup", step)
    if any(run.has_diverged for run, _ in pairs):
        return "diverged"  # the seeds that did not diverge would flatter it
    if not all(base.has_trained and not base.has_diverged for _, base in pairs):
        return "no baseline"
    iterations, by_iterations, by_seconds = race(pairs)
    missed = int(np.isnan(iterations).sum())
    values |= {
        "reference_loss": mean(base.lowest for _, base in pairs),
        "seeds_reached": len(pairs) - missed,
        "iterations_to_reference": mean(iterations),
        "seconds_to_reference": mean(iterations * [run.full for run, _ in pairs]),
    }
    values |= ratios("iterations_speedup", by_iterations, is_bound=missed > 0)
    if not is_timed:
        return "different environment"
    values |= ratios("total_speedup", by_seconds, is_bound=missed > 0)
    return "not reached" if missed else "reached"


def race(pairs: Pairs) -> tuple[Floats, Floats, Floats]:
    """Return, for each seed, the arm's iterations to the smallest loss of its baseline, NaN if it
    never comes down to it, and how many times fewer iterations and seconds these are. Where it does
    not arrive, its last iteration stands in: the ratio is smaller than that.
    """
    own = np.array([run.iterations_to(base.lowest) for run, base in pairs])
    last = np.array([run.points[-1][0] for run, _ in pairs])
    theirs = np.array([base.iterations_to(base.lowest) for _, base in pairs])
    needed = np.where(np.isnan(own), last, own)
    # An arm that begins at the target has no ratio.
    fewer = np.where(theirs > 0, theirs, np.nan) / np.where(needed > 0, needed, np.nan)
    return own, fewer, fewer * [base.full / run.full for run, base in pairs]


def ratios(column: str, values: Floats, *, is_bound: bool = False) -> Values:
    """Return the geometric mean of a ratio of each seed, and its interval, by column.

    Args:
        is_bound: the ratio is at most this.
    """
    centre = float(np.exp(np.log(values).mean()))
    if is_bound:
        return {f"{column}_at_most": centre}
    lower, upper = ratio_interval(values) if len(values) > 1 else (math.nan, math.nan)
    return {column: centre, f"{column}_lower": lower, f"{column}_upper": upper}


def _unknown(schema: Any) -> Values:
    numbers = [field.name for field in schema if str(field.type) in ("double", "int64")]
    return dict.fromkeys(numbers, math.nan)
