"""Comparison of two folders of runs: which cells became better, which worse, which were lost."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from ncfbench.errors import UsageError
from ncfbench.report.comparison import Comparison, arm_of
from ncfbench.runs.arms import Variant
from ncfbench.runs.folder import RunRecord
from ncfbench.timing import seed_statistics

DEFAULT_LIMIT = 0.1


@dataclass(frozen=True)
class Change:
    """A measure of a cell in both folders, or, without a measure, a cell that only one of them has.

    Attributes:
        own, other: means over the common seeds; ``own`` is None where the measure was lost.
        gain: above 1, the first folder is better; None where nothing compares.
        gain_at_most: upper bound of the gain where the first folder did not reach its reference
            loss.
        clear: whether the gain's interval over common seeds excludes 1; None with one seed.
        note: why it has regressed, why nothing compares, or a warning.
    """

    dataset: str
    encoder: str
    loss: str
    sampler: str
    variant: str
    settings: str
    measure: str
    own: float | None = None
    other: float | None = None
    gain: float | None = None
    lower: float | None = None
    upper: float | None = None
    gain_at_most: float | None = None
    clear: bool | None = None
    seeds: int = 0
    regressed: bool = False
    note: str = ""


@dataclass(frozen=True)
class Reading:
    """A measure of one run: a value, or the reason for its absence and an upper bound if known."""

    value: float | None
    reason: str = ""
    at_most: float | None = None


Measured = Callable[[Comparison, Variant, bool], Mapping[int, Reading]]
"""Readings by seed; the flag allows dividing times of different environments."""


def changes(
    own: Sequence[Comparison], other: Sequence[Comparison], *, limit: float, allow_mixed: bool
) -> list[Change]:
    """Compare every measure of every cell, paired by seed.

    A gain is the geometric mean over common seeds of own / other, inverted for seconds and losses,
    so that above 1 the first folder is better; its interval comes from
    :func:`ncfbench.timing.seed_statistics.geometric`. A measure has regressed where

    - the gain is below 1 / (1 + limit): the other folder is better by more than the limit. The rule
      is the same for any number of seeds and ignores the interval, which is wide with few seeds;
      ``clear`` says whether the interval excludes 1;
    - or it was lost: the other folder has it for a seed, and the first ran that seed without
      getting it (not reached, diverged, no times), or has no run of the cell at all.

    Cells and measures of the first folder alone are no regressions, nor are seeds that it did not
    run while it ran others. Times of different environments are not compared.

    Args:
        limit: 0.1 for ten per cent.
        allow_mixed: compare times of different environments too.
    """
    ours, theirs = _cells(own), _cells(other)
    result = []
    for key in dict.fromkeys([*ours, *theirs]):
        if key not in theirs:
            result.append(Change(*_names(*ours[key]), "", note="only in the first folder"))
        elif key not in ours:
            result.append(_lost_cell(theirs[key], allow_mixed))
        else:
            for name in MEASURED:
                change = _change(ours[key], theirs[key], name, limit, allow_mixed)
                if change is not None:
                    result.append(change)
    return result


def parse_limit(text: str) -> float:
    """Return ``10%`` or ``0.1`` as a share.

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


def _summary(column: str, lacking: str, *, outlives_divergence: bool = False) -> Measured:
    def measure(
        comparison: Comparison, variant: Variant, allow_mixed: bool
    ) -> Mapping[int, Reading]:
        return {seed: reading(run) for seed, run in comparison.arms[variant].items()}

    def reading(run: RunRecord) -> Reading:
        if run.summary["status"] != "finished" and not outlives_divergence:
            return Reading(None, str(run.summary["status"]))
        return Reading(run.summary[column], lacking)

    return measure


def _ratio(name: str) -> Measured:
    def measure(
        comparison: Comparison, variant: Variant, allow_mixed: bool
    ) -> Mapping[int, Reading]:
        base = comparison.baseline(variant)
        if variant == base:
            return {}
        baselines: Mapping[int, RunRecord] = comparison.arms[base] if base else {}
        return {
            seed: reading(run, baselines.get(seed), allow_mixed)
            for seed, run in comparison.arms[variant].items()
        }

    def reading(run: RunRecord, base: RunRecord | None, allow_mixed: bool) -> Reading:
        if base is None:
            return Reading(None, "no baseline of this seed")
        if name != "per_iteration" and any(
            one.summary["status"] != "finished" for one in (run, base)
        ):
            return Reading(None, "diverged")
        if any(one.summary["full_iteration_seconds"] is None for one in (run, base)):
            return Reading(None, "no times")
        if (
            name != "iterations"
            and not allow_mixed
            and run.environment["key"] != base.environment["key"]
        ):
            return Reading(None, "arm and baseline of different environments")
        found = seed_statistics.over_seeds([(arm_of(run), arm_of(base))])
        if name == "per_iteration":
            return Reading(found.per_iteration.value)
        estimate: seed_statistics.Estimate | None = getattr(found.at_reference, name)
        if estimate is not None:
            return Reading(estimate.value)
        # Without a bound too, one of the two was at the reference loss before training.
        at_most = getattr(found.at_reference, f"{name}_at_most")
        return Reading(None, "no ratio" if at_most is None else "not reached", at_most)

    return measure


