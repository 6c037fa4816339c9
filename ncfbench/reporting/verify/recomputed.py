"""Recomputed rows of ``speedup.parquet`` and ``recall.parquet``, from raw samples and curves.

This is plain Python, written from the tables' description. It calls none of the functions that made
them.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ncfbench.reporting.verify import expected
from ncfbench.reporting.verify.expected import Cell
from ncfbench.reporting.verify.intervals import (
    COUNTED_SEEDS,
    bootstrap_interval,
    geometric_mean,
    mean_of,
    t_interval,
)
from ncfbench.runs import evaluations
from ncfbench.runs.folder import RunRecord
from ncfbench.storage import schemas

Row = Mapping[str, Any]
Value = float | str | bool | None
TOLERANCE = 1e-9
"""Relative tolerance; both computations are in double precision."""
DRAWN_TOLERANCE = 0.05
"""Share of an interval's logarithmic width, where both computations draw their resamples."""


@dataclass(frozen=True)
class RunFigures:
    """Figures of a run, from its raw records."""

    name: str
    full: float | None
    step: float | None
    spread: float
    """Interquartile range of the full blocks' times over their median."""
    item_slots: float | None
    points: Sequence[tuple[float, float]]
    """Iteration and loss of each probe."""
    reported: Mapping[str, float | None]

    @property
    def losses(self) -> list[float]:
        """Losses of all probes."""
        return [loss for _, loss in self.points]


def figures_of(record: RunRecord) -> RunFigures:
    """Return a run's figures from its timing and curve, without its summary."""
    here = [row for row in record.timing if row["environment_key"] == record.environment["key"]]
    blocks = [
        row for row in record.timing if row["kind"] == "full" and row["item_slots"] is not None
    ]
    iterations = sum(row["iterations"] for row in blocks)
    slots = sum(row["item_slots"] * row["iterations"] for row in blocks)
    return RunFigures(
        name=record.name,
        full=_block_median(here, "full"),
        step=_block_median(here, "step"),
        spread=_spread(_block_times(here, "full")),
        item_slots=slots / iterations if iterations else None,
        points=[(row["iteration"], row["probe_loss"]) for row in record.curve],
        reported=_reported(record),
    )


def _block_times(samples: Sequence[Row], kind: str) -> list[float]:
    own = [row for row in samples if row["kind"] == kind]
    if any(not row["resumed"] for row in own):
        own = [row for row in own if not row["resumed"]]
    half = max((row["iterations"] for row in own), default=0) / 2
    return [row["seconds"] / row["iterations"] for row in own if row["iterations"] >= half]


def _block_median(samples: Sequence[Row], kind: str) -> float | None:
    times = _block_times(samples, kind)
    return statistics.median(times) if times else None


def _spread(times: Sequence[float]) -> float:
    if len(times) < 2:
        return 0.0
    low, middle, high = statistics.quantiles(times, n=4, method="inclusive")
    return (high - low) / middle


def _reported(record: RunRecord) -> Mapping[str, float | None]:
    """Return epoch and quality of the row that is reported."""
    known = [row for row in record.curve if row["validation_recall_at_50"] is not None]
    if known:
        chosen = _candidate(known, record.config.patience, record.summary["reported_by"] is None)
        if record.summary["reported_by"] is not None and not _is_above(record, chosen, known[-1]):
            chosen = known[-1]
    else:
        tested = [row for row in record.curve if row["test_recall_at_50"] is not None]
        chosen = tested[-1] if tested else {}
    return {"reported_epoch": chosen.get("epoch")} | {
        f"test_{name}": chosen.get(f"test_{name}") for name in schemas.QUALITY
    }


def _candidate(known: Sequence[Row], patience: int, is_old: bool) -> Row:
    """Return the row of the best validation recall@50 before patience ended.

    Of equal ones it is the later, in runs of schema versions 1 to 3 the earlier.
    """
    best, record_at = 0, 0
    for place, row in enumerate(known):
        value, highest = (each["validation_recall_at_50"] for each in (row, known[best]))
        if value > highest:
            best = record_at = place
        elif value == highest and not is_old:
            best = place
        if place - record_at >= patience:
            break
    return known[best]


def _is_above(record: RunRecord, row: Row, last: Row) -> bool:
    """Return whether validation recall is above that of the last row by three standard errors.

    The squared error is the sum of those over users and over items.
    """
    if row is last:
        return True
    found = evaluations.read(record.folder)
    pair = [found.get((each["iteration"], "validation")) for each in (row, last)]
    if pair[0] is None or pair[1] is None:
        return False
    users, items = (
        [a - b for a, b in zip(*(getattr(one, name).tolist() for one in pair), strict=True)]
        for name in ("user_recalls", "item_shares")
    )
    if min(len(users), len(items)) < 2:
        return False
    of_users = statistics.variance(users) / len(users)
    of_items = len(items) / (len(items) - 1) * math.fsum(share**2 for share in items)
    return statistics.fmean(users) > 3 * math.sqrt(of_users + of_items)


