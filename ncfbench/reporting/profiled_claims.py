"""The claim on the length of an iteration, judged by profiles: they reach encoders without runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from ncfbench.registry import find_sampler
from ncfbench.reporting.claims import SHORTER, STRATA, Judged, judge_shorter
from ncfbench.reporting.profiled_speedups import by_profile
from ncfbench.timing.seed_statistics import Estimate
from ncfbench.timing.statistics import ROUNDS_OF_INTERVALS

Row = Mapping[str, Any]


def judge_profiles(rows: Sequence[Row]) -> list[Judged]:
    """Return a verdict for each profile of the baseline and of Stratified Sampling that has enough
    rounds for an interval.

    Args:
        rows: of the cost model.
    """
    judged = []
    for own in by_profile(rows):
        strata = own.get(STRATA)
        base = own.get(strata["baseline"]) if strata else None
        if strata is None or base is None or strata["rounds"] < ROUNDS_OF_INTERVALS:
            continue
        share = base["predicted_items_seconds"] / base["predicted_full_iteration_seconds"]
        title = find_sampler(base["sampler"]).title
        speedup = Estimate(
            strata["measured_full_speedup"],
            strata["lower_full_speedup"],
            strata["upper_full_speedup"],
            strata["rounds"],
        )
        found = judge_shorter(
            speedup,
            base["distinct_items"] / strata["distinct_items"],
            f", by a profile: items take {100 * share:.0f} % of {title}'s iteration",
        )
        judged.append(
            Judged(
                *SHORTER,
                dataset=strata["dataset"],
                data_fingerprint=strata["data_fingerprint"],
                encoder=strata["encoder"],
                loss=strata["loss"],
                settings=strata["unusual_settings"] or "",
                **asdict(found),
            )
        )
    return judged
