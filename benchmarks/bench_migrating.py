"""The gain from migrating: a program of another framework, before and after docs/migrating.md.

    python benchmarks/bench_migrating.py --cells tfrs/before --seconds 120 --seed 0 --json FILE
    python benchmarks/bench_migrating.py --show

A program trains on the training links of a prepared data set and prints its recall@50 about every
``--every`` seconds of training. Reading data, the first batch (which compiles) and the evaluations
are not on the clock. Ways are ``before`` and ``after``. ``tfrs`` and ``pairs`` also have
``corrected``, with a correction for popularity that the framework's loss does not make by default
(``tfrs`` then removes accidental hits too), and ``pairs`` has ``no-duplicates``, a sampler of the
framework. Ours are also ``larger`` (four times the batch) with ``tfrs``, and ``unigram`` (negatives
by popularity) with ``recbole``. Each runs in a process of its own. The table has means over seeds.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from importlib.metadata import version
from typing import Any, ClassVar, NamedTuple

import numpy as np
from harness import RESULTS, Benchmark, Found
from measuring import isolated, time_to
from numpy.typing import NDArray

from ncfbench.data import open_dataset
from ncfbench.errors import UsageError
from ncfbench.reporting.table import Col, Table

RANKED = 50
LEVEL_SHARE = 0.9
COLUMNS = [
    Col("program", "program"),
    Col("way", "way"),
    Col("rate", "rate", "g"),
    Col("seeds", "seeds"),
    Col("batches/s", "speed", ".1f"),
    Col("s to the level", "soon"),
    Col("recall@50 at the end", "recall", lambda r: f"{r[0]:.3f} ({r[1]:.3f} to {r[2]:.3f})"),
]


class Program(NamedTuple):
    """A program ``migrating_NAME.py``: its package, its ways, and its learning rate."""

    package: str
    ways: tuple[str, ...]
    rate: float


PROGRAMS = {
    "tfrs": Program("tensorflow-recommenders", ("before", "corrected", "after", "larger"), 0.01),
    "pairs": Program(
        "sentence-transformers", ("before", "no-duplicates", "corrected", "after"), 0.0003
    ),
    "recbole": Program("recbole", ("before", "after", "unigram"), 0.001),
}


class Migrating(Benchmark):
    """A cell for each program, way and seed."""

    name, file = "migrating", RESULTS / "migrating-movielens-cpu.json"

    options: ClassVar = {
        "dataset": ("movielens", "a prepared data set"),
        "seconds": (240.0, "of training"),
        "every": (15.0, "seconds from one look to the next"),
        "seed": (0, "of the program"),
    }
    identity = ("seed",)

    def cells(self, options: argparse.Namespace) -> Mapping[str, tuple[str, str]]:
        if options.quick:
            options.dataset, options.seconds, options.every = "dense", 2.0, 1.0
        ways = [(name, way) for name, program in PROGRAMS.items() for way in program.ways]
        return {f"{name}/{way}": (name, way) for name, way in ways}

    def measure(self, name: str, cell: tuple[str, str], options: argparse.Namespace) -> Found:
        package, _, rate = PROGRAMS[cell[0]]
        if importlib.util.find_spec(package.replace("-", "_")) is None:
            raise UsageError(f"{package} is not installed. Install it with: pip install {package}")
        points = isolated(train, *cell, rate, options)
        return {"rate": rate, "points": points, "package": f"{package} {version(package)}"}

    def tables(self, cells: Sequence[Found], environments: Mapping[str, Any]) -> list[Table]:
        return [table(cells)]


class Over(Exception):  # noqa: N818 - no error
    """The seconds of training are over."""


class Clock:
    """Seconds of training, which stand still while the recall is computed.

    Args:
        seconds: when training is over.
        every: seconds from one look to the next.
        recall: of the present parameters, in [0, 1].
    """

    def __init__(self, seconds: float, every: float, recall: Callable[[], float]) -> None:
        self.seconds, self.every, self.recall = seconds, every, recall
        self.batches, self.points = 0, list[tuple[int, float, float]]()
        self.spent, self.since = 0.0, 0.0

    def batch(self) -> None:
        """Count a batch; look where it is time.

        Raises:
            Over: the last look has been taken.
        """
        now = time.perf_counter()
        if self.batches == 0:
            self.since = now  # the first batch compiled
        self.batches += 1
        spent = self.spent + now - self.since
        if spent < self.every * (len(self.points) + 1):
            return
        self.spent = spent
        point = (self.batches, spent, self.recall())
        self.points.append(point)
        print(f"batch {point[0]:6}  {point[1]:6.1f} s  recall@{RANKED} {point[2]:.4f}", flush=True)
        if spent >= self.seconds:
            raise Over
        self.since = time.perf_counter()


def train(
    program: str, way: str, rate: float, options: argparse.Namespace
) -> list[tuple[int, float, float]]:
    """Train a program, and return batches, seconds and recall of each look."""
    clocks: list[Clock] = []

    def start(recall: Callable[[], float]) -> Clock:
        clocks.append(Clock(options.seconds, options.every, recall))
        return clocks[0]

    module = importlib.import_module(f"migrating_{program}")
    dataset = open_dataset(options.dataset, data_dir=options.data_dir)
    with suppress(Over):
        module.train(dataset, way, options.seed, rate, start)
    return clocks[0].points


def recall_of(
    scores_UxV: NDArray[np.float32], users: NDArray[np.int32], index: NDArray[np.int32]
) -> float:
    """Return the mean recall@50 over users; each link is a user and an index of the scores."""
    best = np.argpartition(-scores_UxV, RANKED - 1, axis=1)[:, :RANKED]
    is_best = np.zeros(scores_UxV.shape, bool)
    np.put_along_axis(is_best, best, True, axis=1)
    relevant = np.bincount(users, minlength=len(scores_UxV))
    found = np.bincount(users, is_best[users, index], minlength=len(scores_UxV))
    return float(np.mean(found[relevant > 0] / relevant[relevant > 0]))


class ColdItems:
    """Recall of the test links' items among all test items, for users who have training links."""

    def __init__(self, dataset: Any) -> None:
        self.items = dataset.items_of("test")
        users, items = dataset.links("test")
        known = dataset.has_links[users]
        self.users = users[known]
        self.index = np.searchsorted(self.items, items[known]).astype(np.int32)

    def recall(self, users_UxD: Any, items_VxD: Any) -> float:
        """Return recall@50 by the dot products of all users and of ``self.items``."""
        return recall_of(np.asarray(users_UxD) @ np.asarray(items_VxD).T, self.users, self.index)


