"""Search the space of `ncfbench advise` on a data set, and keep the curve of every trial.

    python benchmarks/search_reference.py cite --trials 100

After ten random points of the space, the trials are by turns a random point and one that differs in
one setting from one of the five best by validation recall so far (the rule of `advise`).

A trial trains until its recall has not risen during the latter half of its training, or for
--seconds of training, or, after a fifth of these, until it is seen to have less than 0.7 of the
best recall that any trial had by then. Recall is measured ever more rarely, off the clock. The file
is written after each trial, and the same command goes on. Times need a quiet machine.
"""

from __future__ import annotations

import argparse
import dataclasses
import gzip
import json
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import jax
import numpy as np

from ncfbench.advice.space import Space
from ncfbench.catalog import BUILT_IN
from ncfbench.config import Locations, RunConfig
from ncfbench.data import Dataset, open_dataset
from ncfbench.errors import UsageError
from ncfbench.models.towers import DeviceContent
from ncfbench.runs import folder as runs
from ncfbench.runs.progress import Progress
from ncfbench.runs.signals import deferred_signals
from ncfbench.timing import environment
from ncfbench.timing.compile_cache import keep_compiled
from ncfbench.timing.contention import OtherPrograms
from ncfbench.training.loop import timed_loops
from ncfbench.training.train import Run, train
from ncfbench.training.turns import Turns

SEARCHES = Path(__file__).resolve().parent / "results" / "searches"
LEADERS = 5
BLOCK = 1 / 30
"""Share of the longest training between two moments at which a trial can be evaluated."""
GROWTH = 1.4
"""Least growth of the training clock between two evaluations."""
HOPELESS = (1 / 5, 0.7)
"""Share of the longest training after which a trial ends that has less than this share of the best
recall that any trial had by the same clock.
"""
LEAST_ROWS, LEAST_SECONDS = 4, 2.0
"""Evaluations and training of a trial that may rest."""
TRIED_ITERATIONS = 20
"""Iterations by which a trial's pace is known before it begins."""
RECALL = "recall_at_50"
ENDLESS = {"epochs": 10_000}  # a trial ends by its recall or its time
Trial = dict[str, Any]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("dataset")
    parser.add_argument("--trials", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=45.0, help="longest training of a trial")
    parser.add_argument("--data-dir", type=Path, default=Locations.of().data_dir)
    parser.add_argument("--folder", type=Path, default=SEARCHES)
    given = parser.parse_args()
    path = given.folder / f"{given.dataset}.json.gz"
    keep_compiled(print)
    dataset = open_dataset(given.dataset, data_dir=given.data_dir)
    space = Space.of(dataset, {"dataset": given.dataset} | ENDLESS, {})
    trials = read(path)["trials"] if path.exists() else []
    with suppress(KeyboardInterrupt), deferred_signals(print, "Stopping.") as interrupted:
        while len(trials) < given.trials:
            config, by = propose(space, trials)
            limits = (given.data_dir, given.seconds, interrupted)
            found = train_trial(dataset, *limits, config, trials)
            trials.append({"config": space.point(config), "by": by} | found)
            write(path, dataset, trials)
            shown = " ".join(map(str, trials[-1]["config"].values()))
            recalls = f"best {max(map(best, trials)):.4f} {by} {best(found):.4f}"
            print(f"{len(trials):3} {recalls} {found['status']}  {shown}", flush=True)
            if len(trials) % 10 == 0:
                jax.clear_caches()


def propose(space: Space, trials: Sequence[Trial]) -> tuple[RunConfig, str]:
    """Return the settings of the next trial, which depend on the earlier trials alone, and who
    proposes them: ``random`` or ``neighbours``.
    """
    number = len(trials)
    tried = {space.config(trial["config"]) for trial in trials}
    if number >= 2 * LEADERS and number % 2:
        generator = np.random.default_rng([1, number])
        leaders = sorted(trials, key=best, reverse=True)[:LEADERS]
        leader = space.config(leaders[int(generator.integers(len(leaders)))]["config"])
        near = [each for each in space.neighbours(leader) if each not in tried]
        if near:
            return near[int(generator.integers(len(near)))], "neighbours"
    return next(each for each in random_points(space, 0) if each not in tried), "random"


def random_points(space: Space, seed: int) -> Iterator[RunConfig]:
    """Yield distinct random points of a space without end, the same for the same seed: what is
    tried of each setting is drawn uniformly, first each choice, then what these read.
    """
    generator, seen = np.random.default_rng(seed), set()

    def draw(name: str) -> Any:
        return space.tried[name][int(generator.integers(len(space.tried[name])))]

    while True:
        with suppress(UsageError):
            choices = {name: draw(name) for name in BUILT_IN if name in space.tried}
            usual = space.point(space.config(choices))
            read = [name for name in usual if name not in choices]
            read = [name for name in read if usual[name] in space.tried[name]]
            config = space.config(choices | {name: draw(name) for name in read})
            if config not in seen:
                seen.add(config)
                yield config


