"""Rows of the speedup and the recall table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ncfbench.catalog import SAMPLERS, find_encoder, find_loss, find_sampler, serves
from ncfbench.config import RunConfig
from ncfbench.paper.printed import RECALL
from ncfbench.reporting.commands import run_command
from ncfbench.reporting.comparison import Comparison, arm_of
from ncfbench.reporting.convergence import why_untrained
from ncfbench.reporting.quality import standard_error
from ncfbench.reporting.tied import tied_recalls, tied_speedups
from ncfbench.runs.arms import Variant
from ncfbench.runs.folder import RunRecord, are_interleaved
from ncfbench.storage.schemas import CUTOFFS
from ncfbench.timing import seed_statistics
from ncfbench.timing import statistics as analysis

Row = dict[str, Any]
Pair = tuple[RunRecord, RunRecord]
"""A run and the baseline's run of the same seed."""


def speedup_rows(
    comparison: Comparison, *, allow_mixed: bool, locations: Mapping[str, str]
) -> list[Row]:
    """Return one row for each variant, and one for each valid sampler without a run.

    ``tied`` are the columns in which a row is the best of its baseline, or cannot be told from it.

    Args:
        allow_mixed: divide times of different environments too; ``same_environment`` marks them.
        locations: ``--data-dir`` and ``--runs-dir`` to repeat in commands.
    """
    rows, tied = [], tied_speedups(comparison)
    for variant in _ordered_variants(comparison):
        row = _identity(comparison, variant) | {
            "baseline": comparison.baseline_sampler,
            "same_environment": None,
            "interleaved": _is_interleaved(comparison, variant),
            "simulated": any(run.is_simulated for run in _runs_behind(comparison, variant)),
        }
        status, wanted = _obstacle(comparison, variant)
        if wanted is not None:
            row["command"] = _filling_command(comparison, *wanted, locations)
        if status:
            own = list(comparison.arms.get(variant, {}).values())
            row |= {"status": status, "runs": [run.name for run in own]}
            row |= {"seeds": len(own), **_means(own)} if own else {}
        else:
            is_baseline = variant == comparison.baseline(variant)
            pairs = comparison.pairs(variant)
            row |= _paired_values(pairs, is_baseline=is_baseline, allow_mixed=allow_mixed)
            row["tied"] = tied.get(variant, [])
        rows.append(row)
    return rows


def recall_rows(comparison: Comparison, *, locations: Mapping[str, str]) -> list[Row]:
    """Return one row for each variant, and one for each valid sampler without a run."""
    rows, tied = [], tied_recalls(comparison)
    for variant in _ordered_variants(comparison):
        runs = list(comparison.arms.get(variant, {}).values())
        row = _identity(comparison, variant) | {"runs": [run.name for run in runs]}
        if not runs:
            command = _filling_command(comparison, variant, comparison.seed, locations)
            rows.append(row | {"status": "missing", "command": command})
            continue
        row["seeds"] = len(runs)
        if lost := sum(map(_has_diverged, runs)):
            reason = f"{lost} of {len(runs)} seeds diverged"
            rows.append(row | {"status": "diverged", "reason": reason})
            continue
        reason = runs[-1].summary["recall_reason"]
        row |= {"status": "no recall" if reason else "measured", "reason": reason}
        row["tied"] = [RECALL] * (variant in tied)
        row["reported_epoch"] = _mean([run.summary["reported_epoch"] for run in runs])
        for name in (f"test_recall_at_{m}" for m in CUTOFFS):
            known = [run.summary[name] for run in runs if run.summary[name] is not None]
            is_known = bool(known) and len(known) == len(runs)
            row |= _interval(name, seed_statistics.mean(known) if is_known else None)
        summaries = [run.summary for run in runs]
        row[f"{RECALL}_chance"] = runs[-1].summary.get(f"{RECALL}_chance")
        row[f"{RECALL}_error"] = None if reason else standard_error(summaries, RECALL)
        rows.append(row)
    return rows


def _filling_command(
    comparison: Comparison, variant: Variant, seed: int, locations: Mapping[str, str]
) -> str | None:
    """Return the command that fills a cell; None for tuned arms, which only a sweep can train."""
    if comparison.config.tuned:
        return None
    return run_command(comparison.config, variant, seed, locations)


def _obstacle(comparison: Comparison, variant: Variant) -> tuple[str, tuple[Variant, int] | None]:
    """Return why a variant has no pair with times, and the variant and seed to run for one."""
    runs, base = comparison.arms.get(variant), comparison.baseline(variant)
    if not runs:
        return "missing", (variant, comparison.seed)
    if not all(map(_has_times, runs.values())):
        return "diverged" if any(map(_has_diverged, runs.values())) else "no times", None
    if base is None:
        sampler, loss = find_sampler(comparison.baseline_sampler), find_loss(comparison.config.loss)
        if comparison.config.objective_settings or not serves(sampler, loss):
            return "no baseline", None
        paper = find_encoder(comparison.config.encoder).negatives
        return "no baseline", (Variant(comparison.baseline_sampler, None, paper), min(runs))
    if not comparison.pairs(variant):
        return "no baseline of this seed", (base, min(runs))
    return "", None


