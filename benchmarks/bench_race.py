"""Whether a race finds the soonest: recorded curves, played back to it.

    python benchmarks/bench_race.py [--share 0.1] [--searches FOLDER] [--speed 0] [--only TEXT]

A *field* is some arms that race: the runs of one folder of ``results/`` and one data set, or so
many random trials of a search (search_reference.py), drawn --draws times. A search ends its trials
early, so each is played on at its last value to the time of the longest. The budget is a share of
the time that all arms take, and all times are stretched alike so that it is ten minutes.

Regret is the time of the recommended arm to 95 % of the best over that of the soonest of the arms
near the best, on whole curves; below 1 it was sooner than any of these, and ends lower. Target:
1.10 at most. The clock is counted, not waited for. With --speed, processes play the curves too, so
many times as fast, and the answers of both races are compared.
"""

from __future__ import annotations

import argparse
import gzip
import json
import math
import statistics
import sys
import tempfile
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from played_field import PlayedField, Points

from ncfbench.errors import CheckFailedError
from ncfbench.racing import pipeline
from ncfbench.racing.answer import make_answer
from ncfbench.racing.arms import Arm
from ncfbench.racing.entry import Entry
from ncfbench.racing.metric import Metric
from ncfbench.racing.question import Question
from ncfbench.racing.race import Race
from ncfbench.reporting.frames import Run
from ncfbench.reporting.render.terminal import make_console, show
from ncfbench.reporting.table import Col, Table
from ncfbench.runs import folder as runs
from ncfbench.storage import tables
from ncfbench.timing.ranking import NEAR, SHARE

RESULTS = Path(__file__).parents[1] / "results"
SEARCHES = Path(__file__).with_name("results") / "searches"
PLAYER = Path(__file__).with_name("play_curve.py")
MOST_REGRET = 1.10
RECALL, LOSS = "validation_recall_at_50", "probe_loss"
LEAST_LINES, LEAST_ARMS = 5, 4
"""A field of ``results/`` has so many arms at least, whose curves have so many values."""
SIZES = (12, 25)
"""Arms of a field of a search."""
BUDGET_SECONDS, TURN_SECONDS = 600.0, 5.0
GROWTH = 1.25
"""Of the time from line to line where a trial is played on, as in its search."""
Curves = Mapping[str, Points]


def recorded_fields(measure: str) -> dict[str, list[Curves]]:
    """Return the curves of ``results/`` by data set and folder; for losses also by encoder and
    loss, since others differ in their scale.
    """
    found: dict[str, dict[str, Points]] = defaultdict(dict)
    for path in sorted(RESULTS.glob("*/*/curve.parquet")):
        run = Run.of(runs.read(path.parent))
        if run.config.seed or run.seconds is None:
            continue
        points = [
            (row["iteration"] * run.seconds, row[measure])
            for row in run.curve
            if row[measure] is not None and (row["iteration"] or measure == LOSS)
        ]
        name = f"{path.parents[1].name}, {run.config.dataset}"
        name += f", {run.config.encoder} {run.config.loss}" if measure == LOSS else ""
        if len(points) >= LEAST_LINES:
            found[name][path.parent.name] = points
    return {name: [arms] for name, arms in found.items() if len(arms) >= LEAST_ARMS}


def searched_fields(folder: Path, draws: int) -> dict[str, list[Curves]]:
    """Return random fields of the searches of a folder, by data set and size."""
    found: dict[str, list[Curves]] = {}
    for path in sorted(folder.glob("*.json.gz")):
        with gzip.open(path, "rt") as file:
            trials = [each for each in json.load(file)["trials"] if each["seconds"]]
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
            name = f"search of {path.name.removesuffix('.json.gz')}, {size} of {len(curves)} trials"
            found[name] = [{f"trial {n}": curves[n] for n in numbers} for numbers in chosen]
    return found


def played_on(points: list[tuple[float, float]], longest: float) -> Points:
    """Return a curve with further lines at its last value, to the time of the longest curve."""
    while points[-1][0] < longest:
        at, value = points[-1]
        points.append((min(GROWTH * at, longest), value))
    return points


def time_to(level: float, points: Points) -> float:
    """Return the seconds at which a curve rises to a level; infinity if it never does."""
    before = (0.0, 0.0)
    for at, value in points:
        if value >= level:
            share = (level - before[1]) / (value - before[1]) if at > before[0] else 0.0
            return before[0] + share * (at - before[0])
        before = (at, value)
    return math.inf


def regret_of(name: str | None, curves: Curves, *, is_loss: bool) -> float:
    """Return the regret of a recommendation on whole curves: infinity for none."""
    start = statistics.median(points[0][1] for points in curves.values()) if is_loss else 0.0
    sign = -1 if is_loss else 1
    risen = {
        arm: [(at, sign * (value - start)) for at, value in points]
        for arm, points in curves.items()
    }
    tops = {arm: max(value for _, value in points) for arm, points in risen.items()}
    best = max(tops.values())
    times = {arm: time_to(SHARE * best, points) for arm, points in risen.items()}
    right = min(times[arm] for arm in curves if tops[arm] >= NEAR * best)
    return math.inf if name is None else times[name] / right