def table(cells: Sequence[Found]) -> Table:
    """Return a row for each program and way.

    Times are those at which the mean recall comes to LEVEL_SHARE of the best mean of the program,
    interpolated between two looks; the recall is that of the last look, with the range of seeds.
    """
    arms: dict[str, list[Found]] = {}
    for cell in cells:
        arms.setdefault(cell["cell"], []).append(cell)
    levels: dict[str, float] = {}
    for name, seeds in arms.items():
        best = max(recall for _, recall in mean_curve(seeds))
        program = name.split("/")[0]
        levels[program] = max(levels.get(program, 0.0), LEVEL_SHARE * best)
    rows = []
    for name, seeds in arms.items():
        program, way = name.split("/")
        ends = [cell["points"][-1] for cell in seeds]
        recalls = [recall for *_, recall in ends]
        rows.append(
            {
                "program": program,
                "way": way,
                "rate": seeds[0]["rate"],
                "seeds": len(seeds),
                "speed": statistics.mean(batches / seconds for batches, seconds, _ in ends),
                "soon": seconds_to(levels[program], mean_curve(seeds)),
                "recall": (statistics.mean(recalls), min(recalls), max(recalls)),
            }
        )
    shown = ", ".join(f"{program} {level:.3f}" for program, level in levels.items())
    notes = [f"Levels of recall@{RANKED}: {shown}."]
    return Table.of("Before and after", COLUMNS, rows, notes, labels=2)


def seconds_to(level: float, curve: list[tuple[float, float]]) -> str:
    """Return when a curve of seconds and recall first comes to a level, as text."""
    first, recall = curve[0]
    if recall >= level:
        return f"< {first:.0f}"
    seconds = time_to(level, curve)
    return "not yet" if seconds == math.inf else f"{seconds:.0f}"


def mean_curve(seeds: Sequence[Found]) -> list[tuple[float, float]]:
    """Return the mean seconds and recall of each look that all seeds took."""
    return [
        (statistics.mean(s for _, s, _ in look), statistics.mean(recall for *_, recall in look))
        for look in zip(*(cell["points"] for cell in seeds), strict=False)
    ]


if __name__ == "__main__":
    Migrating().main()
