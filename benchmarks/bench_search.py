"""`ncfbench advise` asked again and again: does the same question have one answer, and does ten
minutes' advice find what a reference search of 100 trials finds, and name what gets there soonest?

    python benchmarks/bench_search.py --data-dir DIR   # 30 cells of 10 minutes on a quiet machine
    python benchmarks/bench_search.py --cells 'anime/*' --resume
    python benchmarks/bench_search.py --show
    python benchmarks/bench_search.py choices          # what each choice is worth; trains nothing

Each cell is a data set whose reference search is kept (search_reference.py), and a first seed of
all candidates. Advice gets the default question and its budget, in a process and a folder of its
own, and everything in it counts.

- Stable: the best validation recall of the recommended arms of a data set, a mean over the seeds
  of each, differs by at most 2 %, and all answers deploy the same of floor, trained and both, and
  say the same of training.
- Delivered: test recall@50 of what is deployed, beside that of the best floor.
- Training: its share of the time. Wanted: 0.6.
- Recall: test recall@50 of the recommended arm at its best validation, over that of the reference's
  best trial by validation. The same of validation recall, which decides, stands beside it.
- Time: training seconds, with those of the features, in which the recommended arm reaches 0.95 of
  its own best validation recall, over those of the soonest trial. Wanted: at most 1.3.

*Choices*: of the trials of each search the best validation recall with a value of a choice, as a
share of the best of all, and the seconds of training, with those of features, of the soonest trial
that has the value to 0.9 of the best of all. The search tried more often what did well, and ended
trials that had less than 0.7 of the best after a fifth of their time: a plus sign says that this
happened to the best trial of a value, which may be worth more.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any, ClassVar, NamedTuple

import numpy as np
from harness import RESULTS, Benchmark, Found, environment_notes
from measuring import ncfbench, time_to
from search_reference import RECALL, SEARCHES, Trial, best, read

from ncfbench.advice.space import Space
from ncfbench.errors import CheckFailedError
from ncfbench.reporting.frames import grouped
from ncfbench.reporting.render.terminal import make_console, show
from ncfbench.reporting.table import Col, Table
from ncfbench.runs import folder as runs
from ncfbench.statistics.ranking import SHARE
from ncfbench.timing import allocator

SETS = {
    "cite": "CiteULike",
    "plots": "plots",
    "anime": "anime",
    "yelp": "Yelp",
    "debian": "Debian",
    "ml-time": "ML by time",
}
SEEDS = 5
SPREAD, LEAST_TRAINING, TIMES = 0.02, 0.6, 1.3
"""Targets: see above."""
CHOICES = {
    "loss": ("softmax", "log", "sg"),
    "sampler": ("strat-ns", "ns", "neg"),
    "encoder": ("bow", "cnn", "mlp", "mf"),
    "user_tower": ("history", "table"),
}
SHARE_OF_ALL = 0.9


class Cell(NamedTuple):
    """A data set and the first seed."""

    dataset: str
    seed: int


class Curve(NamedTuple):
    """Quality over seconds of training; seconds of the features come before."""

    seconds: Sequence[float]
    validation: Sequence[float]
    test: Sequence[float]
    before: float = 0.0

    @property
    def top(self) -> int:
        """Index of the best validation."""
        return int(np.argmax(self.validation))

    def time_to(self, level: float) -> float:
        """Return the seconds to a validation recall, linear between evaluations; infinity where it
        is never reached.
        """
        looks = zip(self.seconds, self.validation, strict=True)
        return self.before + time_to(level, [(0.0, 0.0), *looks])


class Search(Benchmark):
    """A cell for each data set and seed."""

    name, file, rounds = "search", RESULTS / "search-cpu.json", 1
    options: ClassVar = {"searches": (SEARCHES, "the folder of the reference searches")}
    places = ("searches",)

    def cells(self, options: argparse.Namespace) -> Mapping[str, Cell]:
        cells = [Cell(name, 2 * at) for name in SETS for at in range(SEEDS)]
        return {f"{cell.dataset}/{cell.seed}": cell for cell in cells}

    def measure(self, name: str, cell: Cell, options: argparse.Namespace) -> Found:
        """Ask for advice, and compare what it recommends with the reference."""
        reference = read(options.searches / f"{cell.dataset}.json.gz")
        return compare(reference, ask(cell, options.data_dir))

    def missed(self, cells: Sequence[Found]) -> list[str]:
        """Return the targets that are missed."""
        lines = []
        for name, rows in _by_set(cells).items():
            if _spread(rows) > SPREAD:
                lines.append(f"{name}: validation recalls differ by {_spread(rows):.1%}.")
            if len({found["verdict"] for found in rows}) > 1:
                lines.append(f"{name}: the answers differ.")
        for found in cells:
            if found["training_share"] < LEAST_TRAINING:
                lines.append(f"{found['cell']}: {found['training_share']:.0%} was training.")
            if not found["time_ratio"] <= TIMES:
                times = f"{found['time_ratio']:.2f} times the soonest trial's time"
                lines.append(f"{found['cell']}: {times}.")
        return lines

    def tables(
        self, cells: Sequence[Found], environments: Mapping[str, Any]
    ) -> Iterator[Table | str]:
        columns = [
            Col("question", "cell"),
            Col("arm", "name"),
            Col("validation", "validation", ".3f"),
            Col(
                "over 100 trials'",
                lambda row: row["validation"] / row["reference_validation"],
                ".3f",
            ),
            Col("test", "recall", ".3f"),
            Col("their best", "reference_recall", ".3f"),
            Col("s to 0.95", "seconds", ".3g"),
            Col("times soonest", "time_ratio", ".2f"),
            Col("deployed", "verdict"),
            Col("its test", "deployed_recall", ".3f"),
            Col("floor's", "floor", ".3f"),
            Col("training", "training_share", ".2f"),
        ]
        yield Table.of("Advice of ten minutes, beside a search of 100 trials", columns, cells)
        columns = [
            Col("data", lambda row: row[0]),
            Col("questions", lambda row: len(row[1])),
            Col("arms", lambda row: len({found["name"] for found in row[1]})),
            Col("validation recalls differ by", lambda row: _spread(row[1]), ".1%"),
            Col("answers", lambda row: len({found["verdict"] for found in row[1]})),
            Col("least training", lambda row: min(f["training_share"] for f in row[1]), ".2f"),
        ]
        notes = [*environment_notes(cells, environments)]
        yield Table.of("The same question", columns, [*_by_set(cells).items()], notes=notes)


def _by_set(cells: Sequence[Found]) -> dict[str, list[Found]]:
    return grouped(cells, lambda found: str(found["cell"].partition("/")[0]))


def _spread(cells: Sequence[Found]) -> float:
    recalls = [found["mean_validation"] for found in cells]
    return float(max(recalls) / min(recalls) - 1)


def ask(cell: Cell, data_dir: Path) -> dict[str, Any]:
    """Return the answer of a new race, and the curve of what it recommends as ``arm``."""
    words = ["advise", cell.dataset, "--json", "--budget=10m"]
    with tempfile.TemporaryDirectory(prefix="ncfbench-search-") as folder:
        words += [f"--set=seed={cell.seed}", f"--data-dir={data_dir}", f"--runs-dir={folder}"]
        # The reference's trials have the allocator that Python has.
        code, output = ncfbench(words, {allocator.VARIABLE: "none"})
        if code:
            raise CheckFailedError(f"advise ended with {code}.")
        answer: dict[str, Any] = json.loads(output)
        (best_arm,) = (arm for arm in answer["arms"] if arm["status"] == "recommended")
        records = [runs.read(Path(answer["folder"]) / name) for name in best_arm["runs"]]
    column = f"validation_{RECALL}"
    curves = [[row for row in of.curve if row[column] is not None] for of in records]
    record, rows = records[0], curves[0]
    pace = record.summary["full_iteration_seconds"]
    return answer | {
        "name": best_arm["name"],
        "mean_validation": fmean(max(row[column] for row in curve) for curve in curves),
        "arm": {
            "seconds": [row["iteration"] * pace for row in rows],
            "validation": [row[column] for row in rows],
            "test": [row[f"test_{RECALL}"] for row in rows],
            "before": record.feature_seconds,
        },
    }


def compare(reference: Mapping[str, Any], answer: Mapping[str, Any]) -> Found:
    """Return the figures of a cell, from its reference and the answer with its arm."""
    curves = [curve_of(trial, reference) for trial in reference["trials"] if trial["validation"]]
    arm = Curve(**answer["arm"])
    first = max(curves, key=lambda curve: curve.validation[curve.top])
    level = SHARE * arm.validation[arm.top]
    seconds, soonest = arm.time_to(level), min(curve.time_to(level) for curve in [arm, *curves])
    deploy = answer["deploy"]
    against = any(line.startswith("Training is not") for line in deploy["lines"])
    floors = [floor["test_recall_at_50"] for floor in answer["floors"]]
    return {
        "trials": len(curves),
        "reference_recall": first.test[first.top],
        "reference_validation": first.validation[first.top],
        "recall": arm.test[arm.top],
        "validation": arm.validation[arm.top],
        "recall_share": arm.test[arm.top] / first.test[first.top],
        "seconds": seconds,
        "soonest_seconds": soonest,
        "time_ratio": seconds / soonest,
        "floor": max(floors, default=None),
        "name": answer["name"],
        "mean_validation": answer["mean_validation"],
        "verdict": deploy["what"] + " (not worth training)" * against,
        "deployed_validation": deploy["validation_recall"],
        "deployed_recall": deploy["recall"],
        "training_share": answer["training_seconds"] / answer["spent_seconds"],
        "lines": deploy["lines"],
    }


def curve_of(trial: Trial, reference: Mapping[str, Any]) -> Curve:
    """Return the curve of a recorded trial, by its iterations and the seconds of one."""
    config, pace = Space({}, {}).config(trial["config"]), trial["iteration_seconds"]
    seconds = [iteration * pace for iteration in trial["iterations"]]
    reads = config.reads_item_features or config.reads_history_features
    before = reference["feature_seconds"] * reads
    return Curve(seconds, trial["validation"], trial["test"], before)


class Worth(NamedTuple):
    """The worth of a value of a choice: share of the best recall, seconds to 0.9 of it, and whether
    the best of its trials was ended early, as hopeless.
    """

    share: float
    seconds: float
    is_cut: bool = False


def worth(search: Mapping[str, Any], choice: str, value: str) -> Worth | None:
    """Return what a value is worth in a search; None where no trial has it."""
    trials: Sequence[Trial] = [trial for trial in search["trials"] if trial["validation"]]
    top = max(map(best, trials))
    tried = [trial for trial in trials if trial["config"].get(choice) == value]
    if not tried:
        return None
    seconds = min(curve_of(trial, search).time_to(SHARE_OF_ALL * top) for trial in tried)
    first = max(tried, key=best)
    return Worth(best(first) / top, seconds, first["status"] == "hopeless")


def choices_table() -> Table:
    """Return the table of docs/results.md: the soonest value of each choice first."""
    searches = {name: read(SEARCHES / f"{name}.json.gz") for name in SETS}

    def cell(choice: str, name: str) -> str:
        worths = {value: worth(searches[name], choice, value) for value in CHOICES[choice]}
        tried = [(value, of) for value, of in worths.items() if of is not None]
        tried.sort(key=lambda row: (row[1].seconds, -row[1].share))
        return ", ".join(f"{value} {_shown(of)}" for value, of in tried)

    cols = [Col(name.replace("_", " "), partial(cell, name)) for name in CHOICES]
    title = "Best recall, and seconds to 0.9 of the best of all"
    return Table.of(title, [Col("", SETS.get), *cols], [*SETS])


def _shown(worth: Worth) -> str:
    seconds = f"{worth.seconds:.3g} s" if math.isfinite(worth.seconds) else "never"
    return f"{worth.share:.2f}{'+' if worth.is_cut else ''} ({seconds})"


if __name__ == "__main__":
    if sys.argv[1:] == ["choices"]:
        show(make_console(), choices_table())
    else:
        Search().main()
