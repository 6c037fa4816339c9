"""Whether a race finds the soonest: recorded curves, played back to it.

    python benchmarks/bench_race.py [--share 0.1] [--searches FOLDER] [--cells PATTERNS]

A *field* is some arms that race: the runs of one folder of ``results/`` and one data set, or so
many random trials of a search (search_reference.py), drawn --draws times. A search ends its trials
early, so each is played on at its last value to the time of the longest. The budget is a share of
the time that all arms take, and all times are stretched alike so that it is ten minutes.

Regret is the time of the recommended arm to 95 % of the best over that of the soonest of the arms
near the best, on whole curves; below 1 it was sooner than any of these, and ends lower. Target:
1.10 at most. The clock is counted, not waited for.
"""

from __future__ import annotations

import argparse
import math
import statistics
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from harness import FOLDER, Benchmark, Found
from measuring import time_to
from played_field import Points, played_race
from search_reference import SEARCHES, read

from ncfbench.errors import CheckFailedError
from ncfbench.racing.answer import make_answer
from ncfbench.racing.metric import Metric
from ncfbench.racing.question import Question
from ncfbench.reporting.frames import Run
from ncfbench.reporting.table import Col, Table
from ncfbench.runs import folder as runs
from ncfbench.statistics.ranking import NEAR, SHARE

MOST_REGRET = 1.10
RECALL, LOSS = "validation_recall_at_50", "probe_loss"
LEAST_LINES, LEAST_ARMS = 5, 4
"""A field of ``results/`` has so many arms at least, whose curves have so many values."""
SIZES = (12, 25)
"""Arms of a field of a search."""
BUDGET_SECONDS = 600.0
GROWTH = 1.25
"""Factor of the time from line to line where a trial is played on, as in its search."""
Curves = Mapping[str, Points]


class Races(Benchmark):
    """A cell for the fields of a folder, or of a search and a size."""

    name, rounds = "race", 1
    options: ClassVar = {
        "share": (0.1, "of the time that all arms take"),
        "searches": (SEARCHES, "a folder of reference searches"),
        "draws": (20, "fields of each search and size"),
    }
    places = ("searches",)

    def cells(self, options: argparse.Namespace) -> Mapping[str, tuple[list[Curves], bool]]:
        if options.quick:
            options.draws = 1
        recall = recorded_fields(RECALL) | searched_fields(options.searches, options.draws)
        found = {name: (fields, False) for name, fields in recall.items()}
        return found | {name: (fields, True) for name, fields in recorded_fields(LOSS).items()}

    def measure(
        self, name: str, cell: tuple[list[Curves], bool], options: argparse.Namespace
    ) -> Found:
        fields, is_loss = cell
        return {"fields": [play(each, options.share, is_loss=is_loss) for each in fields]}

    def missed(self, cells: Sequence[Found]) -> list[str]:
        counts = {cell["cell"]: (within(cell["fields"]), len(cell["fields"])) for cell in cells}
        return [f"{name}: {near} of {of}" for name, (near, of) in counts.items() if near < of]

    def tables(self, cells: Sequence[Found], environments: Mapping[str, Any]) -> Iterator[Table]:
        yield table({cell["cell"]: cell["fields"] for cell in cells}, cells[0]["settings"]["share"])


def recorded_fields(measure: str) -> dict[str, list[Curves]]:
    """Return the curves of ``results/`` by data set and folder; for losses also by encoder and
    loss, since others differ in their scale.
    """
    found: dict[str, dict[str, Points]] = defaultdict(dict)
    folders = sorted((FOLDER.parent / "results").iterdir())
    for run in (Run.of(record) for folder in folders for record in runs.read_all(folder)[0]):
        if run.config.seed or not run.is_timed:
            continue
        points = [
            (row["iteration"] * run.seconds, row[measure])
            for row in run.curve
            if row[measure] is not None and (row["iteration"] or measure == LOSS)
        ]
        name = f"{run.folder.parent.name} {run.config.dataset}"
        name += f" {run.config.encoder} {run.config.loss}" if measure == LOSS else ""
        if len(points) >= LEAST_LINES:
            found[name][run.name] = points
    return {name: [arms] for name, arms in found.items() if len(arms) >= LEAST_ARMS}


