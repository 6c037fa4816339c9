"""Rows of the speedup and the recall table: the frame ``arms``, aggregated over seeds.

Arms are compared over the seeds that both have, from paired differences. With one common seed,
speedups that are nearer than the factor of :data:`ncfbench.statistics.intervals.LOSS_SPREAD` count
as tied, and recalls are compared user by user and item by item, where the runs kept their
evaluations.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ncfbench.catalog import SAMPLERS
from ncfbench.config import RunConfig
from ncfbench.paper.printed import RECALL
from ncfbench.reporting.frames import Arms, Run, by_variant, grouped, over_seeds, paired
from ncfbench.reporting.quality import standard_error
from ncfbench.runs.arms import Variant
from ncfbench.runs.convergence import why_no_ratio
from ncfbench.runs.folder import are_interleaved
from ncfbench.runs.labels import unusual_label
from ncfbench.runs.quality import difference
from ncfbench.statistics import intervals, ranking, speedups
from ncfbench.statistics.intervals import Difference
from ncfbench.storage import schemas

Row = dict[str, Any]
RATIOS = {"iterations_speedup": "fewer", "total_speedup": "sooner"}
"""Columns of the speedup table that the seed decides; the time of an iteration is the machine's."""


@dataclass(frozen=True)
class Comparison:
    """Runs that compare, and their rows of the speedup and of the recall table.

    Attributes:
        timed_by: the profile whose times the speedups have; empty where they are the runs' own.
    """

    runs: Sequence[Run]
    speedups: Sequence[Row]
    recalls: Sequence[Row]
    timed_by: str = ""

    @property
    def config(self) -> RunConfig:
        """Settings of one of the runs, which share all but those of their arms."""
        return self.runs[0].config

    @property
    def data(self) -> tuple[str, str]:
        """Name and fingerprint of the data set."""
        return self.config.dataset, self.runs[0].data_fingerprint


def compare(groups: Iterable[Sequence[Run]]) -> list[Comparison]:
    """Return the comparison of each group of runs."""
    return [Comparison(runs, speedup_rows(runs), recall_rows(runs)) for runs in groups]


def speedup_rows(runs: Sequence[Run]) -> list[Row]:
    """Return one row for each arm of a group.

    ``tied`` are the columns in which a row is the best of its baseline, or cannot be told from it.
    """
    arms, first = by_variant(runs), runs[0]
    rows, tied = [], tied_speedups(arms)
    for variant in sorted(arms, key=_order):
        of_arm = list(arms[variant].values())
        base = of_arm[0].baseline
        bases = [] if base is None else list(arms[base].values())
        pairs = paired(of_arm)
        row = dict.fromkeys(schemas.SPEEDUP.names) | _identity(first, variant)
        row |= {
            "baseline": first.baseline_sampler,
            "baseline_variant": base and base.note(first.config.encoder),
            "tied": [],
            "interleaved": bool(pairs) and all(are_interleaved(*pair) for pair in pairs),
            "simulated": any(run.is_simulated for run in [*of_arm, *bases]),
        }
        if status := _obstacle(arms, variant):
            row |= {"status": status, "runs": [run.name for run in of_arm]}
            row |= {"seeds": len(of_arm), **_means(of_arm)}
        else:
            row |= _paired_values(pairs, is_baseline=variant == base)
            known = (column for column in tied.get(variant, ()) if row.get(column) is not None)
            row["tied"] = [*known]
        rows.append(row)
    return rows


