"""Comparison of two folders of runs: which measures became better, which worse, which were lost."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ncfbench.paper.printed import RECALL
from ncfbench.reporting.frames import Run, with_baselines
from ncfbench.reporting.rows import speedup_rows
from ncfbench.timing import intervals

Cell = dict[int, Mapping[str, Any]]
"""An arm of a folder: a row for each seed."""
NAMES = ("dataset", "encoder", "loss", "sampler", "variant", "settings")
SECONDS = ("full_iteration_seconds", "step_iteration_seconds")
LOSS = "smallest_probe_loss"
RATIOS = ("per_iteration_speedup", "iterations_speedup", "total_speedup")
TIMES = (*SECONDS, "per_iteration_speedup", "total_speedup")
"""Measures that the environment decides."""
REASONS = {
    "different environment": "arm and baseline of different environments",
    "no baseline": "no baseline of this seed",
    "not reached": "no ratio",
    "reached": "no ratio",
}
"""Words for statuses of the speedup table where it has no ratio."""


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
    measure: str = ""
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


def changes(
    own: Sequence[Sequence[Run]], other: Sequence[Sequence[Run]], *, limit: float, allow_mixed: bool
) -> list[Change]:
    """Compare every measure of every cell, paired by seed.

    A gain is the geometric mean over common seeds of own / other, inverted for seconds and losses,
    so that above 1 the first folder is better; its interval comes from
    :func:`ncfbench.timing.intervals.geometric`. A measure has regressed where

    - the gain is below 1 / (1 + limit): the other folder is better by more than the limit. The rule
      is the same for any number of seeds and ignores the interval, which is wide with few seeds;
    - or it was lost: the other folder has it for a seed, and the first ran that seed without
      getting it (not reached, diverged, no times), or has no run of the cell at all.

    Cells and measures of the first folder alone are no regressions, nor are seeds that it did not
    run while it ran others. Times of different environments are not compared.

    Args:
        own, other: runs of both folders, those together that compare.
        limit: 0.1 for ten per cent.
        allow_mixed: compare times of different environments too.
    """
    ours, theirs = _cells(own, allow_mixed), _cells(other, allow_mixed)
    result = []
    for key in dict.fromkeys([*ours, *theirs]):
        names, measures = Change(*key[:-1]), (*SECONDS, LOSS, RECALL, *RATIOS)
        if key not in theirs:
            result.append(replace(names, note="only in the first folder"))
        elif key not in ours:
            is_lost = any(_values(theirs[key], measure) for measure in measures)
            note = "lost: no finished run; " * is_lost + "only in the second folder"
            result.append(replace(names, regressed=is_lost, note=note))
        else:
            for measure in measures:
                change = replace(names, measure=measure)
                found = _compare(change, ours[key], theirs[key], limit, allow_mixed)
                result += [found] if found else []
    return result


def _cells(groups: Sequence[Sequence[Run]], allow_mixed: bool) -> dict[tuple[Any, ...], Cell]:
    """Return the rows of each arm and seed by the arm's names and its data's fingerprint.

    A row is that of the speedup table for this seed alone, with the other measures of its run.
    """
    cells: dict[tuple[Any, ...], Cell] = {}
    for runs in groups:
        for seed in sorted({run.config.seed for run in runs}):
            alone = with_baselines(run for run in runs if run.config.seed == seed)
            by_name = {run.name: run for run in alone}
            for row in speedup_rows(alone, allow_mixed=allow_mixed, locations={}):
                if row["status"] == "missing":
                    continue
                run = by_name[row["runs"][0]]
                if row["sampler"] == row["baseline"]:
                    row |= dict.fromkeys(RATIOS)
                if run.summary["status"] == "finished":
                    row |= {measure: run.summary[measure] for measure in (LOSS, RECALL)}
                row |= {"run_status": run.summary["status"], "environment": run.environment["key"]}
                key = (*(row[name] for name in NAMES), row["data_fingerprint"])
                cells.setdefault(key, {})[seed] = row
    return cells


def _values(cell: Cell, measure: str) -> dict[int, float]:
    return {seed: row[measure] for seed, row in cell.items() if row.get(measure) is not None}


def _compare(
    change: Change, ours: Cell, theirs: Cell, limit: float, allow_mixed: bool
) -> Change | None:
    """Return a change with its measure in both folders; None where neither has it."""
    measure = change.measure
    values, others = _values(ours, measure), _values(theirs, measure)
    if not others:
        note = "only in the first folder"
        return replace(change, own=_mean(values.values()), note=note) if values else None
    common = sorted(ours.keys() & others.keys())
    if not common and values:
        own, other = _mean(values.values()), _mean(others.values())
        return replace(change, own=own, other=other, note="no seed in common")
    compared = [others[seed] for seed in common] or list(others.values())
    change = replace(change, other=_mean(compared), seeds=len(common))
    is_apart = (
        measure in TIMES
        and not allow_mixed
        and any(ours[seed]["environment"] != theirs[seed]["environment"] for seed in common)
    )
    if lost := [seed for seed in common or ours if seed not in values]:
        reasons = dict.fromkeys(_reason(ours[seed], measure) for seed in lost)
        note = f"lost: {' or '.join(reasons)}"
        if len(common) > 1:
            note += f" ({len(lost)} of {len(common)} seeds)"
        bounds = [values.get(seed) or ours[seed].get(f"{measure}_at_most") for seed in common]
        gains = [
            bound / others[seed]
            for seed, bound in zip(common, bounds, strict=True)
            if bound and others[seed] and not is_apart
        ]
        is_bounded = bool(gains) and len(gains) == len(common)
        at_most = intervals.geometric(gains).value if is_bounded else None
        return replace(change, gain_at_most=at_most, regressed=True, note=note)
    change = replace(change, own=_mean([values[seed] for seed in common]))
    if is_apart:
        note = "different environments (--allow-mixed compares all the same)"
        return replace(change, note=note)
    pairs = [(values[seed], others[seed]) for seed in common]
    if measure in (*SECONDS, LOSS):
        pairs = [(other, own) for own, other in pairs]
    if not all(value > 0 for pair in pairs for value in pair):
        # A loss or a recall of 0 has no ratio, but shows which of the two is better.
        is_worse = any(above < below for above, below in pairs)
        return replace(change, regressed=is_worse, note="a value is 0: no ratio")
    gain = intervals.geometric([above / below for above, below in pairs])
    regressed = gain.value < 1 / (1 + limit)
    clear = None if gain.lower is None or gain.upper is None else not gain.lower <= 1 <= gain.upper
    notes = ["the 95 % interval holds 1"] if regressed and clear is False else []
    if measure in TIMES and any(row["simulated"] for row in (*ours.values(), *theirs.values())):
        notes.append("SIMULATED devices: no measure of speed")
    if len(common) < len(others):
        notes.append(f"{len(common)} of the second's {len(others)} seeds")
    change = replace(change, gain=gain.value, lower=gain.lower, upper=gain.upper, clear=clear)
    return replace(change, regressed=regressed, note="; ".join(notes))


def _reason(row: Mapping[str, Any], measure: str) -> str:
    if measure in SECONDS:
        return "no times"
    if measure in (LOSS, RECALL):
        missing = "no probe" if measure == LOSS else "no recall"
        return missing if row["run_status"] == "finished" else str(row["run_status"])
    if row.get(f"{measure}_at_most") is not None:
        return "not reached"
    return REASONS.get(row["status"], str(row["status"]))


def _mean(values: Collection[float]) -> float:
    return sum(values) / len(values)
