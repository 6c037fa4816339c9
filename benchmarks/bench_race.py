"""Whether a race finds the soonest: recorded curves, played back to it.

    python benchmarks/bench_race.py [--share 0.1] [--searches FOLDER] [--cells PATTERNS]

A *field* is some arms that race: the runs of one folder of ``results/`` and one data set, or so
many random trials of a search (search_reference.py), drawn --draws times. A search ends its trials
early, so each is played on at its last value to the time of the longest. The budget is a share of
the time that all arms take, and all times are stretched alike so that it is ten minutes.

Regret is the time of the recommended arm to 0.95 of the best over that of the soonest of the arms
near the best, on whole curves; below 1 it was sooner than any of these, and ends lower. Target:
1.10 at most. The clock is counted, not waited for.
"""

from __future__ import annotations

import argparse
import math
import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np
from harness import FOLDER, Found, choose_cells
from measuring import time_to
from played_field import Points, played_race
from search_reference import SEARCHES, read

from ncfbench.errors import CheckFailedError
from ncfbench.racing.answer import make_answer
from ncfbench.racing.metric import Metric
from ncfbench.racing.question import Question
from ncfbench.reporting.frames import Run
from ncfbench.reporting.render.terminal import make_console, show
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
        name += f" {run.config.encoder} {run.config.loss}" * (measure == LOSS)
        if len(points) >= LEAST_LINES:
            found[name][run.name] = points
    return {name: [arms] for name, arms in found.items() if len(arms) >= LEAST_ARMS}


def searched_fields(folder: Path, draws: int) -> dict[str, list[Curves]]:
    """Return random fields of the searches of a folder, by data set and size."""
    fields: dict[str, list[Curves]] = {}
    for path in sorted(folder.glob("*.json.gz")):
        trials = [trial for trial in read(path)["trials"] if trial["seconds"]]
        longest = max(trial["seconds"][-1] for trial in trials)
        lines = (zip(trial["seconds"], trial["validation"], strict=True) for trial in trials)
        curves = {f"trial {n}": played_on([*points], longest) for n, points in enumerate(lines)}
        for size in SIZES:
            name = f"search of {path.name.removesuffix('.json.gz')}: {size} of {len(curves)} trials"
            for draw in range(draws):
                rng = np.random.default_rng([size, draw])
                chosen = rng.choice(len(curves), size, replace=False)
                arms = {f"trial {n}": curves[f"trial {n}"] for n in chosen}
                fields.setdefault(name, []).append(arms)
    return fields


def played_on(points: list[tuple[float, float]], longest: float) -> Points:
    """Return a curve with further lines at its last value, to the time of the longest curve."""
    while points[-1][0] < longest:
        at, value = points[-1]
        points.append((min(GROWTH * at, longest), value))
    return points


def regret_of(name: str | None, curves: Curves, *, is_loss: bool) -> float:
    """Return the regret of a recommendation on whole curves; infinity where none comes there."""
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
    return math.inf if name is None else times[name] / right


def play(curves: Curves, share: float, *, is_loss: bool) -> Found:
    """Race a field on a counted clock; return its size, its regret and what it took."""
    total = sum(points[-1][0] for points in curves.values())
    stretch = BUDGET_SECONDS / (share * total)
    played = {
        name: [(at * stretch, value) for at, value in points] for name, points in curves.items()
    }
    race, _ = played_race(played, Question(Metric("value", minimize=is_loss), BUDGET_SECONDS))
    best = None
    with suppress(CheckFailedError):  # no arm had a line in time
        race.run()
        best = make_answer(race.question, race.arms, race.clock.spent, is_over=True).best
    return {
        "arms": len(curves),
        "least_lines": min(map(len, curves.values())),
        "seconds": total,
        "regret": regret_of(best.name if best else None, curves, is_loss=is_loss),
    }


def table(groups: Mapping[str, Sequence[Found]], share: float) -> Table:
    """Return a row for each name of fields."""
    rows = [
        {
            **fields[0],
            "name": name,
            "within": f"{within(fields)} of {len(fields)}",
            "least_lines": min(field["least_lines"] for field in fields),
            "seconds": statistics.median(field["seconds"] for field in fields),
            "regret": statistics.median(field["regret"] for field in fields),
            "largest": max(field["regret"] for field in fields),
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
    every = [field for fields in groups.values() for field in fields]
    notes = [f"{within(every)} of {len(every)} fields within {MOST_REGRET:g}."]
    return Table.of(f"Races within {share:g} of the time", cols, rows, notes)


def within(fields: Sequence[Found]) -> int:
    """Return how many fields are within the target."""
    return sum(field["regret"] <= MOST_REGRET for field in fields)


def main(words: Sequence[str] | None = None) -> None:
    """Race the fields, and print a row for each folder, and for each search and size."""
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("--share", type=float, default=0.1)
    parser.add_argument("--searches", type=Path, default=SEARCHES)
    parser.add_argument("--draws", type=int, default=20)
    parser.add_argument("--cells", default="*", help="names or patterns, separated by commas")
    options = parser.parse_args(words)
    recall = recorded_fields(RECALL) | searched_fields(options.searches, options.draws)
    losses = recorded_fields(LOSS)
    played = {
        name: [play(field, options.share, is_loss=name in losses) for field in fields]
        for name, fields in choose_cells(options.cells, recall | losses).items()
    }
    show(make_console(), table(played, options.share))
    if any(within(fields) < len(fields) for fields in played.values()):
        raise SystemExit(CheckFailedError.exit_code)


if __name__ == "__main__":
    main()
