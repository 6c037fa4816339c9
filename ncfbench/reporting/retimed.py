"""Comparisons with the times of a profile, where the runs' own are not to be trusted.

A run beside other programs, on another machine than its rivals, or at another time, needs as many
iterations as on a quiet one: only their length is another. So answers, and figures over training
time, take it from a profile beside the runs. Tables of the runs' own times keep these, with a mark.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace

from ncfbench.reporting.comparison import Comparison
from ncfbench.reporting.profiled_speedups import ProfiledComparison, ProfiledSpeedup
from ncfbench.runs.folder import RunRecord, are_interleaved
from ncfbench.timing.seed_statistics import Estimate
from ncfbench.timing.statistics import BUSY_SPREAD, ROUNDS_OF_INTERVALS, spread

TOGETHER = ["profile"]
"""In place of the sessions of runs that took turns: a profile's samplers do."""


@dataclass(frozen=True, repr=False)
class RetimedRun(RunRecord):
    """A run whose iterations are as long as a profile says.

    Attributes:
        per_iteration: how many times shorter they are than the baseline's, over the profile's
            rounds.
        rounds: of the profile.
    """

    per_iteration: Estimate
    rounds: int


def retime(
    comparisons: Sequence[Comparison], profiled: Sequence[ProfiledComparison]
) -> list[Comparison]:
    """Return the comparisons; each whose own times are not to be trusted has those of the last
    profile of its computation with enough rounds for an interval, and the arms of that profile.
    """
    found = list(comparisons)
    for place, comparison in enumerate(comparisons):
        for each in profiled:
            is_own = each.comparison is comparison and each.is_same
            if is_own and each.rounds >= ROUNDS_OF_INTERVALS:
                found[place] = _retimed(each)
    return found


def time_label(runs: Iterable[RunRecord]) -> str:
    """Return the label of an axis of training time, which says whose times these are."""
    is_profiled = any(isinstance(run, RetimedRun) for run in runs)
    return f"training time, s ({'by a profile' if is_profiled else 'full account'}, log scale)"


def _retimed(profile: ProfiledComparison) -> Comparison:
    """Return the arms of a profile with its times; all arms with their own where these are good."""
    comparison = profile.comparison
    own = {each.variant: comparison.arms[each.variant] for each in profile.speedups}
    if not _is_disturbed([run for runs in own.values() for run in runs.values()]):
        return comparison
    lengths = {each.variant: each for each in profile.speedups}
    arms = {
        variant: {seed: _with_length(run, lengths[variant], profile) for seed, run in runs.items()}
        for variant, runs in own.items()
    }
    left_out = (runs for variant, runs in comparison.arms.items() if variant not in arms)
    return replace(comparison, arms=arms, untimed=sum(map(len, left_out)))


def _is_disturbed(runs: Sequence[RunRecord]) -> bool:
    """Return whether something else was at work beside some run, or machines differ, or runs of a
    seed took no turns: a machine's speed changes from day to day.
    """
    keys = {run.environment["key"] for run in runs}
    first = {run.config.seed: run for run in reversed(runs)}
    return (
        len(keys) > 1
        or any((spread(run.timing, "full") or 0.0) >= BUSY_SPREAD for run in runs)
        or not all(are_interleaved(run, first[run.config.seed]) for run in runs)
    )


def _with_length(
    run: RunRecord, length: ProfiledSpeedup, profile: ProfiledComparison
) -> RetimedRun:
    seconds = {"full_iteration_seconds": length.seconds, "step_iteration_seconds": None}
    curve = [row | {"train_seconds": row["iteration"] * length.seconds} for row in run.curve]
    environment: Mapping[str, object] = {
        **run.environment,
        "key": profile.environment_key,
        "interleaved": TOGETHER,
    }
    values = {each.name: getattr(run, each.name) for each in fields(RunRecord)}
    values |= {
        "summary": {**run.summary, **seconds},
        "curve": curve,
        "timing": [],
        "environment": environment,
    }
    return RetimedRun(**values, per_iteration=length.per_iteration, rounds=profile.rounds)
