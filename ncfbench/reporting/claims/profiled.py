"""Claims on times, judged by profiles: they reach encoders without runs, on a quiet machine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from ncfbench.catalog import find_sampler
from ncfbench.reporting.claims.case import (
    SHORTER,
    SOONEST,
    STRATA,
    Case,
    Judged,
    Row,
    as_judged,
)
from ncfbench.reporting.claims.samplers import judge_shorter, soonest
from ncfbench.reporting.profiled_speedups import ProfiledComparison, by_profile
from ncfbench.timing.seed_statistics import Estimate
from ncfbench.timing.statistics import ROUNDS_OF_INTERVALS


def judge_lengths(rows: Sequence[Row]) -> list[Judged]:
    """Return a verdict on the length of an iteration for each profile of the baseline and of
    Stratified Sampling that has enough rounds for an interval.

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


def judge_totals(profiled: Sequence[ProfiledComparison]) -> list[Judged]:
    """Return a verdict on the soonest sampler for each comparison with the times of a profile that
    has enough rounds for an interval.
    """
    judged = []
    for each in profiled:
        if each.rounds < ROUNDS_OF_INTERVALS:
            continue
        case = Case(each.comparison, [one.speedup for one in each.speedups], (), ())
        lengths = {
            one.speedup["sampler"]: one.per_iteration
            for one in each.speedups
            if not one.speedup["variant"]
        }
        found = soonest(case, lengths)
        if found is not None:
            settings = filter(None, (each.comparison.title(), each.computation))
            judged.append(as_judged(SOONEST, each.comparison, found, ", ".join(settings)))
    return judged
