"""A second computation of every number of ``speedup.parquet`` and ``recall.parquet``, from raw samples and curves.

Plain Python, written from the tables' description; it calls none of the functions that made them. What is read: each run's
settings, environment key, raw samples and curve. The run's summary is checked against these too.
"""

from __future__ import annotations

import functools
import itertools
import json
import math
import random
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ncfbench import runs, schemas, tables
from ncfbench.errors import NothingToReportError
from ncfbench.runs import RunRecord

Row = Mapping[str, Any]
TOLERANCE = 1e-9
"""Relative; both computations are in double precision."""
DRAWN_TOLERANCE = 0.05
"""Of an interval's logarithmic width, with so many seeds that both computations draw their resamples."""
COUNTED_SEEDS = 6
"""Up to here all n^n resamples are counted one by one."""


@dataclass(frozen=True)
class Mismatch:
    """A number that does not come out again, or a run that is not there. Empty ``column``: the row as a whole."""

    table: str
    cell: str
    column: str
    written: float | None
    recomputed: float | None
    note: str = ""


@dataclass(frozen=True)
class Verification:
    """What was compared."""

    numbers: int
    mismatches: Sequence[Mismatch]
    problems: Sequence[str]
    """Run folders that cannot be read. Where a table names one, that is a mismatch."""


@dataclass(frozen=True)
class _Again:
    """A run's figures, from its raw records."""

    seed: int
    full: float | None
    step: float | None
    item_slots: float | None
    points: Sequence[tuple[float, float]]
    reported: Mapping[str, float | None]


def verify(runs_dir: Path) -> Verification:
    """Recompute the tables that ``report`` left in a folder.

    Raises:
        NothingToReportError: there are none.
        DataError: one cannot be read.
    """
    paths = {name: runs_dir / f"{name}.parquet" for name in ("speedup", "recall")}
    for path in paths.values():
        if not path.exists():
            raise NothingToReportError(f"No {path}. Make the tables with: ncfbench report --runs-dir {runs_dir}")
    speedup = tables.read_rows(paths["speedup"], schemas.SPEEDUP)
    recall = tables.read_rows(paths["recall"], schemas.RECALL)
    records, problems = runs.read_all(runs_dir)
    again = {record.name: _recompute(record) for record in records if record.curve}
    found: list[tuple[str, str, str, float | None, float | None, float]] = []
    mismatches: list[Mismatch] = []
    for record in records:
        if record.name in again and record.summary["status"] == "finished":
            found += [("summary", record.name, *rest) for rest in _summary_numbers(record, again[record.name])]
    listed: set[str] = set()
    for table, rows in (("speedup", speedup), ("recall", recall)):
        for row in rows:
            names = [*(row["runs"] or ()), *(row.get("baseline_runs") or ())]
            cell = "/".join(
                row[name] for name in ("dataset", "encoder", "loss", "sampler", "variant", "settings") if row[name]
            )
            lost = [name for name in names if name not in again]
            mismatches += [Mismatch(table, cell, "", None, None, f"run {name} is not there") for name in lost]
            listed |= set(names)
            if names and not lost:
                numbers = _speedup_numbers(row, again) if table == "speedup" else _recall_numbers(row, again)
                found += [(table, cell, *rest) for rest in numbers]
    left_out = "finished, and in neither table: run `ncfbench report` again"
    mismatches += [Mismatch("runs", name, "", None, None, left_out) for name in sorted(_newest(records) - listed)]
    mismatches += [
        Mismatch(table, cell, column, written, own)
        for table, cell, column, written, own, tolerance in found
        if not _equal(written, own, tolerance)
    ]
    return Verification(len(found), mismatches, problems)


def _newest(records: Sequence[RunRecord]) -> set[str]:
    """The newest finished run of each seed of each set of settings and data."""
    chosen: dict[tuple[str, str], RunRecord] = {}
    for record in sorted(records, key=lambda one: (str(one.environment.get("time")), one.name)):
        if record.summary["status"] == "finished":
            chosen[json.dumps(record.config.effective(), sort_keys=True), record.data_fingerprint] = record
    return {record.name for record in chosen.values()}


def _equal(written: float | None, own: float | None, tolerance: float) -> bool:
    if written is None or own is None:
        return written is own
    return math.isclose(written, own, rel_tol=tolerance, abs_tol=1e-12)