Number = tuple[str, tuple[float | None, float]]
"""Column, recomputed value and tolerance."""


@dataclass(frozen=True)
class ExpectedRow:
    """A recomputed row."""

    runs: Sequence[str]
    baseline_runs: Sequence[str]
    values: Mapping[str, tuple[Value, float]]
    """Values with tolerances by column: every number of the schema, null where there is none."""


def summary_numbers(own: RunFigures) -> Iterator[Number]:
    """Yield the values that a run's summary must have."""
    recomputed = {
        "full_iteration_seconds": own.full,
        "step_iteration_seconds": own.step,
        "item_slots": own.item_slots,
        "smallest_probe_loss": min(own.losses, default=None),
        **own.reported,
    }
    for column, value in recomputed.items():
        yield column, (value, TOLERANCE)


def _nulls(schema: Any) -> dict[str, tuple[Value, float]]:
    """Return null for every number of a table."""
    return {field.name: (None, 0.0) for field in schema if str(field.type) in ("double", "int64")}


def recall_row(cell: Cell, again: Mapping[str, RunFigures]) -> ExpectedRow:
    """Return a row of the recall table."""
    values = _nulls(schemas.RECALL)
    own = list(cell.runs.values())
    if not own:
        status = "missing"
    elif any(map(expected.diverged, own)):
        status = "diverged"
    else:
        status = "no recall" if any(run.summary["recall_reason"] for run in own) else "measured"
        values |= dict(_recall_numbers([again[run.name] for run in own]))
    if own:
        values["seeds"] = (len(own), 0)
    return ExpectedRow([run.name for run in own], [], values | {"status": (status, 0)})


def _recall_numbers(own: Sequence[RunFigures]) -> Iterator[Number]:
    for column in ("reported_epoch", *(f"test_recall_at_{m}" for m in schemas.CUTOFFS)):
        values = [one.reported[column] for one in own]
        known = [value for value in values if value is not None]
        complete = len(known) == len(values)
        yield column, (sum(known) / len(known) if complete else None, TOLERANCE)
        if column != "reported_epoch":
            lower, upper = t_interval(known) if complete and len(known) > 1 else (None, None)
            yield f"{column}_lower", (lower, 1e-7)
            yield f"{column}_upper", (upper, 1e-7)


def speedup_row(cell: Cell, again: Mapping[str, RunFigures], divides_mixed: bool) -> ExpectedRow:
    """Return a row of the speedup table.

    Args:
        divides_mixed: times of different environments are divided too.
    """
    own = [again[run.name] for run in cell.runs.values()]
    pairs = [(again[run.name], again[base.name]) for run, base in cell.pairs]
    has_diverged = any(expected.diverged(run) for pair in cell.pairs for run in pair)
    same_environment: bool | None = None
    numbers: list[Number] = []
    if any(one.full is None for one in own):
        pairs = []
        status = "diverged" if any(map(expected.diverged, cell.runs.values())) else "no times"
    elif not pairs:
        status = (
            "missing"
            if not own
            else "no baseline"
            if cell.baselines is None
            else "no baseline of this seed"
        )
    elif any(base.full is None for _, base in pairs):
        status = "diverged" if has_diverged else "no times"
    else:
        numbers.append(
            (
                "full_iteration_spread",
                (max(one.spread for pair in pairs for one in pair), TOLERANCE),
            )
        )
        same_environment = cell.is_of_one_environment
        timed = same_environment or divides_mixed
        numbers += _time_numbers(pairs) if timed else ()
        if has_diverged:
            # Its iterations have their times; the seeds that did not diverge would flatter it.
            status = "diverged"
        elif not all(_has_trained(base) for _, base in cell.pairs):
            status = "not trained"
        else:
            complete = all(
                _crossing(one.points, min(base.losses)) is not None for one, base in pairs
            )
            reached = "reached" if complete else "not reached"
            status = (
                "baseline" if cell.is_baseline else reached if timed else "different environment"
            )
            numbers += _reference_numbers(pairs, timed)
    counted = [one for one, _ in pairs] or own
    values = _nulls(schemas.SPEEDUP) | dict(numbers)
    if counted:
        values["seeds"] = (len(counted), 0)
        for column, name in (
            ("full_iteration_seconds", "full"),
            ("step_iteration_seconds", "step"),
            ("item_slots", "item_slots"),
        ):
            values[column] = (mean_of([getattr(one, name) for one in counted]), TOLERANCE)
    values |= {
        "baseline": (cell.baseline, 0),
        "status": (status, 0),
        "interleaved": (cell.is_interleaved, 0),
        "simulated": (cell.is_simulated, 0),
        "same_environment": (same_environment, 0),
    }
    return ExpectedRow([one.name for one in counted], [base.name for _, base in pairs], values)


