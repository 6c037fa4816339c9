"""How much the times differ at which seeds of one arm reach a level, in the kept results.

    python benchmarks/seed_spread.py

The level is 95 % of the best validation recall@50, or of the fall of the probe loss, that the
arm's seeds reach on average; times are iterations, so that no machine disturbs them. A deviation is
that of their logarithms, pooled over the arms of a data set with two seeds or more.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from pathlib import Path

from ncfbench.config import identity_of
from ncfbench.runs import folder as runs
from ncfbench.runs.curves import curve_of
from ncfbench.runs.folder import RunRecord
from ncfbench.statistics.intervals import Spread
from ncfbench.statistics.ranking import SHARE

RESULTS = Path(__file__).resolve().parents[1] / "results"
MEASURES = {"recall@50": "validation_recall_at_50", "probe loss": "probe_loss"}
NAMES = {"citeulike": "cite", "movielens": "plots"}


def arms(folder: Path = RESULTS) -> dict[str, list[list[RunRecord]]]:
    """Return the runs of each arm with two seeds or more, by data set."""
    runs_of: dict[tuple[Path, str], list[RunRecord]] = {}
    for path in sorted(folder.iterdir()):
        for record in runs.read_all(path)[0]:
            arm = str(identity_of(record.config) | {"seed": None})
            runs_of.setdefault((path, arm), []).append(record)
    of_data: dict[str, list[list[RunRecord]]] = {}
    for alike in runs_of.values():
        if len(alike) > 1:
            name = alike[0].config.dataset.removesuffix("-20")  # texts cut to 20 words
            of_data.setdefault(NAMES.get(name, name), []).append(alike)
    return of_data


def spread(arms: Sequence[Sequence[RunRecord]], column: str) -> Spread | None:
    """Return the spread of some arms, pooled; None where no two seeds come to the level."""
    squares, degrees = 0.0, 0
    for seeds in arms:
        if any(all(row[column] is None for row in record.curve) for record in seeds):
            continue
        curves = [curve_of(record, column, 0.0) for record in seeds]
        start = statistics.fmean(curve.losses[0] for curve in curves)
        best = statistics.fmean(curve.level for curve in curves)
        level = (1 - SHARE) * (start if column == "probe_loss" else 0.0) + SHARE * best
        times = [curve.time_to(level) for curve in curves]
        pairs = zip(times, curves, strict=True)
        reached = [math.log(at / curve.full_iteration_seconds) for at, curve in pairs if at]
        if len(reached) > 1:
            squares += statistics.variance(reached) * (len(reached) - 1)
            degrees += len(reached) - 1
    return Spread(math.sqrt(squares / degrees), degrees) if degrees else None


def spreads() -> dict[str, dict[str, Spread]]:
    """Return the spread of each measure on each data set, by measure."""
    by_data = arms()
    return {
        name: {data: of for data, seeds in by_data.items() if (of := spread(seeds, column))}
        for name, column in MEASURES.items()
    }


def typical(spreads: Iterable[Spread]) -> float:
    """Return the geometric mean of deviations."""
    return statistics.geometric_mean(spread.deviation for spread in spreads)


def main() -> None:
    for name, rows in spreads().items():
        print(f"Log iterations to {SHARE:.0%} of {name}: {typical(rows.values()):.2f} on average")
        for data, of in rows.items():
            print(f"{data:8} {of.deviation:.2f} ({of.degrees} degrees of freedom)")


if __name__ == "__main__":
    main()
