"""`ncfbench advise` beside a reference search: does ten minutes' advice find what 100 trials find,
and does it name what gets there soonest?

    python benchmarks/bench_search.py --data-dir DIR   # six cells of 10 minutes on a quiet machine
    python benchmarks/bench_search.py --cells anime --resume
    python benchmarks/bench_search.py --show

Each cell is a data set whose reference search is kept (search_reference.py). Advice gets the
default question and its budget, in a process of its own, and everything in it counts.

- Recall: test recall@50 of the recommended arm at its best validation, over that of the reference's
  best trial by validation. Wanted: 0.98 in all cells but one, and 0.95 in all. The same of
  validation recall, which decides, stands beside it.
- Time: training seconds, with those of the features, in which the recommended arm reaches 0.95 of
  its own best validation recall, over those of the soonest trial. Wanted: at most 1.3.
- Floors: whether the answer is below the best floor without saying so.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from harness import RESULTS, TINY, Benchmark, Found, environment_notes
from measuring import ncfbench, time_to
from search_reference import RECALL, SEARCHES, Trial, read

from ncfbench.advice.space import Space
from ncfbench.reporting.table import Col, Table
from ncfbench.runs import folder as runs
from ncfbench.timing import allocator
from ncfbench.timing.ranking import SHARE


@dataclass(frozen=True)
class Cell:
    """A data set, and the wall time of a race."""

    dataset: str
    budget_seconds: float = 600.0


CELLS = {name: Cell(name) for name in ("cite", "plots", "anime", "yelp", "debian", "ml-time")}


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
        cells = {TINY: Cell(TINY, 60.0)} if options.quick else CELLS
        there = {path.name.partition(".")[0] for path in options.searches.glob("*.json.gz")}
        return {name: cell for name, cell in cells.items() if name in there}

    def measure(self, name: str, cell: Cell, options: argparse.Namespace) -> Found:
        """Ask for advice, and compare what it recommends with the reference."""
        reference = read(options.searches / f"{name}.json.gz")
        answer = ask(cell, options.data_dir)
        return compare(reference, answer)

    def missed(self, cells: Sequence[Found]) -> list[str]:
        """Return the targets that are missed."""
        share, enough = 0.98, len(cells) - 1
        lines = []
        near = [found for found in cells if found["recall_share"] >= share]
        if len(near) < enough:
            lines.append(f"recall: {len(near)} of {len(cells)} cells have {share} of it.")
        for found in cells:
            name = found["cell"]
            if found["recall_share"] < 0.95:
                lines.append(f"{name}: {found['recall_share']:.3f} of the reference's recall.")
            if not found["time_ratio"] <= 1.3:
                lines.append(f"{name}: {found['time_ratio']:.2f} times the soonest trial's time.")
            if not found["says_floor"]:
                lines.append(f"{name}: below a floor, and does not say so.")
        return lines

    def tables(
        self, cells: Sequence[Found], environments: Mapping[str, Any]
    ) -> Iterator[Table | str]:
        columns = [
            Col("data", "cell"),
            Col("reference", "reference_recall", ".3f"),
            Col("advice", "recall", ".3f"),
            Col("share", "recall_share", ".3f"),
            Col("of validation", _validation_share, ".3f"),
            Col("s to 0.95", "seconds", ".3g"),
            Col("soonest", "soonest_seconds", ".3g"),
            Col("times", "time_ratio", ".2f"),
        ]
        title = "Advice of ten minutes beside a search of 100 trials"
        yield Table.of(title, columns, cells, notes=[*environment_notes(cells, environments)])


def _validation_share(found: Found) -> float:
    return float(found["validation"] / found["reference_validation"])


def ask(cell: Cell, data_dir: Path) -> dict[str, Any]:
    """Return the answer of a new race, and the curve of what it recommends as ``arm``."""
    words = ["advise", cell.dataset, "--json", f"--budget={cell.budget_seconds:.0f}s"]
    with tempfile.TemporaryDirectory(prefix="ncfbench-search-") as folder:
        words += [f"--data-dir={data_dir}", f"--runs-dir={folder}"]
        # The reference's trials have the allocator that Python has.
        answer: dict[str, Any] = json.loads(ncfbench(words, {allocator.VARIABLE: "none"}).output)
        (best,) = (each for each in answer["entrants"] if each["status"] == "recommended")
        record = runs.read(Path(answer["folder"]) / best["runs"][0])
    rows = [row for row in record.curve if row[f"validation_{RECALL}"] is not None]
    seconds = record.summary["full_iteration_seconds"]
    return answer | {
        "arm": {
            "seconds": [row["iteration"] * seconds for row in rows],
            "validation": [row[f"validation_{RECALL}"] for row in rows],
            "test": [row[f"test_{RECALL}"] for row in rows],
            "before": record.feature_seconds,
        }
    }


def compare(reference: Mapping[str, Any], answer: Mapping[str, Any]) -> Found:
    """Return the figures of a cell, from its reference and the answer with its arm."""
    trials = [each for each in reference["trials"] if each["validation"]]
    curves = [curve_of(each, reference) for each in trials]
    own = Curve(**answer["arm"])
    best = max(curves, key=lambda curve: curve.validation[curve.top])
    level = SHARE * own.validation[own.top]
    soonest = min([own, *curves], key=lambda curve: curve.time_to(level))
    recall = own.test[own.top]
    floors = [each["recall_at_50"] for each in answer["floors"]]
    below = bool(floors) and recall < max(floors)
    seconds = own.time_to(level)
    return {
        "trials": len(trials),
        "reference_recall": best.test[best.top],
        "reference_validation": best.validation[best.top],
        "recall": recall,
        "validation": own.validation[own.top],
        "recall_share": recall / best.test[best.top],
        "seconds": seconds,
        "soonest_seconds": soonest.time_to(level),
        "time_ratio": seconds / soonest.time_to(level),
        "floor": max(floors, default=None),
        "says_floor": not below or says_floor(answer["headline"]),
        "headline": answer["headline"],
        "spent_seconds": answer["spent_seconds"],
    }


def says_floor(headline: str) -> bool:
    """Return whether an answer says that a floor is above the recommended arm, or level with it."""
    words = ("no training", "do not train", "this arm is level with it")
    return any(each in headline.lower() for each in words)


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