def _has_trained(run: RunRecord) -> bool:
    """Return whether a baseline is above chance at its end, was best after its first two probes,
    and made less than a tenth of its fall since the first probe in its last quarter.
    """
    tested = [row for row in run.curve if row["test_recall_at_50_error"] is not None]
    if tested:
        value, chance, *errors = (
            tested[-1][f"test_recall_at_50{end}"]
            for end in ("", "_chance", "_error", "_item_error")
        )
        error = math.sqrt(sum((each or 0) ** 2 for each in errors))
        if chance < 1 and value - chance <= 2 * error:
            return False
    losses = [row["probe_loss"] for row in run.curve]
    if len(losses) < 5:
        return True
    lowest, end = min(losses), run.curve[-1]["iteration"]
    early = min(row["probe_loss"] for row in run.curve if 4 * row["iteration"] <= 3 * end)
    return lowest not in losses[:3] and early - lowest < 0.1 * (losses[1] - lowest)


def _time_numbers(pairs: Sequence[tuple[RunFigures, RunFigures]]) -> Iterator[Number]:
    """Yield the speedups per iteration."""
    yield from _ratio_numbers(
        "per_iteration_speedup", [_quotient(base.full, one.full) for one, base in pairs]
    )
    yield from _ratio_numbers(
        "step_per_iteration_speedup", [_quotient(base.step, one.step) for one, base in pairs]
    )


def _reference_numbers(
    pairs: Sequence[tuple[RunFigures, RunFigures]], timed: bool
) -> Iterator[Number]:
    """Yield the speedups in reaching the reference loss, in iterations and in total."""
    references = [min(base.losses) for _, base in pairs]
    own_reached = [
        _crossing(one.points, reference)
        for (one, _), reference in zip(pairs, references, strict=True)
    ]
    base_reached = [
        _crossing(base.points, reference)
        for (_, base), reference in zip(pairs, references, strict=True)
    ]
    reached = [value for value in own_reached if value is not None]
    complete = len(reached) == len(pairs)
    yield "reference_loss", (sum(references) / len(references), TOLERANCE)
    yield "seeds_reached", (len(reached), 0)
    yield "iterations_to_reference", (mean_of(own_reached), TOLERANCE)
    seconds = [
        None if value is None or one.full is None else value * one.full
        for value, (one, _) in zip(own_reached, pairs, strict=True)
    ]
    yield "seconds_to_reference", (mean_of(seconds), TOLERANCE)
    # Where an arm did not arrive, its last iteration stands in: the ratio is smaller than that.
    needed = [
        one.points[-1][0] if value is None else value
        for value, (one, _) in zip(own_reached, pairs, strict=True)
    ]
    ratios = [
        base / arm if base and arm else None for base, arm in zip(base_reached, needed, strict=True)
    ]
    per = [_quotient(base.full, one.full) for one, base in pairs]
    totals = [None if a is None or b is None else a * b for a, b in zip(ratios, per, strict=True)]
    for name, values, shown in (("iterations", ratios, True), ("total", totals, timed)):
        if shown and complete:
            yield from _ratio_numbers(f"{name}_speedup", values)
        elif shown:
            yield f"{name}_speedup_at_most", (geometric_mean(values), TOLERANCE)


def _ratio_numbers(column: str, values: Sequence[float | None]) -> Iterator[Number]:
    centre = geometric_mean(values)
    yield column, (centre, TOLERANCE)
    if centre is not None and len(values) > 1:
        lower, upper = bootstrap_interval(
            tuple(math.log(value) for value in values if value is not None)
        )
        tolerance = 1e-7
        if len(values) > COUNTED_SEEDS:
            tolerance = math.expm1(DRAWN_TOLERANCE * max(math.log(upper / lower), 1e-6))
        yield f"{column}_lower", (lower, tolerance)
        yield f"{column}_upper", (upper, tolerance)


def _crossing(points: Sequence[tuple[float, float]], level: float) -> float | None:
    """Return the iteration at which the line through the points first falls to a level."""
    if points[0][1] <= level:
        return points[0][0]
    for (x, y), (x_next, y_next) in itertools.pairwise(points):
        if y > level >= y_next:
            return x + (x_next - x) * (y - level) / (y - y_next)
    return None


def _quotient(above: float | None, below: float | None) -> float | None:
    return above / below if above and below else None
