"""Two folders of runs side by side: the same cells, what has become better and what worse."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from ncfbench import seeds
from ncfbench.analysis import compare
from ncfbench.errors import UsageError
from ncfbench.report.comparison import Comparison, Variant, arm_of
from ncfbench.runs import RunRecord

DEFAULT_LIMIT = 0.1


@dataclass(frozen=True)
class Change:
    """A measure of a cell in both folders. ``gain`` above 1: the first folder is better; None where nothing compares."""

    dataset: str
    encoder: str
    loss: str
    sampler: str
    variant: str
    settings: str
    measure: str
    own: float | None
    other: float | None
    gain: float | None
    lower: float | None
    upper: float | None
    seeds: int
    regressed: bool
    note: str = ""


Measured = Callable[[Comparison, Variant], Mapping[int, float]]


def changes(own: Sequence[Comparison], other: Sequence[Comparison], *, limit: float, allow_mixed: bool) -> list[Change]:
    """Every measure of every cell that both folders have, paired by seed; and the cells that only one of them has.

    A gain is the geometric mean over common seeds of own / other, inverted for seconds and losses, so that above 1 the first
    folder is better; its interval is :func:`ncfbench.seeds.geometric`'s. A cell has regressed where the gain is below
    1 / (1 + limit), that is where the other folder is better by more than the limit, and its interval, where there is one,
    lies below 1.

    Args:
        limit: 0.1 for ten per cent.
        allow_mixed: compare times of different environments too.
    """
    ours, theirs = _cells(own), _cells(other)
    result = []
    for key in dict.fromkeys([*ours, *theirs]):
        if key not in ours or key not in theirs:
            side = "only in the first folder" if key in ours else "only in the second folder"
            comparison, variant = (ours if key in ours else theirs)[key]
            result.append(Change(*_names(comparison, variant), "", None, None, None, None, None, 0, False, side))
            continue
        for name, (measure, smaller_is_better, is_time) in MEASURED.items():
            change = _change(ours[key], theirs[key], name, measure, smaller_is_better, is_time, limit, allow_mixed)
            if change is not None:
                result.append(change)
    return result


def parse_limit(text: str) -> float:
    """``10%`` or ``0.1`` as a share.

    Raises:
        UsageError: it is neither, or below 0.
    """
    try:
        value = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value >= 0):
        raise UsageError(f"--regression {text!r}: give a share such as 10% or 0.1.")
    return value


def _summary(column: str) -> Measured:
    def measure(comparison: Comparison, variant: Variant) -> Mapping[int, float]:
        return {
            seed: run.summary[column]
            for seed, run in comparison.arms[variant].items()
            if run.summary[column] is not None and run.summary[column] > 0
        }

    return measure


def _ratio(name: str) -> Measured:
    def measure(comparison: Comparison, variant: Variant) -> Mapping[int, float]:
        pairs = comparison.pairs(variant)
        timed = [pair for pair in pairs if all(run.summary["full_iteration_seconds"] is not None for run in pair)]
        if variant == comparison.baseline(variant):
            return {}
        values = {
            run.config.seed: getattr(compare(arm_of(run), arm_of(base)), name)
            for run, base in timed
            if run.environment["key"] == base.environment["key"]
        }
        return {seed: value for seed, value in values.items() if value is not None}

    return measure


MEASURED: Mapping[str, tuple[Measured, bool, bool]] = {
    "full_iteration_seconds": (_summary("full_iteration_seconds"), True, True),
    "step_iteration_seconds": (_summary("step_iteration_seconds"), True, True),
    "smallest_probe_loss": (_summary("smallest_probe_loss"), True, False),
    "test_recall_at_50": (_summary("test_recall_at_50"), False, False),
    "per_iteration_speedup": (_ratio("per_iteration"), False, True),
    "iterations_speedup": (_ratio("iterations"), False, False),
    "total_speedup": (_ratio("total"), False, True),
}
"""By name: values by seed, whether smaller is better, whether hardware and versions decide them."""

Member = tuple[Comparison, Variant]


def _cells(comparisons: Sequence[Comparison]) -> dict[tuple[str, ...], Member]:
    return {
        (*_names(comparison, variant), comparison.data_fingerprint): (comparison, variant)
        for comparison in comparisons
        for variant in comparison.arms
    }


def _names(comparison: Comparison, variant: Variant) -> tuple[str, str, str, str, str, str]:
    config = comparison.config
    note = variant.note(config.encoder)
    return config.dataset, config.encoder, config.loss, variant.sampler, note, comparison.title()


def _change(
    own: Member,
    other: Member,
    name: str,
    measure: Measured,
    smaller_is_better: bool,
    is_time: bool,
    limit: float,
    allow_mixed: bool,
) -> Change | None:
    values, others = measure(*own), measure(*other)
    common = sorted(set(values) & set(others))
    if not values and not others:
        return None
    names, note = _names(*own), ""
    mean, other_mean = (sum(found.values()) / len(found) if found else None for found in (values, others))
    if not common:
        note = "no seed in common" if values and others else f"only in the {'first' if values else 'second'} folder"
    elif is_time and not allow_mixed and _environments(own, common) != _environments(other, common):
        note = "different environments (--allow-mixed compares all the same)"
    if note:
        return Change(*names, name, mean, other_mean, None, None, None, len(common), False, note)
    gains = [others[seed] / values[seed] if smaller_is_better else values[seed] / others[seed] for seed in common]
    gain = seeds.geometric(gains)
    regressed = gain.value < 1 / (1 + limit) and (gain.upper is None or gain.upper < 1)
    mean, other_mean = (sum(found[seed] for seed in common) / len(common) for found in (values, others))
    return Change(*names, name, mean, other_mean, gain.value, gain.lower, gain.upper, len(common), regressed)


def _environments(member: Member, common: Sequence[int]) -> set[str]:
    comparison, variant = member
    runs: Mapping[int, RunRecord] = comparison.arms[variant]
    return {str(runs[seed].environment["key"]) for seed in common}
