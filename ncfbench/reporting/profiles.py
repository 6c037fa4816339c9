"""Speedups with the times of a profile, where the runs' own are not to be trusted.

How many iterations a run needs does not depend on what ran beside it; how long they take does. A
profile measures their length with all samplers in turn, on a quiet machine. So the total speedup of
disturbed runs, and of computations that they did not use, is the ratio of the runs' iterations
times that of the profile's.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ncfbench.catalog import all_settings
from ncfbench.reporting.frames import Run
from ncfbench.reporting.rows import Comparison, log_ratios
from ncfbench.runs.arms import Variant, shared_settings
from ncfbench.runs.labels import unusual_settings
from ncfbench.statistics import ranking
from ncfbench.statistics.intervals import Estimate, estimate_of, interval_columns, product
from ncfbench.statistics.speedups import ROUNDS_OF_INTERVALS

Row = Mapping[str, Any]
PROFILES = ("settings", "data_fingerprint", "encoder", "loss", "batch_size", "environment_key")
"""Columns of the cost model that tell profiles apart."""
TOTALS = ("total_speedup", "total_speedup_at_most")
NAMED = (
    "dataset",
    "encoder",
    "loss",
    "batch_size",
    "negatives",
    "sampler",
    "stratum_size",
    "strata",
)
"""Settings that stand in columns of their own."""


def by_profile(rows: Iterable[Row]) -> list[dict[str, Row]]:
    """Return the rows of each profile of a cost model, by sampler."""
    profiles: dict[tuple[Any, ...], dict[str, Row]] = {}
    for row in rows:
        profiles.setdefault(tuple(row[name] for name in PROFILES), {})[row["sampler"]] = row
    return list(profiles.values())


def with_profile_times(comparisons: Sequence[Comparison], rows: Sequence[Row]) -> list[Comparison]:
    """Return comparisons with the times of each profile that shares their data and the settings of
    their objective; of one that was repeated the last one counts. How its result was computed
    stands beside its rounds.

    Args:
        rows: of the cost model.
    """
    pairs = [(_join(each, profile), each) for profile in by_profile(rows) for each in comparisons]
    return [*{(each.runs[0].name, own.timed_by): own for own, each in pairs if own}.values()]


def _join(comparison: Comparison, profile: Mapping[str, Row]) -> Comparison | None:
    """Return a comparison with the times of a profile; None where they do not belong together."""
    config, first = comparison.config, comparison.runs[0]
    base, rows = profile.get(first.baseline_sampler), []
    # The profile's ratios are over its own baseline, whatever the runs are measured against.
    if base is None or base["baseline"] != first.baseline_sampler:
        return None
    unusual, shared = unusual_settings(config), shared_settings(config)
    objective, _ = _split(f"{name}={value}" for name, value in unusual.items() if name in shared)
    profiled_objective, computation = _split((base["unusual_settings"] or "").split(", "))
    alike = all(getattr(config, name) == base[name] for name in ("encoder", "loss", "batch_size"))
    alike &= first.data_fingerprint == base["data_fingerprint"]
    if not alike or objective != profiled_objective:
        return None
    variants = {}
    for name, row in profile.items():
        strata = "user" if row["strata"] == "user" else None
        variant = Variant(name, row["stratum_size"], row["negatives"], strata)
        variants[name] = variant.note(config.encoder)
    # The runs' ratios are to the baseline of the profile's k.
    divided = {
        run.name
        for run in comparison.runs
        if run.baseline and run.baseline.note(config.encoder) == variants[base["sampler"]]
    }
    for row in comparison.speedups:
        times = profile.get(row["sampler"], {})
        is_of_arm = row["variant"] == variants.get(row["sampler"]) and divided & {*row["runs"]}
        if is_of_arm and times["measured_full_speedup"] is not None:
            rows.append(_timed(row, times))
    for tied in _tied_totals(rows, comparison.runs):
        tied["tied"].append("total_speedup")
    totals = [row[name] for row in rows if row["status"] != "baseline" for name in TOTALS]
    if len(rows) < 2 or totals.count(None) == len(totals):
        return None
    words = ", ".join(filter(None, (f"profile of {base['rounds']} rounds", computation)))
    return replace(comparison, speedups=rows, timed_by=words)


def _tied_totals(rows: Sequence[dict[str, Any]], runs: Sequence[Run]) -> list[dict[str, Any]]:
    """Return the rows whose total, by the iterations of each seed and the times of the profile,
    cannot be told from the largest.
    """
    known: dict[int, dict[int, float]] = {}
    for number, row in enumerate(rows):
        own, length = {*row["runs"]}, math.log(row["per_iteration_speedup"])
        logs = log_ratios([run for run in runs if run.name in own], "iterations_speedup")
        known |= {number: {seed: log + length for seed, log in logs.items()}} if logs else {}
    return [rows[number] for number in (ranking.tied_ratios(known).tied if known else ())]


def _timed(row: Row, profiled: Row) -> dict[str, Any]:
    """Return a row of the speedup table with the times of the profile's row of its arm."""
    lower, upper = profiled["lower_full_speedup"], profiled["upper_full_speedup"]
    if profiled["rounds"] < ROUNDS_OF_INTERVALS:
        lower = upper = None
    shorter = Estimate(profiled["measured_full_speedup"], lower, upper, profiled["rounds"])
    fewer, at_most = estimate_of(row, "iterations_speedup"), row.get("iterations_speedup_at_most")
    has_iterations = fewer is not None or at_most is not None
    status = ("reached" if fewer else "not reached") if has_iterations else row["status"]
    return {
        **row,
        "status": "baseline" if row["status"] == "baseline" else status,
        "same_environment": True,
        "interleaved": True,
        "full_iteration_spread": None,
        "full_iteration_seconds": profiled["measured_full_iteration_seconds"],
        **dict.fromkeys(("step_iteration_seconds", "step_per_iteration_speedup")),
        "seconds_to_reference": None,
        **interval_columns("per_iteration_speedup", shorter),
        **interval_columns("total_speedup", fewer and product(fewer, shorter)),
        "total_speedup_at_most": None if at_most is None else at_most * shorter.value,
        "tied": [column for column in row.get("tied", ()) if column == "iterations_speedup"],
    }


def _split(settings: Iterable[str]) -> tuple[dict[str, str], str]:
    """Return the settings that change the objective by name, and those that change only how it is
    computed as text; without those of :data:`NAMED` and those that take no time.
    """
    words = dict(word.split("=", 1) for word in settings if "=" in word)
    declared, objective, computation = all_settings(), dict[str, str](), []
    for name, value in words.items():
        changes = declared[name].changes if name in declared else "both"
        if name not in NAMED and changes == "both":
            objective[name] = value
        elif name not in NAMED and changes == "time":
            computation.append(f"{name}={value}")
    return objective, ", ".join(computation)