def _recompute(record: RunRecord) -> _Again:
    here = [row for row in record.timing if row["environment_key"] == record.environment["key"]]
    blocks = [row for row in record.timing if row["kind"] == "full" and row["item_slots"] is not None]
    iterations = sum(row["iterations"] for row in blocks)
    slots = sum(row["item_slots"] * row["iterations"] for row in blocks)
    return _Again(
        seed=record.config.seed,
        full=_block_median(here, "full"),
        step=_block_median(here, "step"),
        item_slots=slots / iterations if iterations else None,
        points=[(row["iteration"], row["probe_loss"]) for row in record.curve],
        reported=_reported(record),
    )


def _block_median(samples: Sequence[Row], kind: str) -> float | None:
    own = [row for row in samples if row["kind"] == kind]
    if any(not row["resumed"] for row in own):
        own = [row for row in own if not row["resumed"]]
    if not own:
        return None
    half = max(row["iterations"] for row in own) / 2
    each: list[float] = [row["seconds"] / row["iterations"] for row in own if row["iterations"] >= half]
    return statistics.median(each)


def _reported(record: RunRecord) -> Mapping[str, float | None]:
    """The row whose recall is reported: the best validation recall@50 before patience ended, or the last one evaluated."""
    chosen: Row = {}
    waited = 0
    validated = any(row["validation_recall_at_50"] is not None for row in record.curve)
    for row in record.curve:
        value = row["validation_recall_at_50"]
        if not validated:
            chosen = row if row["test_recall_at_50"] is not None else chosen
        elif value is not None and waited < record.config.patience:
            if not chosen or value > chosen["validation_recall_at_50"]:
                chosen, waited = row, 0
            else:
                waited += 1
    return {"reported_epoch": chosen.get("epoch")} | {
        f"test_recall_at_{m}": chosen.get(f"test_recall_at_{m}") for m in schemas.CUTOFFS
    }


Number = tuple[str, float | None, float | None, float]
"""Column, as written, as recomputed, tolerance."""


def _summary_numbers(record: RunRecord, own: _Again) -> Iterator[Number]:
    recomputed = {
        "full_iteration_seconds": own.full,
        "step_iteration_seconds": own.step,
        "item_slots": own.item_slots,
        "smallest_probe_loss": min(loss for _, loss in own.points),
        **own.reported,
    }
    for column, value in recomputed.items():
        yield column, record.summary[column], value, TOLERANCE


def _recall_numbers(row: Row, again: Mapping[str, _Again]) -> Iterator[Number]:
    own = [again[name] for name in row["runs"]]
    yield "seeds", row["seeds"], len(own), 0
    for column in ("reported_epoch", *(f"test_recall_at_{m}" for m in schemas.CUTOFFS)):
        values = [one.reported[column] for one in own]
        known = [value for value in values if value is not None]
        complete = len(known) == len(values)
        yield column, row[column], sum(known) / len(known) if complete else None, TOLERANCE
        if column != "reported_epoch":
            lower, upper = _t_interval(known) if complete and len(known) > 1 else (None, None)
            yield f"{column}_lower", row[f"{column}_lower"], lower, 1e-7
            yield f"{column}_upper", row[f"{column}_upper"], upper, 1e-7


def _speedup_numbers(row: Row, again: Mapping[str, _Again]) -> Iterator[Number]:
    own = {again[name].seed: again[name] for name in row["runs"]}
    bases = {again[name].seed: again[name] for name in row["baseline_runs"] or ()}
    pairs = [(one, bases[seed]) for seed, one in own.items() if seed in bases] if bases else []
    counted = [one for one, _ in pairs] or list(own.values())
    yield "seeds", row["seeds"], len(counted), 0
    for column, name in (
        ("full_iteration_seconds", "full"),
        ("step_iteration_seconds", "step"),
        ("item_slots", "item_slots"),
    ):
        yield column, row[column], _plain_mean([getattr(one, name) for one in counted]), TOLERANCE
    if not pairs or any(one.full is None for pair in pairs for one in pair):
        return
    references = [min(loss for _, loss in base.points) for _, base in pairs]
    own_reached = [_crossing(one.points, reference) for (one, _), reference in zip(pairs, references, strict=True)]
    base_reached = [_crossing(base.points, reference) for (_, base), reference in zip(pairs, references, strict=True)]
    reached = [value for value in own_reached if value is not None]
    complete = len(reached) == len(pairs)
    yield "reference_loss", row["reference_loss"], sum(references) / len(references), TOLERANCE
    yield "seeds_reached", row["seeds_reached"], len(reached), 0
    yield "iterations_to_reference", row["iterations_to_reference"], _plain_mean(own_reached), TOLERANCE
    seconds = [
        None if value is None or one.full is None else value * one.full
        for value, (one, _) in zip(own_reached, pairs, strict=True)
    ]
    yield "seconds_to_reference", row["seconds_to_reference"], _plain_mean(seconds), TOLERANCE
    # Where an arm did not arrive, its last iteration stands in: the ratio is smaller than that.
    needed = [one.points[-1][0] if value is None else value for value, (one, _) in zip(own_reached, pairs, strict=True)]
    ratios = [base / arm if base and arm else None for base, arm in zip(base_reached, needed, strict=True)]
    per = [_quotient(base.full, one.full) for one, base in pairs]
    steps = [_quotient(base.step, one.step) for one, base in pairs]
    totals = [None if a is None or b is None else a * b for a, b in zip(ratios, per, strict=True)]
    empty: list[float | None] = [None]
    timed = row["status"] != "different environment"
    yield from _ratio_numbers(row, "iterations_speedup", ratios if complete else empty)
    yield from _ratio_numbers(row, "per_iteration_speedup", per if timed else empty)
    yield from _ratio_numbers(row, "step_per_iteration_speedup", steps if timed else empty)
    yield from _ratio_numbers(row, "total_speedup", totals if complete and timed else empty)
    for name, values, shown in (("iterations", ratios, not complete), ("total", totals, not complete and timed)):
        column = f"{name}_speedup_at_most"
        yield column, row[column], _geometric(values) if shown else None, TOLERANCE


