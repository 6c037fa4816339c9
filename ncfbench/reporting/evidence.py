"""Evidence on the paper's claims, from the compared runs and the profiles beside them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ncfbench.paper.measures import STRATA, Evidence, Row
from ncfbench.paper.printed import RECALL
from ncfbench.reporting.frames import Run, by_variant
from ncfbench.reporting.labels import unusual_label
from ncfbench.reporting.profiles import ProfiledComparison, by_profile
from ncfbench.reporting.rows import Comparison
from ncfbench.reporting.tied import RATIOS, log_ratios, recall_difference
from ncfbench.runs.arms import shared_settings
from ncfbench.timing.speedups import BUSY_SPREAD, ROUNDS_OF_INTERVALS


def find_evidence(
    comparisons: Iterable[Comparison],
    beside: Mapping[str, Sequence[Row]],
    profiled: Sequence[ProfiledComparison],
) -> list[Evidence]:
    """Return the evidence of each comparison, and of profiles that have enough rounds for an
    interval: by themselves, and for the times of runs.

    Args:
        beside: tables beside the runs, by name.
    """
    arms = {each.runs[0].name: arm_rows(each.runs, each.speedups) for each in comparisons}
    known, audits = list(arms.values()), beside.get("audit", ())
    found = [Evidence(own, comparisons=known, audits=audits) for own in known]
    for profile in by_profile(beside.get("costmodel", ())):
        strata = profile.get(STRATA)
        if strata and strata["baseline"] in profile and strata["rounds"] >= ROUNDS_OF_INTERVALS:
            rows = [_profile_row(row) for row in profile.values()]
            found.append(Evidence(rows, ["shorter-iterations"], by_profile=True))
    for each in profiled:
        if each.rounds >= ROUNDS_OF_INTERVALS:
            settings = ", ".join(filter(None, (unusual_label(each.runs[0]), each.computation)))
            lengths = {(row["sampler"], row["variant"]): row["per_iteration"] for row in each.rows}
            rows = [
                row
                | {"settings": settings, "length": lengths.get((row["sampler"], row["variant"]))}
                for row in arms[each.runs[0].name]
            ]
            found.append(Evidence(rows, ["soonest"], by_profile=True))
    return found


def _profile_row(row: Row) -> dict[str, Any]:
    return {
        **row,
        "variant": "",
        "settings": row["unusual_settings"] or "",
        "per_iteration_speedup": row["measured_full_speedup"],
        "per_iteration_speedup_lower": row["lower_full_speedup"],
        "per_iteration_speedup_upper": row["upper_full_speedup"],
        "seeds": row["rounds"],
        "item_slots": row["distinct_items"],
        "is_busy": False,
    }


def arm_rows(runs: Sequence[Run], speedups: Sequence[Row]) -> list[dict[str, Any]]:
    """Return the speedup table's row of each arm of a group, with what claims need of its runs.

    ``curves``, ``recalls`` and ``slots`` (items of a batch) are by seed, as are the logarithms
    ``iterations_speedup_logs`` and ``total_speedup_logs``; ``recall_difference`` is over the
    baseline.
    """
    arms, config = by_variant(runs), runs[0].config
    by_arm = {(row["sampler"], row["variant"]): row for row in speedups}
    main = {arm.sampler: arm for arm in arms if not arm.note(config.encoder)}
    base = main.get(runs[0].baseline_sampler)
    common = {
        "coupling": config.coupling,
        "coupling_weight": config.coupling_weight,
        "other_settings": {
            name: str(value)
            for name, value in shared_settings(config).items()
            if name not in ("coupling", "coupling_weight")
        },
    }
    rows = []
    for arm, own in arms.items():
        row = dict(by_arm[arm.sampler, arm.note(config.encoder)]) | common
        for measure in RATIOS:
            row[f"{measure}_logs"] = log_ratios(own.values(), measure)
        row["arm"] = arm
        row["is_busy"] = (row.get("full_iteration_spread") or 0.0) >= BUSY_SPREAD
        row["curves"] = {seed: run.probes for seed, run in own.items()}
        row["slots"] = {seed: run.summary["item_slots"] or 0.0 for seed, run in own.items()}
        row["recalls"] = {seed: run.summary[RECALL] for seed, run in own.items()}
        if base is not None and not row["variant"]:
            row["recall_difference"] = recall_difference(own, arms[base])
        rows.append(row)
    return rows
