"""Settings that a race may begin with, each trained alone on every data set: which few of them have
one that is nearly the best on each, also on a set that did not choose them?

    python benchmarks/bench_portfolio.py --data-dir DIR   # a minute a cell, on a quiet machine
    python benchmarks/bench_portfolio.py --show

The candidates are the preset ``good``, the same with a smaller learning rate and no dropout of
words, a wider bag of words, matrix factorisation, and the best trial by validation of each
reference search (search_reference.py); of Debian's also the best layer with a softmax. Each trains
until its validation recall has not risen during the latter half of its training, or for 45 s.

The portfolio is chosen greedily: after ``good`` comes the candidate that adds most to the mean,
over data sets, of the best validation recall of the chosen over the best of all. What it loses
elsewhere: for each data set the others choose, without its own trials, and are judged on it.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np
from harness import RESULTS, Benchmark, Found, environment_notes
from search_reference import ENDLESS, SEARCHES, TrialTrainer, best, read

from ncfbench.advice.space import Space, is_served
from ncfbench.catalog.presets import preset
from ncfbench.config import Locations
from ncfbench.data import open_dataset
from ncfbench.errors import UsageError
from ncfbench.reporting.table import Col, Table

SETS = ("cite", "plots", "anime", "yelp", "debian", "ml-time")
SIZE = 7
"""Settings of a portfolio."""
LONGEST = 45.0
CLOCKS = {"4 s each": 4.0, "12 s each": 12.0, "45 s each": np.inf}
"""Seconds of training of each candidate, at which a portfolio is judged: about what budgets of 60
s, 3 and 10 minutes leave to each of seven.
"""
GOOD = {name: value for name, value in preset("good").items() if name not in ("epochs", "patience")}
"""A cell ends by its recall or its time."""
OTHERS: Mapping[str, Mapping[str, Any]] = {
    "good": {},
    "good, smaller rate": {"learning_rate": 0.003, "weight_decay": 0.01, "word_dropout": 0.0},
    "wider bag": {
        "bare_bag": True,
        "features": "ignore",
        "dimension": 300,
        "word_dimension": 300,
        "batch_size": 1024,
        "learning_rate": 0.01,
        "weight_decay": 0.01,
    },
    "mf": {
        "encoder": "mf",
        "sampler": "ns",
        "user_tower": "table",
        "learning_rate": 0.003,
        "weight_decay": 0.01,
        "word_dropout": 0.0,
    },
}
"""Settings in place of those of ``good``."""


def candidates() -> dict[str, Mapping[str, Any]]:
    """Return the settings to choose from, by name."""
    found: dict[str, Mapping[str, Any]] = {name: {**GOOD, **more} for name, more in OTHERS.items()}
    trials = {name: read(SEARCHES / f"{name}.json.gz")["trials"] for name in SETS}
    found |= {f"best of {name}": max(own, key=best)["config"] for name, own in trials.items()}
    layers = [each for each in trials["debian"] if each["config"]["encoder"] == "mlp"]
    softmax = [each for each in layers if each["config"]["loss"] == "softmax"]
    return found | {"softmax of debian": max(softmax, key=best)["config"]}


class Cell(NamedTuple):
    """A data set, and the settings that are trained on it."""

    dataset: str
    settings: Mapping[str, Any]


class Portfolio(Benchmark):
    """A cell for each data set and candidate."""

    name, file, rounds = "portfolio", RESULTS / "portfolio-cpu.json", 1

    def cells(self, options: argparse.Namespace) -> Mapping[str, Cell]:
        return {
            f"{name}/{each}": Cell(name, values)
            for name in SETS
            for each, values in candidates().items()
        }

    def measure(self, name: str, cell: Cell, options: argparse.Namespace) -> Found:
        """Train a candidate; one that the data set cannot serve has no recall."""
        locations = Locations.of(options.data_dir)
        dataset = open_dataset(cell.dataset, data_dir=locations.data_dir)
        point = dict(cell.settings)
        found: Found = {"point": point, "seconds": [], "validation": [], "test": []}
        if not is_served(point["encoder"], dataset):
            return found
        space = Space.of(dataset, {"dataset": cell.dataset} | ENDLESS, {})
        trainer = TrialTrainer(dataset, locations, LONGEST, lambda: False)
        with suppress(UsageError):
            found |= trainer.train(space.config(point), [])
        return found

    def tables(
        self, cells: Sequence[Found], environments: Mapping[str, Any]
    ) -> Iterator[Table | str]:
        if len(cells) < len(SETS) * len(candidates()):  # of some nothing can be chosen
            columns = [Col("cell", "cell"), Col("validation recall", best, ".3f")]
            yield Table.of("Best validation recall", columns, cells)
            return
        matrix = Matrix(cells)
        sets = matrix.sets
        columns = [Col("candidate", lambda row: row)]
        columns += [_column(d, lambda row, d=d: matrix.share(d, [row])) for d in sets]
        yield Table.of("Best validation recall, over the best of all", columns, matrix.candidates)
        order = matrix.choose(sets)
        firsts = [order[:size] for size in range(1, len(order) + 1)]
        columns = [Col("portfolio", lambda row: f"{len(row)}: with {row[-1]}")]
        columns += [_column(d, lambda row, d=d: matrix.share(d, row)) for d in sets]
        yield Table.of("The best of the first few, over the best of all", columns, firsts)
        others = {d: matrix.choose([each for each in sets if each != d]) for d in sets}
        columns = [Col("left out", lambda row: row)]
        for name, clock in CLOCKS.items():
            part = lambda row, clock=clock: matrix.share(row, others[row], clock)  # noqa: E731
            columns.append(_column(name, part))
        notes = [*environment_notes(cells, environments)]
        yield Table.of("Chosen without a data set, and judged on it", columns, sets, notes=notes)


class Matrix:
    """The kept cells by data set and candidate."""

    def __init__(self, cells: Sequence[Found]) -> None:
        self.cells: dict[tuple[str, str], Found] = {}
        for found in cells:
            dataset, _, name = found["cell"].partition("/")
            self.cells[dataset, name] = found
        self.sets, self.candidates = (
            list(dict.fromkeys(each)) for each in zip(*self.cells, strict=True)
        )

    def recall(self, dataset: str, name: str, clock: float = np.inf) -> float:
        """Return the best validation recall up to a training clock."""
        return float(best(self.cells[dataset, name], clock))

    def share(self, dataset: str, chosen: Sequence[str], clock: float = np.inf) -> float:
        """Return the best recall of some candidates over that of all."""
        own, of_all = (
            max(self.recall(dataset, name, clock) for name in names)
            for names in (chosen, self.candidates)
        )
        return own / of_all

    def choose(self, judges: Sequence[str]) -> list[str]:
        """Return the portfolio of some data sets; trials of the others are no candidates."""
        others = tuple(f" of {name}" for name in self.sets if name not in judges)
        known = [name for name in self.candidates if not name.endswith(others)]
        chosen = ["good"]
        while len(chosen) < min(SIZE, len(known)):
            rest = [name for name in known if name not in chosen]
            adds = {name: fmean(self.share(d, [*chosen, name]) for d in judges) for name in rest}
            chosen.append(max(rest, key=adds.__getitem__))
        return chosen


def _column(name: str, share: Any) -> Col:
    return Col(name, share, ".3f")


if __name__ == "__main__":
    Portfolio().main()