def _ratio_numbers(row: Row, column: str, values: Sequence[float | None]) -> Iterator[Number]:
    centre = _geometric(values)
    yield column, row[column], centre, TOLERANCE
    lower, upper, tolerance = None, None, 1e-7
    if centre is not None and len(values) > 1:
        lower, upper = _bootstrap(tuple(math.log(value) for value in values if value is not None))
        if len(values) > COUNTED_SEEDS:
            tolerance = math.expm1(DRAWN_TOLERANCE * max(math.log(upper / lower), 1e-6))
    yield f"{column}_lower", row[f"{column}_lower"], lower, tolerance
    yield f"{column}_upper", row[f"{column}_upper"], upper, tolerance


def _crossing(points: Sequence[tuple[float, float]], level: float) -> float | None:
    """Where the line through the points first meets the level from above."""
    if points[0][1] <= level:
        return points[0][0]
    for (x, y), (x_next, y_next) in itertools.pairwise(points):
        if y > level >= y_next:
            return x + (x_next - x) * (y - level) / (y - y_next)
    return None


def _quotient(above: float | None, below: float | None) -> float | None:
    return above / below if above and below else None


def _plain_mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if len(known) == len(values) else None


def _geometric(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return math.prod(known) ** (1 / len(known)) if known and len(known) == len(values) else None


def _t_interval(values: Sequence[float]) -> tuple[float, float]:
    centre = statistics.fmean(values)
    half = _t(len(values) - 1) * statistics.stdev(values) / math.sqrt(len(values))
    return centre - half, centre + half


@functools.cache
def _bootstrap(logs: tuple[float, ...]) -> tuple[float, float]:
    """2.5 and 97.5 % points of the mean of a resample, stretched by t sqrt(n / (n - 1)) / 1.96; exponentials."""
    n = len(logs)
    if n <= COUNTED_SEEDS:
        means = sorted(math.fsum(choice) / n for choice in itertools.product(logs, repeat=n))
    else:
        draw = random.Random(1)
        means = sorted(math.fsum(draw.choices(logs, k=n)) / n for _ in range(20_000))
    centre = math.fsum(logs) / n
    stretch = _t(n - 1) * math.sqrt(n / (n - 1)) / statistics.NormalDist().inv_cdf(0.975)
    ends = [means[math.ceil(share * len(means)) - 1] for share in (0.025, 0.975)]
    return math.exp(centre + stretch * (ends[0] - centre)), math.exp(centre + stretch * (ends[1] - centre))


@functools.cache
def _t(degrees: int) -> float:
    """The 97.5 % point of Student's t: Simpson's rule over the density, and bisection."""
    scale = math.gamma((degrees + 1) / 2) / (math.sqrt(degrees * math.pi) * math.gamma(degrees / 2))

    def below(t: float) -> float:
        # With x = tan(angle) sqrt(degrees) the density becomes a power of a cosine on a bounded interval.
        end, pieces = math.atan(t / math.sqrt(degrees)), 400
        heights = [math.cos(end * place / pieces) ** (degrees - 1) for place in range(pieces + 1)]
        total = heights[0] + heights[-1] + 4 * sum(heights[1:-1:2]) + 2 * sum(heights[2:-1:2])
        return 0.5 + scale * math.sqrt(degrees) * total * end / pieces / 3

    low, high = 0.0, 20.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if below(middle) < 0.975 else (low, middle)
    return (low + high) / 2
