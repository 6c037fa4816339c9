"""Comparison of two folders of runs: which cells became better, which worse, which were lost."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from ncfbench.reporting.comparison import Comparison, arm_of
from ncfbench.runs.arms import Variant
from ncfbench.runs.folder import RunRecord
from ncfbench.timing import seed_statistics


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


Readings = Mapping[int, Reading]
"""Readings by seed."""
Member = tuple[Comparison, Variant]
SUMMARIES = {
    "full_iteration_seconds": "no times",
    "step_iteration_seconds": "no times",
    "smallest_probe_loss": "no probe",
    "test_recall_at_50": "no recall",
}
"""Measures of a run's summary, and the reason where one is missing."""
RATIOS = {
    "per_iteration_speedup": "per_iteration",
    "iterations_speedup": "iterations",
    "total_speedup": "total",
}
"""Measures of a run and its baseline, and their names in :mod:`ncfbench.timing`."""
SECONDS = ("full_iteration_seconds", "step_iteration_seconds")
SMALLER_IS_BETTER = (*SECONDS, "smallest_probe_loss")
TIMES = (*SECONDS, "per_iteration_speedup", "total_speedup")
"""Measures that the environment decides."""


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
            measures = [*SUMMARIES, *RATIOS]
            found = (_change(ours[key], theirs[key], one, limit, allow_mixed) for one in measures)
            result += [change for change in found if change is not None]
    return result


def _readings(member: Member, measure: str, allow_mixed: bool) -> Readings:
    """Return a measure of each seed of a variant; ratios of a baseline are left out."""
    comparison, variant = member
    runs = comparison.arms[variant]
    if measure in SUMMARIES:
        return {seed: _summary_reading(run, measure) for seed, run in runs.items()}
    base = comparison.baseline(variant)
    if variant == base:
        return {}
    baselines: Mapping[int, RunRecord] = comparison.arms[base] if base else {}
    return {
        seed: _ratio_reading(run, baselines.get(seed), RATIOS[measure], allow_mixed)
        for seed, run in runs.items()
    }


def _summary_reading(run: RunRecord, measure: str) -> Reading:
    if run.summary["status"] != "finished" and measure not in SECONDS:
        return Reading(None, str(run.summary["status"]))
    return Reading(run.summary[measure], SUMMARIES[measure])


def _ratio_reading(run: RunRecord, base: RunRecord | None, name: str, allow_mixed: bool) -> Reading:
    if base is None:
        return Reading(None, "no baseline of this seed")
    is_finished = all(one.summary["status"] == "finished" for one in (run, base))
    if name != "per_iteration" and not is_finished:
        return Reading(None, "diverged")
    if any(one.summary["full_iteration_seconds"] is None for one in (run, base)):
        return Reading(None, "no times")
    is_same = run.environment["key"] == base.environment["key"]
    if name != "iterations" and not (is_same or allow_mixed):
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
    found = Change(*_names(*theirs), "", note="only in the second folder")
    if any(
        reading.value is not None
        for measure in (*SUMMARIES, *RATIOS)
        for reading in _readings(theirs, measure, allow_mixed).values()
    ):
        return replace(found, regressed=True, note=f"lost: no finished run; {found.note}")
    return found


def _change(
    own: Member, other: Member, measure: str, limit: float, allow_mixed: bool
) -> Change | None:
    """Return a measure in both folders; None where neither has it."""
    ours = _readings(own, measure, allow_mixed)
    values = _known(ours)
    others = _known(_readings(other, measure, allow_mixed))
    change = Change(*_names(*own), measure)
    if not others:
        alone = replace(change, note="only in the first folder")
        return replace(alone, own=_mean(values.values())) if values else None
    common = sorted(set(ours) & set(others))
    if not common and values:
        own_mean, other_mean = _mean(values.values()), _mean(others.values())
        return replace(change, own=own_mean, other=other_mean, note="no seed in common")
    compared = [others[seed] for seed in common] or list(others.values())
    change = replace(change, other=_mean(compared), seeds=len(common))
    is_apart = (
        measure in TIMES
        and not allow_mixed
        and _environments(own, common) != _environments(other, common)
    )
    if any(ours[seed].value is None for seed in common or ours):
        note, at_most = _lost(ours, others, common)
        bound = None if is_apart else at_most
        return replace(change, gain_at_most=bound, regressed=True, note=note)
    change = replace(change, own=_mean([values[seed] for seed in common]))
    if is_apart:
        note = "different environments (--allow-mixed compares all the same)"
        return replace(change, note=note)
    pairs = [(values[seed], others[seed]) for seed in common]
    if measure in SMALLER_IS_BETTER:
        pairs = [(other, own) for own, other in pairs]
    if not all(value > 0 for pair in pairs for value in pair):
        # A loss or a recall of 0 has no ratio, but shows which of the two is better.
        is_worse = any(above < below for above, below in pairs)
        return replace(change, regressed=is_worse, note="a value is 0: no ratio")
    gain = seed_statistics.geometric([above / below for above, below in pairs])
    regressed = gain.value < 1 / (1 + limit)
    clear = None if gain.lower is None or gain.upper is None else not gain.lower <= 1 <= gain.upper
    notes = ["the 95 % interval holds 1"] if regressed and clear is False else []
    if measure in TIMES and (own[0].is_simulated or other[0].is_simulated):
        notes.append("SIMULATED devices: no measure of speed")
    if len(common) < len(others):
        notes.append(f"{len(common)} of the second's {len(others)} seeds")
    change = replace(change, gain=gain.value, lower=gain.lower, upper=gain.upper, clear=clear)
    return replace(change, regressed=regressed, note="; ".join(notes))


def _lost(
    ours: Readings, others: Mapping[int, float], common: Sequence[int]
) -> tuple[str, float | None]:
    """Return why a value is lost, and the gain's bound where every lost seed has one."""
    reasons = [ours[seed].reason for seed in common or ours if ours[seed].value is None]
    note = "lost: " + " or ".join(dict.fromkeys(reasons))
    if len(common) > 1:
        note += f" ({len(reasons)} of {len(common)} seeds)"
    found = [(ours[seed], others[seed]) for seed in common]
    bounds = [(own.at_most if own.value is None else own.value, other) for own, other in found]
    gains = [bound / other for bound, other in bounds if bound and other]
    is_bounded = bool(gains) and len(gains) == len(common)
    if not is_bounded or all(own.at_most is None for own, _ in found):
        return note, None
    return note, seed_statistics.geometric(gains).value


def _known(readings: Readings) -> dict[int, float]:
    return {seed: found.value for seed, found in readings.items() if found.value is not None}


def _mean(values: Collection[float]) -> float:
    return sum(values) / len(values)


def _environments(member: Member, common: Sequence[int]) -> list[str]:
    comparison, variant = member
    runs: Mapping[int, RunRecord] = comparison.arms[variant]
    return [str(runs[seed].environment["key"]) for seed in common]
