"""What migrating brings: a program of another framework, before and after docs/migrating.md.

    python benchmarks/bench_migrating.py tfrs before --dataset movielens --seconds 120 --seed 0
    python benchmarks/bench_migrating.py table benchmarks/results/migrating-movielens-cpu.json

A program trains on the training links of a prepared data set and prints its recall@50 about every
``--every`` seconds of training. Reading data, the first batch (which compiles) and the evaluations
are not on the clock. Ways are ``before`` and ``after``. ``tfrs`` and ``pairs`` also have
``corrected``, with a correction for popularity that the framework's loss does not make by default
(``tfrs`` then removes accidental hits too), and ``pairs`` has ``no-duplicates``, a sampler of the
framework. Ours are also ``larger`` (four times the batch) with ``tfrs``, and ``unigram`` (negatives
by popularity) with ``recbole``. ``--rate`` is the learning rate, by default the program's. ``--json
FILE`` adds the run to a file, unless it is there, and ``table FILE`` prints the means over seeds.
"""

from __future__ import annotations

import argparse
import importlib
import json
import platform
import statistics
import time
from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

PROGRAMS = {
    "tfrs": ("tensorflow-recommenders", ("before", "corrected", "after", "larger")),
    "pairs": ("sentence-transformers", ("before", "no-duplicates", "corrected", "after")),
    "recbole": ("recbole", ("before", "after", "unigram")),
}
"""Package and ways of each program."""
RATES = {"tfrs": 0.01, "pairs": 0.0003, "recbole": 0.001}
"""Learning rate of each program."""
RANKED = 50
LEVEL_SHARE = 0.9


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


def recall_of(
    scores_UxV: NDArray[np.float32],
    users: NDArray[np.int32],
    index: NDArray[np.int32],
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


def table(kept: list[dict[str, Any]]) -> None:
    """Print a row for each program, way and learning rate.

    Times are those at which the mean recall comes to LEVEL_SHARE of the best mean of the program,
    interpolated between two looks; the recall is that of the last look, with the range of seeds.
    """
    runs: dict[str, dict[tuple[str, float], list[dict[str, Any]]]] = defaultdict(
        lambda: defaultdict(list)
    )
    for run in kept:
        runs[run["program"]][run["way"], run["rate"]].append(run)
    print("| program | way | rate | seeds | batches/s | s to the level | recall@50 at the end |")
    print("|---|---|---:|---:|---:|---:|---:|")
    levels = []
    for program, ways in runs.items():
        curves = {way: mean_curve(found) for way, found in ways.items()}
        level = LEVEL_SHARE * max(recall for curve in curves.values() for _, recall in curve)
        for (way, rate), found in ways.items():
            speed = statistics.mean(run["points"][-1][0] / run["points"][-1][1] for run in found)
            soon = seconds_to(level, curves[way, rate])
            ends = [run["points"][-1][2] for run in found]
            last = f"{statistics.mean(ends):.3f} ({min(ends):.3f} to {max(ends):.3f})"
            row = [program, way, f"{rate:g}", len(found), f"{speed:.1f}", soon, last]
            print("| " + " | ".join(map(str, row)) + " |")
        levels.append(f"{program} {level:.3f}")
    print(f"Levels of recall@50: {', '.join(levels)}.")


def seconds_to(level: float, curve: list[tuple[float, float]]) -> str:
    """Return when a curve of seconds and recall first comes to a level, as text."""
    for at, (seconds, recall) in enumerate(curve):
        if recall >= level:
            if at == 0:
                return f"< {seconds:.0f}"
            since, lower = curve[at - 1]
            return f"{since + (seconds - since) * (level - lower) / (recall - lower):.0f}"
    return "not yet"


def mean_curve(runs: list[dict[str, Any]]) -> list[tuple[float, float]]:
    """Return the mean seconds and recall of each look that all runs took."""
    looks = zip(*(run["points"] for run in runs), strict=False)
    return [
        (statistics.mean(s for _, s, _ in look), statistics.mean(recall for *_, recall in look))
        for look in looks
    ]


def main() -> None:
    """Train one program, or print the table of kept runs."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("program", choices=[*PROGRAMS, "table"])
    parser.add_argument("way", help="before, after, ...; for table: a file of runs")
    parser.add_argument("--data-dir", type=Path, default=Path("data"))
    parser.add_argument("--dataset", default="movielens")
    parser.add_argument("--seconds", type=float, default=240)
    parser.add_argument("--every", type=float, default=15)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rate", type=float, help="learning rate")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    if given.program == "table":
        table(json.loads(Path(given.way).read_text()))
        return
    (package, ways), way = PROGRAMS[given.program], given.way
    if way not in ways:
        parser.error(f"{given.program} has the ways {', '.join(ways)}.")
    given.rate = given.rate or RATES[given.program]
    names = ("program", "way", "dataset", "seed", "rate", "seconds", "every")
    identity = {name: getattr(given, name) for name in names}
    kept = json.loads(given.json.read_text()) if given.json and given.json.exists() else []
    if any(identity.items() <= run.items() for run in kept):
        print(f"{given.json} has this run.")
        return
    from ncfbench.data import open_dataset
    from ncfbench.timing.environment import processor

    dataset = open_dataset(given.dataset, data_dir=given.data_dir)
    train = importlib.import_module(f"migrating_{given.program}").train
    clocks: list[Clock] = []

    def start(recall: Callable[[], float]) -> Clock:
        clocks.append(Clock(given.seconds, given.every, recall))
        return clocks[0]

    with suppress(Over):
        train(dataset, way, given.seed, given.rate, start)
    versions = {
        "package": f"{package} {version(package)}",
        "python": platform.python_version(),
        "cpu": processor().name,
    }
    kept.append({**identity, "points": clocks[0].points, **versions})
    if given.json:
        given.json.write_text("[\n" + ",\n".join(map(json.dumps, kept)) + "\n]\n")


if __name__ == "__main__":
    main()