def searched_fields(folder: Path, draws: int) -> dict[str, list[Curves]]:
    """Return random fields of the searches of a folder, by data set and size."""
    found: dict[str, list[Curves]] = {}
    for path in sorted(folder.glob("*.json.gz")):
        trials = [each for each in read(path)["trials"] if each["seconds"]]
        longest = max(each["seconds"][-1] for each in trials)
        curves = [
            played_on([*zip(each["seconds"], each["validation"], strict=True)], longest)
            for each in trials
        ]
        for size in SIZES:
            if size > len(curves):
                continue
            chosen = [
                np.random.default_rng([size, draw]).choice(len(curves), size, replace=False)
                for draw in range(draws)
            ]
            name = f"search of {path.name.removesuffix('.json.gz')}: {size} of {len(curves)} trials"
            found[name] = [{f"trial {n}": curves[n] for n in numbers} for numbers in chosen]
    return found


def played_on(points: list[tuple[float, float]], longest: float) -> Points:
    """Return a curve with further lines at its last value, to the time of the longest curve."""
    while points[-1][0] < longest:
        at, value = points[-1]
        points.append((min(GROWTH * at, longest), value))
    return points


def regret_of(name: str | None, curves: Curves, *, is_loss: bool) -> float | None:
    """Return the regret of a recommendation on whole curves; None without one that comes there."""
    start = statistics.median(points[0][1] for points in curves.values()) if is_loss else 0.0
    sign = -1 if is_loss else 1
    risen = {
        arm: [(at, sign * (value - start)) for at, value in points]
        for arm, points in curves.items()
    }
    tops = {arm: max(value for _, value in points) for arm, points in risen.items()}
    best = max(tops.values())
    times = {arm: time_to(SHARE * best, [(0.0, 0.0), *points]) for arm, points in risen.items()}
    right = min(times[arm] for arm in curves if tops[arm] >= NEAR * best)
    return None if name is None or times[name] == math.inf else times[name] / right


def raced(curves: Curves, *, is_loss: bool) -> tuple[str | None, float]:
    """Return the recommended arm of a race whose clock is counted, and the seconds it took."""
    metric = Metric("value", minimize=is_loss)
    race, _ = played_race(curves, Question(metric, BUDGET_SECONDS))
    try:
        race.run()
    except CheckFailedError:  # no arm had a line in time
        return None, BUDGET_SECONDS
    best = make_answer(race.question, race.arms, race.clock.spent, is_over=True).best
    return None if best is None else best.name, race.clock.spent


def play(curves: Curves, share: float, *, is_loss: bool) -> dict[str, Any]:
    """Race a field, and return its size, its regret and what it took."""
    total = sum(points[-1][0] for points in curves.values())
    stretch = BUDGET_SECONDS / (share * total)
    played = {
        name: [(at * stretch, value) for at, value in points] for name, points in curves.items()
    }
    best, took = raced(played, is_loss=is_loss)
    return {
        "arms": len(curves),
        "least_lines": min(map(len, curves.values())),
        "seconds": total,
        "share": share * took / BUDGET_SECONDS,
        "best": best,
        "regret": regret_of(best, curves, is_loss=is_loss),
    }


def table(groups: Mapping[str, list[Found]], share: float) -> Table:
    """Return a row for each name of fields."""
    rows = [
        {
            **fields[0],
            "name": name,
            "within": f"{within(fields)} of {len(fields)}",
            "least_lines": min(each["least_lines"] for each in fields),
            "seconds": statistics.median(each["seconds"] for each in fields),
            "regret": statistics.median(map(regret, fields)),
            "largest": max(map(regret, fields)),
        }
        for name, fields in groups.items()
    ]
    cols = [
        Col("fields", "name"),
        Col("within", "within"),
        Col("arms", "arms"),
        Col("least lines", "least_lines"),
        Col("s of all", "seconds", ",.0f"),
        Col("regret", "regret", ".2f"),
        Col("largest", "largest", ".2f"),
    ]
    every = [each for fields in groups.values() for each in fields]
    notes = [f"{within(every)} of {len(every)} fields within {MOST_REGRET:g}."]
    return Table.of(f"Races within {share:g} of the time", cols, rows, notes)


def within(fields: Sequence[Found]) -> int:
    """Return how many fields are within the target."""
    return sum(regret(each) <= MOST_REGRET for each in fields)


def regret(field: Found) -> float:
    """Return the kept regret of a field: infinity for none."""
    return math.inf if field["regret"] is None else float(field["regret"])


if __name__ == "__main__":
    Races().main()