MEASURED: Mapping[str, tuple[Measured, bool, bool]] = {
    "full_iteration_seconds": (
        _summary("full_iteration_seconds", "no times", outlives_divergence=True),
        True,
        True,
    ),
    "step_iteration_seconds": (
        _summary("step_iteration_seconds", "no times", outlives_divergence=True),
        True,
        True,
    ),
    "smallest_probe_loss": (_summary("smallest_probe_loss", "no probe"), True, False),
    "test_recall_at_50": (_summary("test_recall_at_50", "no recall"), False, False),
    "per_iteration_speedup": (_ratio("per_iteration"), False, True),
    "iterations_speedup": (_ratio("iterations"), False, False),
    "total_speedup": (_ratio("total"), False, True),
}
"""Measures: readings by seed, whether smaller is better, and whether the environment decides."""

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


def _lost_cell(theirs: Member, allow_mixed: bool) -> Change:
    """Return a cell without a run in the first folder: lost if the second measured anything."""
    names = _names(*theirs)
    if any(
        reading.value is not None
        for measure, *_ in MEASURED.values()
        for reading in measure(*theirs, allow_mixed).values()
    ):
        return Change(
            *names, "", regressed=True, note="lost: no finished run; only in the second folder"
        )
    return Change(*names, "", note="only in the second folder")


def _change(
    own: Member, other: Member, name: str, limit: float, allow_mixed: bool
) -> Change | None:
    measure, smaller_is_better, is_time = MEASURED[name]
    ours = measure(*own, allow_mixed)
    values = {seed: reading.value for seed, reading in ours.items() if reading.value is not None}
    others = {
        seed: found.value
        for seed, found in measure(*other, allow_mixed).items()
        if found.value is not None
    }
    names = _names(*own)
    if not others:
        return (
            Change(*names, name, _mean(values), note="only in the first folder") if values else None
        )
    common = sorted(set(ours) & set(others))
    if not common and values:
        return Change(*names, name, _mean(values), _mean(others), note="no seed in common")
    other_mean = _mean({seed: others[seed] for seed in common} or others)
    elsewhere = (
        is_time and not allow_mixed and _environments(own, common) != _environments(other, common)
    )
    if any(ours[seed].value is None for seed in common or ours):
        note, at_most = _lost(ours, others, common)
        at_most = None if elsewhere else at_most
        return Change(
            *names,
            name,
            None,
            other_mean,
            gain_at_most=at_most,
            seeds=len(common),
            regressed=True,
            note=note,
        )
    own_mean = _mean({seed: values[seed] for seed in common})
    if elsewhere:
        note = "different environments (--allow-mixed compares all the same)"
        return Change(*names, name, own_mean, other_mean, seeds=len(common), note=note)
    pairs = [
        (others[seed], values[seed]) if smaller_is_better else (values[seed], others[seed])
        for seed in common
    ]
    if not all(value > 0 for pair in pairs for value in pair):
        # A loss or a recall of 0 has no ratio, but shows which of the two is better.
        worse = any(above < below for above, below in pairs)
        return Change(
            *names,
            name,
            own_mean,
            other_mean,
            seeds=len(common),
            regressed=worse,
            note="a value is 0: no ratio",
        )
    gain = seed_statistics.geometric([above / below for above, below in pairs])
    regressed = gain.value < 1 / (1 + limit)
    clear = None if gain.lower is None or gain.upper is None else not gain.lower <= 1 <= gain.upper
    notes = ["the 95 % interval holds 1"] if regressed and clear is False else []
    notes += ["SIMULATED devices: no measure of speed"] * (
        is_time and (own[0].is_simulated or other[0].is_simulated)
    )
    notes += (
        [f"{len(common)} of the second's {len(others)} seeds"] if len(common) < len(others) else []
    )
    return Change(
        *names,
        name,
        own_mean,
        other_mean,
        gain.value,
        gain.lower,
        gain.upper,
        clear=clear,
        seeds=len(common),
        regressed=regressed,
        note="; ".join(notes),
    )


def _lost(
    ours: Mapping[int, Reading], others: Mapping[int, float], common: Sequence[int]
) -> tuple[str, float | None]:
    """Return why a value is lost, and the gain's bound where every lost seed has one."""
    reasons = [ours[seed].reason for seed in common or ours if ours[seed].value is None]
    note = "lost: " + " or ".join(dict.fromkeys(reasons))
    if len(common) > 1:
        note += f" ({len(reasons)} of {len(common)} seeds)"
    bounds = [
        ours[seed].at_most if ours[seed].value is None else ours[seed].value for seed in common
    ]
    gains = [
        bound / others[seed]
        for seed, bound in zip(common, bounds, strict=True)
        if bound and others[seed]
    ]
    has_bound = (
        bool(gains)
        and len(gains) == len(common)
        and any(ours[seed].at_most is not None for seed in common)
    )
    return note, seed_statistics.geometric(gains).value if has_bound else None


def _mean(values: Mapping[int, float]) -> float:
    return sum(values.values()) / len(values)


def _environments(member: Member, common: Sequence[int]) -> list[str]:
    comparison, variant = member
    runs: Mapping[int, RunRecord] = comparison.arms[variant]
    return [str(runs[seed].environment["key"]) for seed in common]
