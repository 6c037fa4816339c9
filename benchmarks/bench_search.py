"""`ncfbench advise` asked again and again: does the same question have one answer, and does ten
minutes' advice find what a reference search of 100 trials finds, and name what gets there soonest?

    python benchmarks/bench_search.py --data-dir DIR   # 30 cells of 10 minutes on a quiet machine
    python benchmarks/bench_search.py --cells 'anime/*' --resume
    python benchmarks/bench_search.py --show

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
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from statistics import fmean
from typing import Any, ClassVar

import numpy as np
from harness import RESULTS, TINY, Benchmark, Found, environment_notes
from measuring import ncfbench, time_to
from search_reference import RECALL, SEARCHES, Trial, read

from ncfbench.advice.space import Space
from ncfbench.reporting.frames import grouped
from ncfbench.reporting.table import Col, Table
from ncfbench.runs import folder as runs
from ncfbench.statistics.ranking import SHARE
from ncfbench.timing import allocator


@dataclass(frozen=True)
class Cell:
    """A data set, the first seed, and the wall time of a race."""

    dataset: str
    seed: int = 0
    budget_seconds: float = 600.0


SETS = ("cite", "plots", "anime", "yelp", "debian", "ml-time")
SEEDS = 5
SPREAD, LEAST_TRAINING, TIMES = 0.02, 0.6, 1.3
"""Targets: see above."""


@dataclass(frozen=True)
class Curve:
    """Quality over seconds of training.

    Attributes:
        before: seconds of the features, which come first.
    """

    seconds: Sequence[float]
    validation: Sequence[float]
    test: Sequence[float]
    before: float = 0.0

    @cached_property
    def top(self) -> int:
        """Place of the best validation."""
        return int(np.argmax(self.validation))

    def time_to(self, level: float) -> float:
        """Return the seconds to a validation recall, linear between evaluations; infinity where it
        is never reached.
        """
        looks = zip(self.seconds, self.validation, strict=True)
        return self.before + time_to(level, [(0.0, 0.0), *looks])


class Search(Benchmark):
    """A cell for each data set whose reference search is kept."""

    name, file, rounds = "search", RESULTS / "search-cpu.json", 1
    options: ClassVar = {"searches": (SEARCHES, "the folder of the reference searches")}
    places = ("searches",)

    def cells(self, options: argparse.Namespace) -> Mapping[str, Cell]:
        sets, seconds = ([TINY], 60.0) if options.quick else (SETS, 600.0)
        there = {path.name.partition(".")[0] for path in options.searches.glob("*.json.gz")}
        found = [Cell(name, 2 * at, seconds) for name in sets for at in range(SEEDS)]
        return {f"{cell.dataset}/{cell.seed}": cell for cell in found if cell.dataset in there}

    def measure(self, name: str, cell: Cell, options: argparse.Namespace) -> Found:
        """Ask for advice, and compare what it recommends with the reference."""
        reference = read(options.searches / f"{cell.dataset}.json.gz")
        answer = ask(cell, options.data_dir)
        return compare(reference, answer)

    def missed(self, cells: Sequence[Found]) -> list[str]:
        """Return the targets that are missed."""
        lines = []
        for name, own in _by_set(cells).items():
            if _spread(own) > SPREAD:
                lines.append(f"{name}: validation recalls differ by {_spread(own):.1%}.")
            if len({found["verdict"] for found in own}) > 1:
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
            Col("share of 100 trials'", _validation_share, ".3f"),
            Col("test", "recall", ".3f"),
            Col("their best", "reference_recall", ".3f"),
            Col("s to 0.95", "seconds", ".3g"),
            Col("times soonest", "time_ratio", ".2f"),
            Col("deployed", "verdict"),
            Col("its test", "deployed_recall", ".3f"),
            Col("floor's", "floor", ".3f"),
            Col("training", "training_share", ".2f"),
        ]
        title = "Advice of ten minutes, beside a search of 100 trials"
        yield Table.of(title, columns, cells)
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


def _validation_share(found: Found) -> float:
    return float(found["validation"] / found["reference_validation"])


def ask(cell: Cell, data_dir: Path) -> dict[str, Any]:
    """Return the answer of a new race, and the curve of what it recommends as ``arm``."""
    words = [
        "advise",
        cell.dataset,
        "--json",
        f"--budget={cell.budget_seconds:.0f}s",
        f"--set=seed={cell.seed}",
    ]
    with tempfile.TemporaryDirectory(prefix="ncfbench-search-") as folder:
        words += [f"--data-dir={data_dir}", f"--runs-dir={folder}"]
        # The reference's trials have the allocator that Python has.
        answer: dict[str, Any] = json.loads(ncfbench(words, {allocator.VARIABLE: "none"}).output)
        (best,) = (each for each in answer["arms"] if each["status"] == "recommended")
        records = [runs.read(Path(answer["folder"]) / name) for name in best["runs"]]
    curves = [_evaluated(record) for record in records]
    record, rows = records[0], curves[0]
    seconds = record.summary["full_iteration_seconds"]
    return answer | {
        "name": best["name"],
        "mean_validation": fmean(max(row[f"validation_{RECALL}"] for row in c) for c in curves),
        "arm": {
            "seconds": [row["iteration"] * seconds for row in rows],
            "validation": [row[f"validation_{RECALL}"] for row in rows],
            "test": [row[f"test_{RECALL}"] for row in rows],
            "before": record.feature_seconds,
        },
    }


def _evaluated(record: runs.RunRecord) -> list[Mapping[str, Any]]:
    return [row for row in record.curve if row[f"validation_{RECALL}"] is not None]


def compare(reference: Mapping[str, Any], answer: Mapping[str, Any]) -> Found:
    """Return the figures of a cell, from its reference and the answer with its arm."""
    trials = [each for each in reference["trials"] if each["validation"]]
    curves = [curve_of(each, reference) for each in trials]
    own = Curve(**answer["arm"])
    best = max(curves, key=lambda curve: curve.validation[curve.top])
    level = SHARE * own.validation[own.top]
    soonest = min([own, *curves], key=lambda curve: curve.time_to(level))
    floors = [each["test_recall_at_50"] for each in answer["floors"]]
    against = any(line.startswith("Training is not") for line in answer["deploy"]["lines"])
    seconds = own.time_to(level)
    return {
        "trials": len(trials),
        "reference_recall": best.test[best.top],
        "reference_validation": best.validation[best.top],
        "recall": own.test[own.top],
        "validation": own.validation[own.top],
        "recall_share": own.test[own.top] / best.test[best.top],
        "seconds": seconds,
        "soonest_seconds": soonest.time_to(level),
        "time_ratio": seconds / soonest.time_to(level),
        "floor": max(floors, default=None),
        "name": answer["name"],
        "mean_validation": answer["mean_validation"],
        "verdict": answer["deploy"]["what"] + " (not worth training)" * against,
        "deployed_validation": answer["deploy"]["validation_recall"],
        "deployed_recall": answer["deploy"]["recall"],
        "training_share": answer["training_seconds"] / answer["spent_seconds"],
        "lines": answer["deploy"]["lines"],
    }


def curve_of(trial: Trial, reference: Mapping[str, Any]) -> Curve:
    """Return the curve of a recorded trial, by its iterations and the seconds of one."""
    config, pace = Space({}, {}).config(trial["config"]), trial["iteration_seconds"]
    seconds = [iteration * pace for iteration in trial["iterations"]]
    reads = config.reads_item_features or config.reads_history_features
    return Curve(
        seconds,
        trial["validation"],
        trial["test"],
        before=reference["feature_seconds"] * reads,
    )


if __name__ == "__main__":
    Search().main()