def raced(curves: Curves, budget: float, turn: float, *, is_loss: bool) -> tuple[str | None, float]:
    """Return the recommended arm of a race whose clock is counted, and the seconds it took."""
    metric, field = Metric("value", is_less_better=is_loss), PlayedField(curves)
    entries = [Entry(Arm(name, name), 0, number) for number, name in enumerate(curves)]
    race = Race(Question(metric, budget, turn_seconds=turn), entries, field)
    try:
        race.run()
    except CheckFailedError:  # no arm had a line in time
        return None, budget
    best = make_answer(race.question, race.entries, race.spent, is_over=True).best
    return None if best is None else best.name, field.seconds


def raced_by_processes(curves: Curves, budget: float, turn: float, *, is_loss: bool) -> str | None:
    """Return the recommended arm of a race of processes that play the curves."""
    with tempfile.TemporaryDirectory() as folder, suppress(CheckFailedError):
        file = Path(folder) / "curves.json"
        file.write_text(json.dumps(curves))
        outcome = pipeline.race(
            f"{sys.executable} -S {PLAYER} {file} '{{arm}}'",
            parameters={"arm": [*curves]},
            budget_seconds=budget,
            metric="value",
            minimize=is_loss,
            turn_seconds=turn,
            runs_dir=folder,
        )
        best = outcome.answer.best
        return None if best is None else best.entry.arm.values["arm"]
    return None


def play(curves: Curves, share: float, speed: float, *, is_loss: bool) -> dict[str, Any]:
    """Race a field, and return its size, its regret and what it took."""
    total = sum(points[-1][0] for points in curves.values())
    budget, turn = BUDGET_SECONDS / (speed or 1), TURN_SECONDS / (speed or 1)
    stretch = budget / (share * total)
    played = {
        name: [(at * stretch, value) for at, value in points] for name, points in curves.items()
    }
    best, took = raced(played, budget, turn, is_loss=is_loss)
    found = {
        "arms": len(curves),
        "least_lines": min(map(len, curves.values())),
        "seconds": total,
        "share": share * took / budget,
        "best": best,
        "regret": regret_of(best, curves, is_loss=is_loss),
    }
    if speed:
        live = raced_by_processes(played, budget, turn, is_loss=is_loss)
        found |= {"live": live, "live_regret": regret_of(live, curves, is_loss=is_loss)}
    return found


def table(groups: Mapping[str, list[dict[str, Any]]], share: float) -> Table:
    rows = [
        (
            name,
            f"{within(fields)} of {len(fields)}",
            fields[0]["arms"],
            min(each["least_lines"] for each in fields),
            statistics.median(each["seconds"] for each in fields),
            statistics.median(each["regret"] for each in fields),
            max(each["regret"] for each in fields),
        )
        for name, fields in groups.items()
    ]
    cols = [
        Col("fields", 0),
        Col("within", 1),
        Col("arms", 2),
        Col("least lines", 3),
        Col("s of all", 4, ",.0f"),
        Col("regret", 5, ".2f"),
        Col("largest", 6, ".2f"),
    ]
    every = [each for fields in groups.values() for each in fields]
    notes = [f"{within(every)} of {len(every)} fields within {MOST_REGRET:g}."]
    if "live" in every[0]:
        alike = sum(each["live"] == each["best"] for each in every)
        near = within(every, "live_regret")
        notes.append(f"Played by processes, {near} within; {alike} gave the same answer.")
    return Table.of(f"Races within {share:g} of the time", cols, rows, notes)


def within(fields: Sequence[Mapping[str, Any]], which: str = "regret") -> int:
    """Return how many fields are within the target."""
    return sum(each[which] <= MOST_REGRET for each in fields)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--share", type=float, default=0.1)
    parser.add_argument("--searches", type=Path, default=SEARCHES)
    parser.add_argument("--draws", type=int, default=20)
    parser.add_argument("--speed", type=float, default=0.0)
    parser.add_argument("--only", default="", help="fields whose names hold this text")
    parser.add_argument("--json", type=Path, help="file to which the races are written")
    asked = parser.parse_args()
    groups = {
        name: [play(each, asked.share, asked.speed, is_loss=measure == LOSS) for each in fields]
        for measure, some in (
            (RECALL, recorded_fields(RECALL) | searched_fields(asked.searches, asked.draws)),
            (LOSS, recorded_fields(LOSS)),
        )
        for name, fields in some.items()
        if asked.only in name
    }
    show(make_console(), table(groups, asked.share))
    if asked.json is not None:
        kept = {
            name: [
                {key: None if value == math.inf else value for key, value in each.items()}
                for each in fields
            ]
            for name, fields in groups.items()
        }
        tables.write_json(asked.json, {"benchmark": "race", "share": asked.share, "fields": kept})
    is_met = all(within(fields) == len(fields) for fields in groups.values())
    sys.exit(0 if is_met else CheckFailedError.exit_code)


if __name__ == "__main__":
    main()
