"""Search the space of `ncfbench advise` at random on a data set, and keep every trial's curve.

    python benchmarks/search_reference.py cite --trials 100

Every other trial is a random point of the space; the rest differ in one setting from one of the
best by validation recall so far. A trial trains until its recall has not risen during the latter
half of its training, or for --seconds of training. Recall is measured every few seconds, off the
clock. The file is written after each trial, and the same command goes on.
"""

from __future__ import annotations

import argparse
import dataclasses
import gzip
import json
import shutil
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import jax
import numpy as np

from ncfbench.advice.space import Space, random_points
from ncfbench.config import Locations, RunConfig
from ncfbench.data import Dataset, open_dataset
from ncfbench.distributed.signals import deferred_signals
from ncfbench.models.towers import DeviceContent
from ncfbench.timing import environment
from ncfbench.timing.compile_cache import keep_compiled
from ncfbench.timing.contention import OtherPrograms
from ncfbench.training.pilot import run_pilot
from ncfbench.training.session import Session
from ncfbench.training.turns import Turns

RESULTS = Path(__file__).resolve().parent / "results" / "searches"
LEADERS = 5
"""A neighbour is one of a leader, of this many."""
BETWEEN = 1 / 20
"""Share of a trial's longest time between two evaluations."""
RECALL = "recall_at_50"
LEAST_ROWS = 4
ENDLESS = {"epochs": 10_000}
"""A trial ends by its recall or its time."""
WALL = 2.5
"""Times its longest training that a trial may last."""
Trial = dict[str, Any]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("dataset")
    parser.add_argument("--trials", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=60.0, help="longest training of a trial")
    parser.add_argument("--until", type=float, default=np.inf, help="stop before this many seconds")
    parser.add_argument("--data-dir", type=Path, default=None)
    parser.add_argument("--folder", type=Path, default=RESULTS)
    given = parser.parse_args()
    began, path = time.monotonic(), given.folder / f"{given.dataset}.json.gz"
    keep_compiled(print)
    locations = Locations.of(given.data_dir)
    dataset = open_dataset(given.dataset, data_dir=locations.data_dir)
    space = Space.of(dataset, {"dataset": given.dataset} | ENDLESS, {})
    trials = read(path)["trials"] if path.exists() else []
    with suppress(KeyboardInterrupt), deferred_signals(print, "Stopping.") as interrupted:
        while len(trials) < given.trials and time.monotonic() - began < given.until:
            config = propose(space, trials)
            trial = train(config, dataset, locations, given.seconds, interrupted)
            trials.append({"config": space.point(config)} | trial)
            write(path, dataset, trials)
            last = trials[-1]
            shown = " ".join(map(str, last["config"].values()))
            text = f"{len(trials):3} best {max(map(best, trials)):.4f} this {best(last):.4f} in"
            text += f" {(last['seconds'] or [0])[-1]:.0f} s  {shown} {last['status']}"
            print(text, flush=True)
            if len(trials) % 10 == 0:
                jax.clear_caches()


def propose(space: Space, trials: Sequence[Trial]) -> RunConfig:
    """Return the settings of the next trial, which depend on the earlier trials alone."""
    number = len(trials)
    tried = {space.config(trial["config"]) for trial in trials}
    fresh = (each for each in random_points(space, 0) if each not in tried)
    if number < 2 * LEADERS or number % 2 == 0:
        return next(fresh)
    generator = np.random.default_rng([1, number])
    leaders = sorted(trials, key=best, reverse=True)[:LEADERS]
    leader = leaders[int(generator.integers(len(leaders)))]
    near = [each for each in space.neighbours(space.config(leader["config"])) if each not in tried]
    return near[int(generator.integers(len(near)))] if near else next(fresh)


def best(trial: Trial) -> float:
    """Return the highest validation recall of a trial."""
    return max(trial["validation"], default=0.0)


def train(
    config: RunConfig, dataset: Dataset, locations: Locations, longest: float, interrupted: Any
) -> Trial:
    """Train a trial; return its curve, by iterations and seconds of training."""
    content = jax.block_until_ready(DeviceContent.of(dataset, [config]))
    seconds = run_pilot(config, dataset, content).iteration_seconds
    every = max(round(BETWEEN * longest / seconds), 1)
    config = dataclasses.replace(config, probe_every=every)
    scratch, errors = Path(tempfile.mkdtemp()), []
    others = OtherPrograms()
    found: Trial = {
        name: [] for name in ("iterations", "seconds", "validation", "validation_error", "test")
    }
    with Turns(
        dataset,
        content,
        Locations(locations.data_dir, scratch),
        interrupted,
        lambda _, error: errors.append(error),
    ) as turns:
        turns.open("", config)
        evaluated, began = 0.0, time.monotonic()
        while "" in turns.runs:
            run = turns.runs[""]
            turns.take("", Session.advance)
            clock = run.recorder.train_seconds
            is_over = clock >= longest or time.monotonic() - began > WALL * longest
            if "" in turns.runs and (is_over or clock - evaluated >= BETWEEN * longest):
                turns.take("", Session.evaluate)
            row = run.recorder.last_row
            if row is None or row[f"validation_{RECALL}"] is None:
                if is_over:
                    turns.close("")
                continue
            evaluated = clock
            found["iterations"].append(row["iteration"])
            found["seconds"].append(round(clock, 3))
            for name in ("validation", "test"):
                found[name].append(round(row[f"{name}_{RECALL}"], 5))
            found["validation_error"].append(round(row[f"validation_{RECALL}_error"] or 0.0, 5))
            if is_over or rests(found):
                turns.close("")
    shutil.rmtree(scratch, ignore_errors=True)
    status = f"failed: {errors[0]}" if errors else "ended"
    return found | {
        "pilot_iteration_seconds": seconds,
        "status": status[:200],
        "other_programs_cores": round(others.cores(), 2),
    }


def rests(found: Trial) -> bool:
    """Return whether recall has not risen in the latter half of the training so far."""
    recalls, seconds = found["validation"], found["seconds"]
    first = int(np.argmax(recalls))
    return len(recalls) >= LEAST_ROWS and seconds[first] < seconds[-1] / 2 and seconds[-1] > 2


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
        "feature_seconds": dataset.feature_seconds,
        "environment": environment.describe(),
        "trials": trials,
    }
    temporary = path.with_suffix(".new")
    temporary.write_bytes(gzip.compress(json.dumps(values).encode(), mtime=0))
    temporary.rename(path)


if __name__ == "__main__":
    main()
