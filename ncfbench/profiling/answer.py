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
from ncfbench.reporting.formats import three_digits

Row = Mapping[str, Any]
WORDS = {
    "items": "items",
    "interactions": "interactions",
    "users": "users",
    "fixed": "the optimiser and other fixed work",
    "sampling": "sampling",
}
"""Parts of an iteration, as sentences name them and in their order."""
MEASURES = {
    "step": "step_iteration_seconds",
    "full": "full_iteration_seconds",
    "speedup": "full_speedup",
}
"""Predicted and measured figures, and their columns without ``predicted_`` and ``measured_``."""


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
    errors: Sequence[Row]
    """``sampler``, ``measure``, ``error`` (predicted over measured, less 1), and ``due_to``: the
    cause of an error that is larger than :data:`ncfbench.profiling.cost_model.RESIDUAL_TOLERANCE`.
    """
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
    parts = {name: _full_parts(row) for name, row in both.items()}
    before, after = parts[baseline["sampler"]], parts[best["sampler"]]
    saved = {part: before[part] - after[part] for part in WORDS}
    by = max(WORDS, key=lambda part: saved[part]) if len(both) > 1 else None
    missed = [
        {"sampler": row["sampler"], "measure": measure, "error": error, "due_to": due_to}
        for row in rows
        for measure, error in errors(row).items()
        for due_to in [row["responsible"] if abs(error) > RESIDUAL_TOLERANCE else ""]
        if measure != "speedup" or row["sampler"] != row["baseline"]
    ]
    signs = noise(rows, units)
    return Answer(
        baseline=baseline["sampler"],
        best=best["sampler"],
        baseline_seconds=baseline["measured_full_iteration_seconds"],
        best_seconds=best["measured_full_iteration_seconds"],
        speedup=best["measured_full_speedup"],
        saved_by=by,
        saved_seconds=saved[by] if by else 0.0,
        shares={
            name: {part: value / sum(seconds.values()) for part, value in seconds.items()}
            for name, seconds in parts.items()
        },
        errors=missed,
        noise=signs,
        sentences=[
            _comparison(baseline, best, by, saved),
            *(_composition(title(row), parts[name]) for name, row in both.items()),
            _precision(rows, missed),
            *([f"The machine was noisy: {', '.join(signs)}."] if signs else []),
        ],
    )


def title(row: Row) -> str:
    """Return the sampler's title."""
    return find_sampler(row["sampler"]).with_strata(row["strata"]).title


def errors(row: Row) -> dict[str, float]:
    """Return predicted over measured, less 1, of each of :data:`MEASURES` of a sampler."""
    return {
        measure: row[f"predicted_{column}"] / row[f"measured_{column}"] - 1
        for measure, column in MEASURES.items()
    }


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


def _full_parts(row: Row) -> dict[str, float]:
    """Return the predicted seconds of an iteration by the keys of :data:`WORDS`."""
    seconds = {part: row[f"predicted_{part}_seconds"] for part in PARTS}
    full, step = (row[f"predicted_{name}_iteration_seconds"] for name in ("full", "step"))
    seconds["sampling"] = full - step
    return {part: seconds[part] for part in WORDS}


def _comparison(baseline: Row, best: Row, by: str | None, saved: Mapping[str, float]) -> str:
    takes = f"takes {_ms(best['measured_full_iteration_seconds'])} ms an iteration"
    if by is None:
        return f"{title(best)} {takes}, and no other sampler here takes less."
    less = f"{best['measured_full_speedup']:.1f} times less than {title(baseline)}"
    before = _ms(baseline["measured_full_iteration_seconds"])
    if by in ("items", "users"):
        count, of_baseline = (f"{row[f'{by[:-1]}_slots']:,}" for row in (best, baseline))
        why = f"it embeds {count} {by} instead of {of_baseline}, which saves"
    else:
        why = f"{WORDS[by]} {'take' if by == 'interactions' else 'takes'} less, by"
    return f"{title(best)} {takes}, {less} ({before} ms): {why} {_ms(saved[by])} ms."


def _composition(name: str, parts: Mapping[str, float]) -> str:
    whole = sum(parts.values())
    listed = [f"{WORDS[part]} {100 * seconds / whole:.0f} %" for part, seconds in parts.items()]
    return f"An iteration of {name} by its costs: {', '.join(listed)}."


def _precision(rows: Sequence[Row], found: Sequence[Row]) -> str:
    titles = {row["sampler"]: title(row) for row in rows}
    near = [abs(row["error"]) for row in found if not row["due_to"]]
    within = f"within {100 * max(near, default=0):.0f} % of the measurement"
    far = [
        f"{row['measure']} of {titles[row['sampler']]} by {100 * row['error']:+.0f} % (due to"
        f" {row['due_to']})"
        for row in found
        if row["due_to"]
    ]
    if not far:
        return f"Predictions of steps, iterations and speedups are {within} for every sampler."
    others = f" All others are {within}." if near else ""
    return f"Predictions are off: {', '.join(far)}.{others}"


def _ms(seconds: float) -> str:
    return three_digits(1e3 * seconds)