def recall_rows(runs: Sequence[Run]) -> list[Row]:
    """Return one row for each arm of a group."""
    arms, first = by_variant(runs), runs[0]
    rows, tied = [], tied_recalls(arms)
    for variant in sorted(arms, key=_order):
        of_arm = list(arms[variant].values())
        row = dict.fromkeys(schemas.RECALL.names) | _identity(first, variant)
        row |= {"runs": [run.name for run in of_arm], "seeds": len(of_arm), "tied": []}
        if lost := sum(run.has_diverged for run in of_arm):
            reason = f"{lost} of {len(of_arm)} seeds diverged"
            rows.append(row | {"status": "diverged", "reason": reason})
            continue
        summaries = [run.summary for run in of_arm]
        reasons = [*filter(None, (summary["recall_reason"] for summary in summaries)), None]
        row |= {"status": "no recall" if reasons[0] else "measured", "reason": reasons[0]}
        row["tied"] = [RECALL] * (variant in tied)
        row["reported_epoch"] = _mean([summary["reported_epoch"] for summary in summaries])
        for name in (f"test_recall_at_{m}" for m in schemas.CUTOFFS):
            values = [summary[name] for summary in summaries]
            estimate = None if None in values else intervals.mean(values)
            row |= intervals.interval_columns(name, estimate)
        row[f"{RECALL}_chance"] = summaries[-1].get(f"{RECALL}_chance")
        row[f"{RECALL}_error"] = None if reasons[0] else standard_error(summaries, RECALL)
        for name in (f"{RECALL}_new_items", f"{RECALL}_known_items"):
            row[name] = _mean([summary.get(name) for summary in summaries])
            row[f"{name}_error"] = standard_error(summaries, name)
        rows.append(row)
    return rows


def tied_speedups(arms: Arms) -> dict[Variant, list[str]]:
    """Return the columns of :data:`RATIOS` in which each arm is tied with the best of those that
    have its baseline, the best included.
    """
    groups = grouped(arms, lambda variant: next(iter(arms[variant].values())).baseline)
    tied: dict[Variant, list[str]] = {}
    for variants in groups.values():
        for column in RATIOS:
            logs = {variant: log_ratios(arms[variant].values(), column) for variant in variants}
            known = {variant: by_seed for variant, by_seed in logs.items() if by_seed}
            for variant in ranking.tied_ratios(known).tied if known else ():
                tied.setdefault(variant, []).append(column)
    return tied


def log_ratios(runs: Iterable[Run], column: str) -> dict[int, float]:
    """Return the logarithm of a ratio of :data:`RATIOS` of an arm by seed; none if some seed has no
    ratio.
    """
    logs = {}
    for run, base in paired(runs):
        ratio = getattr(run, RATIOS[column]) if run.is_timed and base.is_timed else None
        if ratio is None or run.has_diverged or base.has_diverged:
            return {}
        logs[run.config.seed] = math.log(ratio)
    return logs


def tied_recalls(arms: Arms) -> set[Variant]:
    """Return the arms whose reported recall@50 cannot be told from the largest, with that."""
    means = {}
    for variant, runs in arms.items():
        values = [run.summary[RECALL] for run in runs.values()]
        # Of an arm with a diverged seed no recall is shown.
        if None not in values and not any(run.has_diverged for run in runs.values()):
            means[variant] = math.fsum(values) / len(values)
    if not means:
        return set()
    return ranking.rank(means, lambda one, other: recall_difference(arms[one], arms[other])).tied


def recall_difference(runs: Mapping[int, Run], others: Mapping[int, Run]) -> Difference | None:
    """Return how much the reported recall@50 of an arm is above another's, from the seeds that both
    have, and over users and items where they have one in common; None where neither tells.

    Args:
        runs, others: by seed.
    """
    seeds = sorted(runs.keys() & others.keys())
    own, theirs = ([arm[seed].summary[RECALL] for seed in seeds] for arm in (runs, others))
    if not seeds or None in own or None in theirs:
        return None
    apart = intervals.paired(own, theirs)
    if apart is not None:
        return apart
    both = [arm[seeds[0]] for arm in (runs, others)]
    one, other = (run.evaluation(run.reported_iteration) for run in both)
    return difference(one, other) if one and other else None


