"""The answer of a profile in words and numbers: what an iteration is made of, which sampler saves
most and why, and how far prediction and measurement are apart.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ncfbench.catalog import find_sampler
from ncfbench.profiling.cost_model import (
    DRIFT_TOLERANCE,
    PARTS,
    RESIDUAL_TOLERANCE,
    SPREAD_TOLERANCE,
)
from ncfbench.reporting.table import three_digits

Row = Mapping[str, Any]
WORDS = {
    "items": "items",
    "interactions": "interactions",
    "users": "users",
    "fixed": "the optimiser and other fixed work",
    "sampling": "sampling",
}
"""Parts of an iteration, as sentences name them and in their order."""
MEASURES = ("step", "full", "speedup")


@dataclass(frozen=True)
class Error:
    """The distance of a prediction from the measurement."""

    sampler: str
    measure: str
    """One of :data:`MEASURES`; the speedup is that of the full account."""
    error: float
    """Predicted over measured, less 1."""
    due_to: str
    """The cause, where the prediction is off by more than
    :data:`ncfbench.profiling.cost_model.RESIDUAL_TOLERANCE`; else empty.
    """


@dataclass(frozen=True)
class Answer:
    """The findings of a profile. Seconds are those of an iteration in the full account."""

    baseline: str
    best: str
    """The sampler with the shortest iteration."""
    baseline_seconds: float
    best_seconds: float
    speedup: float
    """Measured; above 1 the best is faster."""
    saved_by: str | None
    """The part that saves most of the predicted difference; None if the baseline is the best."""
    saved_seconds: float
    """Predicted seconds that this part saves."""
    shares: dict[str, dict[str, float]]
    """Parts of the predicted iteration, as shares, of the baseline and the best."""
    errors: list[Error]
    noise: list[str]
    """Signs of a noisy machine."""
    sentences: list[str]


def answer(rows: Sequence[Row], units: Sequence[Row]) -> Answer:
    """Return the answer of one profile.

    Args:
        rows: of the cost model.
        units: of the unit costs.
    """
    baseline = next(row for row in rows if row["sampler"] == row["baseline"])
    best = min(rows, key=lambda row: row["measured_full_iteration_seconds"])
    both = {row["sampler"]: row for row in (baseline, best)}
    parts = {name: full_parts(row) for name, row in both.items()}
    saved = {
        part: seconds - parts[best["sampler"]][part]
        for part, seconds in parts[baseline["sampler"]].items()
    }
    by = max(saved, key=lambda part: saved[part]) if len(both) > 1 else None
    errors = [error for row in rows for error in errors_of(row)]
    shaky = noise(rows, units)
    return Answer(
        baseline=baseline["sampler"],
        best=best["sampler"],
        baseline_seconds=baseline["measured_full_iteration_seconds"],
        best_seconds=best["measured_full_iteration_seconds"],
        speedup=best["measured_full_speedup"],
        saved_by=by,
        saved_seconds=saved[by] if by else 0.0,
        shares={
            name: {part: seconds / sum(own.values()) for part, seconds in own.items()}
            for name, own in parts.items()
        },
        errors=errors,
        noise=shaky,
        sentences=[
            _comparison(baseline, best, by, saved),
            *(_composition(title(row), parts[name]) for name, row in both.items()),
            _precision(rows, errors),
            *([f"The machine was noisy: {', '.join(shaky)}."] if shaky else []),
        ],
    )


def title(row: Row) -> str:
    """Return the sampler's title."""
    return find_sampler(row["sampler"]).with_strata(row["strata"]).title


def predicted_parts(row: Row) -> dict[str, float]:
    """Return the predicted seconds of a step by :data:`ncfbench.profiling.cost_model.PARTS`."""
    return {part: row[f"predicted_{part}_seconds"] for part in PARTS}


def full_parts(row: Row) -> dict[str, float]:
    """Return the predicted seconds of an iteration by the keys of :data:`WORDS`."""
    step = predicted_parts(row)
    sampling = row["predicted_full_iteration_seconds"] - row["predicted_step_iteration_seconds"]
    return {part: step.get(part, sampling) for part in WORDS}


def errors_of(row: Row) -> list[Error]:
    """Return the error of each of :data:`MEASURES` of a sampler; a baseline has no speedup."""
    found = []
    for measure in MEASURES:
        name = "full_speedup" if measure == "speedup" else f"{measure}_iteration_seconds"
        error = row[f"predicted_{name}"] / row[f"measured_{name}"] - 1
        due_to = row["responsible"] if abs(error) > RESIDUAL_TOLERANCE else ""
        if measure != "speedup" or row["sampler"] != row["baseline"]:
            found.append(Error(row["sampler"], measure, error, due_to))
    return found


def noise(rows: Sequence[Row], units: Sequence[Row]) -> list[str]:
    """Return what shows that the machine was noisy."""
    drifted = [
        f"{title(row)}'s second half took {row['drift']:.2f} times its first"
        for row in rows
        if abs(row["drift"] - 1) > DRIFT_TOLERANCE
    ]
    spread = [
        f"{row['part']} spread by {100 * row['spread']:.0f} %"
        for row in units
        if (row.get("spread") or 0) > SPREAD_TOLERANCE
    ]
    return drifted + spread


def _comparison(baseline: Row, best: Row, by: str | None, saved: Mapping[str, float]) -> str:
    takes = f"takes {_ms(best['measured_full_iteration_seconds'])} ms an iteration"
    if by is None:
        return f"{title(best)} {takes}, and no other sampler here takes less."
    less = f"{best['measured_full_speedup']:.1f} times less than {title(baseline)}"
    before = _ms(baseline["measured_full_iteration_seconds"])
    why = f"{WORDS[by]} take" if by in ("items", "interactions", "users") else f"{WORDS[by]} takes"
    if by in ("items", "users"):
        counts = (row[f"{by[:-1]}_slots"] for row in (best, baseline))
        own, theirs = (f"{count:,}" for count in counts)
        why = f"it embeds {own} {by} instead of {theirs}, which saves"
    else:
        why = f"{why} less, by"
    return f"{title(best)} {takes}, {less} ({before} ms): {why} {_ms(saved[by])} ms."


def _composition(name: str, parts: Mapping[str, float]) -> str:
    whole = sum(parts.values())
    listed = [f"{WORDS[part]} {100 * seconds / whole:.0f} %" for part, seconds in parts.items()]
    return f"An iteration of {name} by its costs: {', '.join(listed)}."


def _precision(rows: Sequence[Row], errors: Sequence[Error]) -> str:
    titles = {row["sampler"]: title(row) for row in rows}
    missed = [each for each in errors if each.due_to]
    near = [abs(each.error) for each in errors if not each.due_to]
    within = f"within {100 * max(near, default=0):.0f} % of the measurement"
    if not missed:
        return f"Predictions of steps, iterations and speedups are {within} for every sampler."
    named = [
        f"{each.measure} of {titles[each.sampler]} by {100 * each.error:+.0f} % (due to"
        f" {each.due_to})"
        for each in missed
    ]
    others = f" All others are {within}." if near else ""
    return f"Predictions are off: {', '.join(named)}.{others}"


def _ms(seconds: float) -> str:
    return three_digits(1e3 * seconds)
