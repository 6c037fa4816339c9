"""Speedups at every level of loss and recall, so that no single target decides."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from ncfbench.reporting.comparison import Comparison, arm_of
from ncfbench.runs.arms import Variant
from ncfbench.runs.folder import RunRecord
from ncfbench.timing import seed_statistics
from ncfbench.timing.statistics import Arm

TargetMeasure = Literal["probe_loss", "test_recall_at_50"]
TARGET_MEASURES: tuple[TargetMeasure, ...] = ("probe_loss", "test_recall_at_50")


@dataclass(frozen=True)
class Target:
    """A level of a measure, with the speedup of a variant in reaching it."""

    variant: Variant
    measure: TargetMeasure
    level: float
    speedup: seed_statistics.AtTarget


def sensitivity(
    comparison: Comparison, measure: TargetMeasure, *, allow_mixed: bool = False
) -> list[Target]:
    """Return every variant at every level, from the easiest to the hardest that any run reached.

    A loss level is reached where the probe first comes down to it, a recall level where test
    recall@50 first rises to it, both linear between evaluations. The levels are common to all
    variants and seeds. A seed is censored at a level that it does not reach, or that it has passed
    at its first evaluation (:class:`ncfbench.timing.seed_statistics.AtTarget`).

    Args:
        allow_mixed: also divide times of different environments.
    """
    pairs: dict[Variant, list[tuple[Arm, Arm]]] = {}
    for variant in comparison.arms:
        runs = comparison.pairs(variant)
        same = all(a.environment["key"] == b.environment["key"] for a, b in runs)
        timed = all(
            run.summary["full_iteration_seconds"] is not None for pair in runs for run in pair
        )
        if variant == comparison.baseline(variant) or not timed or not (same or allow_mixed):
            continue
        found = [(_arm(arm, measure), _arm(base, measure)) for arm, base in runs]
        if found and all(one.losses for pair in found for one in pair):
            pairs[variant] = found
    sign = -1 if measure == "test_recall_at_50" else 1
    levels = seed_statistics.levels(
        [one for found in pairs.values() for pair in found for one in pair]
    )
    return [
        Target(
            variant, measure, sign * level, seed_statistics.speedup_at([level] * len(found), found)
        )
        for variant, found in pairs.items()
        for level in levels
    ]


def sensitivity_rows(comparison: Comparison, *, allow_mixed: bool) -> list[dict[str, Any]]:
    """Return the curves of both measures as plain rows."""
    config = comparison.config
    result = []
    for measure in TARGET_MEASURES:
        for target in sensitivity(comparison, measure, allow_mixed=allow_mixed):
            found = target.speedup
            row: dict[str, Any] = {
                "dataset": config.dataset,
                "encoder": config.encoder,
                "loss": config.loss,
                "sampler": target.variant.sampler,
                "variant": target.variant.note(config.encoder),
                "settings": comparison.title(),
                "measure": measure,
                "level": target.level,
                "seeds": found.seeds,
                "seeds_reached": found.reached,
                "baseline_seeds_reached": found.baseline_reached,
            }
            estimates: Mapping[str, seed_statistics.Estimate | None] = {
                "iterations": found.iterations,
                "total": found.total,
            }
            for name, estimate in estimates.items():
                row[f"{name}_speedup"] = estimate.value if estimate else None
                row[f"{name}_speedup_lower"] = estimate.lower if estimate else None
                row[f"{name}_speedup_upper"] = estimate.upper if estimate else None
            row |= {
                "iterations_speedup_at_most": found.iterations_at_most,
                "iterations_speedup_at_least": found.iterations_at_least,
                "total_speedup_at_most": found.total_at_most,
                "total_speedup_at_least": found.total_at_least,
            }
            result.append(row)
    return result


def _arm(run: RunRecord, measure: TargetMeasure) -> Arm:
    """Return a run's evaluated epochs in a measure that falls: recall has its sign changed."""
    if measure == "probe_loss":
        return arm_of(run)
    evaluated: Sequence[Mapping[str, Any]] = [
        row for row in run.curve if row.get(measure) is not None
    ]
    return Arm(
        iterations=[row["iteration"] for row in evaluated],
        losses=[-row[measure] for row in evaluated],
        full_iteration_seconds=run.summary["full_iteration_seconds"],
    )