def _paired_values(pairs: Sequence[Pair], *, is_baseline: bool, allow_mixed: bool) -> Row:
    """Return the status and numbers of a variant with pairs."""
    row: Row = {
        "runs": [run.name for run, _ in pairs],
        "baseline_runs": [baseline.name for _, baseline in pairs],
        "seeds": len(pairs),
        **_means([run for run, _ in pairs]),
    }
    diverged = any(_has_diverged(run) for pair in pairs for run in pair)
    if not all(_has_times(baseline) for _, baseline in pairs):
        return row | {"status": "diverged" if diverged else "no times"}
    same = all(run.environment["key"] == base.environment["key"] for run, base in pairs)
    may_divide = same or allow_mixed
    result = seed_statistics.over_seeds([(arm_of(run), arm_of(base)) for run, base in pairs])
    row["same_environment"] = same
    row["full_iteration_spread"] = max(_spread(run) for pair in pairs for run in pair)
    if may_divide:
        row |= _interval("per_iteration_speedup", result.per_iteration)
        row |= _interval("step_per_iteration_speedup", result.step_per_iteration)
    # Iterations have their times also where it is unknown how soon a loss is reached.
    if diverged:
        return row | {"status": "diverged"}
    if reason := why_untrained([base for _, base in pairs]):
        return row | {"status": "not trained", "reason": reason}
    reached = result.at_reference
    row |= {"reference_loss": _mean(result.reference_losses), "seeds_reached": reached.reached}
    if reached.reached == len(pairs):
        row["iterations_to_reference"] = _mean(result.iterations_to_reference)
        seconds = [
            value * run.summary["full_iteration_seconds"]
            for value, (run, _) in zip(result.iterations_to_reference, pairs, strict=True)
            if value is not None
        ]
        row["seconds_to_reference"] = _mean(seconds)
    row |= _interval("iterations_speedup", reached.iterations)
    row["iterations_speedup_at_most"] = reached.iterations_at_most
    if may_divide or is_baseline:
        row |= _interval("total_speedup", reached.total)
        row["total_speedup_at_most"] = reached.total_at_most
    if is_baseline:
        row["status"] = "baseline"
    elif may_divide:
        row["status"] = "reached" if reached.reached == len(pairs) else "not reached"
    else:
        row["status"] = "different environment"
    return row


def _ordered_variants(comparison: Comparison) -> list[Variant]:
    """Return the variants in the paper's order.

    A valid sampler of the paper without a run is there with the paper's settings.
    """
    loss = find_loss(comparison.config.loss)
    found = []
    for name in dict.fromkeys([*SAMPLERS, *sorted(variant.sampler for variant in comparison.arms)]):
        present = [variant for variant in comparison.arms if variant.sampler == name]
        found += sorted(present, key=_order)
        sampler = find_sampler(name)
        # The paper's samplers have the paper's objective.
        is_papers = sampler.in_paper and not comparison.config.objective_settings
        if not present and is_papers and serves(sampler, loss):
            strata = RunConfig.stratum_size if sampler.reads("stratum_size") else None
            paper = find_encoder(comparison.config.encoder).negatives
            found.append(Variant(name, strata, paper if sampler.reads("negatives") else None))
    return found


def _order(variant: Variant) -> tuple[str, int, int, int, str]:
    sizes = (variant.stratum_size or 0, variant.negatives or 0, variant.uniform_items or 0)
    return (variant.strata or "", *sizes, variant.share or "")


def _identity(comparison: Comparison, variant: Variant) -> Row:
    config = comparison.config
    return {
        "dataset": config.dataset,
        "encoder": config.encoder,
        "loss": config.loss,
        "sampler": variant.sampler,
        "variant": variant.note(config.encoder),
        "settings": comparison.title(),
        "data_fingerprint": comparison.data_fingerprint,
    }


def _is_interleaved(comparison: Comparison, variant: Variant) -> bool:
    """Return whether all runs of a variant were interleaved with the baseline's of their seeds."""
    pairs = comparison.pairs(variant)
    return bool(pairs) and all(are_interleaved(run, baseline) for run, baseline in pairs)


def _runs_behind(comparison: Comparison, variant: Variant) -> list[RunRecord]:
    """Return a variant's runs and its baseline's."""
    base = comparison.baseline(variant) if variant in comparison.arms else None
    arms = [comparison.arms.get(arm, {}) for arm in (variant, base) if arm is not None]
    return [run for runs in arms for run in runs.values()]


def _means(runs: Sequence[RunRecord]) -> Row:
    columns = ("full_iteration_seconds", "step_iteration_seconds", "item_slots")
    return {column: _mean([run.summary[column] for run in runs]) for column in columns}


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known and len(known) == len(values) else None


def _spread(run: RunRecord) -> float:
    """Return the spread of the times whose median is a run's ``full_iteration_seconds``."""
    own = [row for row in run.timing if row["environment_key"] == run.environment["key"]]
    return analysis.spread(own, "full") or 0.0


def _has_diverged(run: RunRecord) -> bool:
    return bool(run.summary["status"] == "diverged")


def _has_times(run: RunRecord) -> bool:
    return run.summary["full_iteration_seconds"] is not None


def _interval(name: str, estimate: seed_statistics.Estimate | None) -> Row:
    """Return the three columns of an estimate."""
    if estimate is None:
        return {name: None, f"{name}_lower": None, f"{name}_upper": None}
    return {name: estimate.value, f"{name}_lower": estimate.lower, f"{name}_upper": estimate.upper}