def best(trial: Trial, clock: float = np.inf) -> float:
    """Return the highest validation recall of a trial up to a training clock."""
    moments = zip(trial["seconds"], trial["validation"], strict=True)
    return max((recall for at, recall in moments if at <= clock), default=0.0)


def train_trial(
    dataset: Dataset,
    data_dir: Path,
    longest: float,
    interrupted: Callable[[], bool],
    config: RunConfig,
    earlier: Sequence[Trial],
) -> Trial:
    """Train a trial for ``longest`` seconds at most; return its curve, by iterations and seconds
    of training.
    """
    began = time.monotonic()
    content = jax.block_until_ready(DeviceContent.of(dataset, [config]))
    with timed_loops(dataset, content, {"": config}) as loops:
        loops[""].full_block(1)
        loops[""].full_block(TRIED_ITERATIONS)
        iteration_seconds = loops[""].samples[-1].seconds / TRIED_ITERATIONS
    every = max(round(BLOCK * longest / iteration_seconds), 1)
    config = dataclasses.replace(config, probe_every=every)
    errors, others = list[BaseException](), OtherPrograms()
    found: Trial = {"iterations": [], "seconds": [], "validation": [], "test": []}
    found["status"] = "longest"
    with tempfile.TemporaryDirectory() as scratch:
        locations = Locations(data_dir, Path(scratch))
        failed = lambda _, error: errors.append(error)  # noqa: E731
        turns: Turns[str]
        with Turns(dataset, content, locations, interrupted, failed) as turns:
            turns.open("", config, progress=Progress(), stops_at_epochs=False)
            fill(found, turns, earlier, longest)
        for record in runs.read_all(Path(scratch))[0]:
            found["iteration_seconds"] = record.summary["full_iteration_seconds"]
    if errors:
        found["status"] = f"failed: {errors[0]}"[:200]
    wall = round(time.monotonic() - began, 2)
    return found | {"wall_seconds": wall, "other_programs_cores": round(others.cores(), 2)}


def fill(found: Trial, turns: Turns[str], earlier: Sequence[Trial], longest: float) -> None:
    """Train by turns until a trial is over, and note its evaluations."""
    evaluated = 0.0
    while (run := turns.runs.get("")) is not None:
        turns.take("", lambda run: next(train(run)))
        clock = run.recorder.train_seconds
        is_over = clock >= longest
        if "" in turns.runs and (is_over or clock >= GROWTH * evaluated):
            turns.take("", Run.evaluate)
        row = run.recorder.last_row
        if row is not None and row[f"validation_{RECALL}"] is not None:
            evaluated = clock
            found["iterations"].append(row["iteration"])
            found["seconds"].append(round(clock, 3))
            for name in ("validation", "test"):
                found[name].append(round(row[f"{name}_{RECALL}"], 5))
        share, least = HOPELESS
        best_of_all = max((best(trial, clock) for trial in earlier), default=0.0)
        if clock > share * longest and best(found) < least * best_of_all:
            found["status"] = "hopeless"
        elif rests(found) and found["seconds"][-1] >= LEAST_SECONDS:
            found["status"] = "rests"
        if is_over or found["status"] != "longest":
            turns.save()
            turns.close("")


def rests(found: Trial) -> bool:
    """Return whether recall has not risen in the latter half of the training so far."""
    recalls, seconds = found["validation"], found["seconds"]
    if len(recalls) < LEAST_ROWS:
        return False
    return bool(seconds[int(np.argmax(recalls))] < seconds[-1] / 2)


def read(path: Path) -> dict[str, Any]:
    """Return a kept search."""
    with gzip.open(path, "rt") as file:
        found: dict[str, Any] = json.load(file)
    return found


def write(path: Path, dataset: Dataset, trials: Sequence[Trial]) -> None:
    """Write a search whole, in place of the file before."""
    path.parent.mkdir(parents=True, exist_ok=True)
    values = {
        "dataset": dataset.name,
        "fingerprint": dataset.fingerprint,
        "n_links": dataset.graph.n_links,
        "feature_seconds": dataset.feature_seconds,
        "environment": environment.describe(),
        "trials": trials,
    }
    temporary = path.with_suffix(".new")
    temporary.write_bytes(gzip.compress(json.dumps(values).encode(), mtime=0))
    temporary.rename(path)


if __name__ == "__main__":
    main()