def _obstacle(arms: Arms, variant: Variant) -> str:
    """Return why an arm has no pair with times; nothing where it has one."""
    runs = arms[variant]
    if not all(run.is_timed for run in runs.values()):
        return "diverged" if any(run.has_diverged for run in runs.values()) else "no times"
    base = next(iter(runs.values())).baseline
    if base is None:
        return "no baseline"
    return "no baseline of this seed" if runs.keys().isdisjoint(arms[base]) else ""


def _paired_values(pairs: Sequence[tuple[Run, Run]], *, is_baseline: bool) -> Row:
    runs, bases = zip(*pairs, strict=True)
    row: Row = {"runs": [run.name for run in runs], "seeds": len(runs), **_means(runs)}
    row["baseline_runs"] = [base.name for base in bases]
    obstacle: Row = {}
    if any(run.has_diverged for run in runs):
        obstacle = {"status": "diverged"}
    elif reason := why_no_ratio(bases):
        obstacle = {"status": "not trained" if is_baseline else "no baseline", "reason": reason}
    if not all(base.is_timed for base in bases):
        return row | obstacle
    keys = [run.environment["key"] for run in runs]
    row["same_environment"] = keys == [base.environment["key"] for base in bases]
    may_divide = row["same_environment"]
    row["full_iteration_spread"] = max(_spread(run) for run in [*runs, *bases])
    if may_divide:
        shorter = [base.seconds / run.seconds for run, base in pairs]
        row |= intervals.interval_columns("per_iteration_speedup", intervals.geometric(shorter))
        steps = [
            (run.summary["step_iteration_seconds"], base.summary["step_iteration_seconds"])
            for run, base in pairs
        ]
        is_known = all(all(pair) for pair in steps)
        step = intervals.geometric([b / a for a, b in steps]) if is_known else None
        row |= intervals.interval_columns("step_per_iteration_speedup", step)
    # Iterations have their times also where it is unknown how soon a loss is reached.
    if obstacle:
        return row | obstacle
    speedup = over_seeds(runs)
    has_reached = speedup.reached == len(runs)
    row["reference_loss"] = _mean([run.target for run in runs])
    row["seeds_reached"] = speedup.reached
    if has_reached:
        row["iterations_to_reference"] = _mean([run.iterations_to_target for run in runs])
        row["seconds_to_reference"] = _mean([run.seconds_to_target for run in runs])
    row |= intervals.interval_columns("iterations_speedup", speedup.iterations)
    row["iterations_speedup_at_most"] = speedup.iterations_at_most
    if may_divide or is_baseline:
        row |= intervals.interval_columns("total_speedup", speedup.total)
        row["total_speedup_at_most"] = speedup.total_at_most
    if is_baseline:
        row["status"] = "baseline"
    elif may_divide:
        row["status"] = "reached" if has_reached else "not reached"
    else:
        row["status"] = "different environment"
    return row


def _order(variant: Variant) -> tuple[Any, ...]:
    """Return the key of an arm in the paper's order."""
    known = [*SAMPLERS]
    place = known.index(variant.sampler) if variant.sampler in known else len(known)
    sizes = (variant.stratum_size or 0, variant.negatives or 0, variant.uniform_items or 0)
    return (place, variant.sampler, variant.strata or "", *sizes)


def _identity(run: Run, variant: Variant) -> Row:
    config = run.config
    return {
        "dataset": config.dataset,
        "encoder": config.encoder,
        "loss": config.loss,
        "sampler": variant.sampler,
        "variant": variant.note(config.encoder),
        "settings": unusual_label(run),
        "data_fingerprint": run.data_fingerprint,
    }


def _means(runs: Sequence[Run]) -> Row:
    columns = ("full_iteration_seconds", "step_iteration_seconds", "item_slots")
    return {column: _mean([run.summary[column] for run in runs]) for column in columns}


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known and len(known) == len(values) else None


def _spread(run: Run) -> float:
    """Return the spread of the times whose median is a run's ``full_iteration_seconds``."""
    blocks = [row for row in run.timing if row["environment_key"] == run.environment["key"]]
    return speedups.spread(blocks, "full") or 0.0
