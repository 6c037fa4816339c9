"""Evidence on the paper's claims, from the compared runs and the profiles beside them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from ncfbench.paper.measures import Evidence, Row
from ncfbench.paper.printed import RECALL
from ncfbench.reporting.frames import Run, by_variant
from ncfbench.reporting.labels import unusual_label
from ncfbench.reporting.profiles import ProfiledComparison
from ncfbench.reporting.rows import Comparison
from ncfbench.reporting.tied import RATIOS, log_ratios, recall_difference
from ncfbench.timing.speedups import BUSY_SPREAD, ROUNDS_OF_INTERVALS


def find_evidence(
    comparisons: Iterable[Comparison],
    profiled: Sequence[ProfiledComparison],
) -> list[Evidence]:
    """Return the evidence of each comparison, and of each with the times of a profile that has
    enough rounds for an interval.
    """
    arms = {each.runs[0].name: arm_rows(each.runs, each.speedups) for each in comparisons}
    found = [Evidence(own) for own in arms.values()]
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


def arm_rows(runs: Sequence[Run], speedups: Sequence[Row]) -> list[dict[str, Any]]:
    """Return the speedup table's row of each arm of a group, with what claims need of its runs.

    ``recalls`` are by seed, as are the logarithms ``iterations_speedup_logs`` and
    ``total_speedup_logs``; ``recall_difference`` is over the
    baseline.
    """
    arms, config = by_variant(runs), runs[0].config
    by_arm = {(row["sampler"], row["variant"]): row for row in speedups}
    main = {arm.sampler: arm for arm in arms if not arm.note(config.encoder)}
    base = main.get(runs[0].baseline_sampler)
    rows = []
    for arm, own in arms.items():
        row = dict(by_arm[arm.sampler, arm.note(config.encoder)])
        for measure in RATIOS:
            row[f"{measure}_logs"] = log_ratios(own.values(), measure)
        row["is_busy"] = (row.get("full_iteration_spread") or 0.0) >= BUSY_SPREAD
        row["recalls"] = {seed: run.summary[RECALL] for seed, run in own.items()}
        if base is not None and not row["variant"]:
            row["recall_difference"] = recall_difference(own, arms[base])
        rows.append(row)
    return rows
