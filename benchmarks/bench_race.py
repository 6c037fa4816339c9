"""The cost of pausing a program that trains, and whether a race of curves finds the soonest.

    python benchmarks/bench_race.py pause [--python PYTHON] [--turn 5] [--rounds 6]
    python benchmarks/bench_race.py regret [--share 0.1] [--speed 0] [--only TEXT]

``pause``: a program in PyTorch and one in JAX train beside each other and take turns. Each has
blocks of four turns between which the other one runs, and blocks of the same length without a
pause, of which the first turn is left out. Its steps a second of running time in both, and their
ratio; the other's share of caches is part of the cost. Also the time from a line's printing to its
reading. --python names an interpreter that has both. Target: 2 % of the steps at most.

``regret``: the runs of one folder of ``results/`` and one data set, played back to a race whose
budget is a share of the time that all of them took. Regret is the time of the recommended arm to
95 % of the best over that of the soonest of the arms near the best, on whole curves; below 1 it was
sooner than any of these, and ends lower. Without --speed the clock is counted, not waited for; with
it, processes play the curves so many times as fast. Target: 1.10 at most.
"""

from __future__ import annotations

import argparse
import json
import math
import shlex
import statistics
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from played_field import PlayedField, Points

from ncfbench.errors import CheckFailedError
from ncfbench.racing import pipeline
from ncfbench.racing.answer import make_answer
from ncfbench.racing.arms import Arm
from ncfbench.racing.entry import Entry
from ncfbench.racing.metric import Metric
from ncfbench.racing.process import Process
from ncfbench.racing.question import Question
from ncfbench.racing.race import Race
from ncfbench.reporting.frames import Run
from ncfbench.reporting.render.terminal import make_console, show
from ncfbench.reporting.table import Col, Table
from ncfbench.runs import folder as runs
from ncfbench.timing.intervals import ratio_of_medians
from ncfbench.timing.ranking import NEAR, SHARE

RESULTS = Path(__file__).parents[1] / "results"
PLAYER = Path(__file__).with_name("play_curve.py")
MOST_LOST, MOST_REGRET = 0.02, 1.10
RECALL, LOSS = "validation_recall_at_50", "probe_loss"
LEAST_LINES, LEAST_ARMS = 5, 4
"""A field has so many arms at least, whose curves have so many values."""
TURNS = 4
"""Turns in a block."""
PRINT = """
    if time.perf_counter() - shown > 0.05:
        shown = time.perf_counter()
        print(json.dumps({"value": step, "step": step, "seconds": time.perf_counter()}), flush=True)
"""
TORCH = """
import json, time, torch
users, items = torch.nn.Embedding(20000, 64), torch.nn.EmbeddingBag(20000, 64)
model = torch.nn.ModuleList([users, items])
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
step = shown = 0
while True:
    u, words = torch.randint(20000, (256,)), torch.randint(20000, (256, 30))
    loss = torch.nn.functional.cross_entropy(users(u) @ items(words).T, torch.arange(256))
    optimizer.zero_grad(); loss.backward(); optimizer.step()
    step += 1
"""
JAX = """
import json, time, jax, jax.numpy as jnp, optax
key = jax.random.key(0)
tables = {name: jax.random.normal(key, (20000, 64)) for name in ("users", "words")}
optimizer = optax.adam(0.01)
state = tables, optimizer.init(tables)
@jax.jit
def train(state, key):
    tables, moments = state
    u = jax.random.randint(key, (256,), 0, 20000)
    words = jax.random.randint(key, (256, 30), 0, 20000)
    def loss_of(tables):
        scores = tables["users"][u] @ tables["words"][words].mean(1).T
        return optax.softmax_cross_entropy_with_integer_labels(scores, jnp.arange(256)).mean()
    gradients = jax.grad(loss_of)(tables)
    changes, moments = optimizer.update(gradients, moments)
    return optax.apply_updates(tables, changes), moments
step = shown = 0
while True:
    key, own = jax.random.split(key)
    state = jax.block_until_ready(train(state, own))
    step += 1
"""
PROGRAMS = {"PyTorch": TORCH + PRINT, "JAX": JAX + PRINT}


class Pausing:
    """Two programs that take turns in blocks with and without pauses."""

    def __init__(self, python: str, turn: float) -> None:
        self.turn, self.news = turn, threading.Event()
        self.folder = tempfile.TemporaryDirectory()
        self.programs = {
            name: Process(
                f"{python} -c {shlex.quote(text)}",
                Metric("value"),
                Path(self.folder.name) / name,
                self.news,
                environment={},
            )
            for name, text in PROGRAMS.items()
        }
        for name, each in self.programs.items():
            while len(each.readings) < 20:
                if not each.is_alive:
                    raise CheckFailedError(f"{name}: {' | '.join(each.last_lines)}")
                time.sleep(0.1)
            each.pause()

    def run(self, name: str, seconds: float) -> None:
        """Let a program run alone."""
        each = self.programs[name]
        each.resume()
        time.sleep(seconds)
        each.pause()

    def block(self, name: str, *, is_paused: bool) -> float:
        """Return the steps a second of running time of a block."""
        each, (other,) = self.programs[name], set(self.programs) - {name}
        if not is_paused:
            each.resume()
            time.sleep(self.turn)
            first = len(each.readings)
            time.sleep(TURNS * self.turn)
            each.pause()
        else:
            self.run(other, self.turn)
            time.sleep(0.05)
            first = len(each.readings) - 1
            for _ in range(TURNS):
                self.run(name, self.turn)
                self.run(other, self.turn)
        found = each.readings[first:]
        assert found[0].step is not None
        assert found[-1].step is not None
        return (found[-1].step - found[0].step) / (found[-1].running - found[0].running)

    def delays(self) -> list[float]:
        """Return the seconds from each line's printing to its reading, the least first."""
        return sorted(
            each.began + reading.running + reading.paused - (reading.seconds or 0.0)
            for each in self.programs.values()
            for reading in each.readings
        )

    def close(self) -> None:
        """End the programs."""
        for each in self.programs.values():
            each.end()
        self.folder.cleanup()


def pause(python: str, turn: float, rounds: int) -> bool:
    """Measure what pausing costs, print it, and return whether it is within the target."""
    pausing, rates = Pausing(python, turn), defaultdict[tuple[str, bool], list[float]](list)
    try:
        for turned in range(rounds):
            for name in PROGRAMS:
                for is_paused in ((True, False), (False, True))[turned % 2]:
                    rates[name, is_paused].append(pausing.block(name, is_paused=is_paused))
        delays = pausing.delays()
    finally:
        pausing.close()
    rows: list[tuple[Any, ...]] = []
    for name in PROGRAMS:
        # Seconds a step: the ratio is above 1 where pauses cost nothing, and 1 - it is the loss.
        with_pauses, without = ([1 / rate for rate in rates[name, each]] for each in (True, False))
        value, lower, upper = ratio_of_medians(without, with_pauses)
        rows.append(
            (
                name,
                *(1 / statistics.median(each) for each in (without, with_pauses)),
                (1 - value, 1 - upper, 1 - lower),
            )
        )
    cols = [
        Col("program", 0),
        Col("steps/s without pause", 1, ",.1f"),
        Col("with pauses", 2, ",.1f"),
        Col("lost (95 %)", 3, lambda ends: "{:.1%} ({:.1%} to {:.1%})".format(*ends)),
    ]
    late = [delays[int(share * (len(delays) - 1))] * 1e3 for share in (0.5, 0.99, 1)]
    note = "From a line's printing to its reading: median {:.2f} ms, 99 % {:.1f}, all {:.1f}."
    note = note.format(*late)
    print_table(Table.of(f"Turns of {turn:g} s, {rounds} rounds", cols, rows, [note]))
    return all(row[3][0] <= MOST_LOST for row in rows)


def fields(measure: str) -> dict[str, dict[str, Points]]:
    """Return recorded curves of a measure by their arms.

    A field is a data set and folder; for losses also an encoder and a loss, since others differ in
    their scale.
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
    return {name: arms for name, arms in found.items() if len(arms) >= LEAST_ARMS}


def time_to(level: float, points: Points) -> float:
    """Return the seconds at which a curve rises to a level; infinity if it never does."""
    before = (0.0, 0.0)
    for at, value in points:
        if value >= level:
            share = (level - before[1]) / (value - before[1]) if at > before[0] else 0.0
            return before[0] + share * (at - before[0])
        before = (at, value)
    return math.inf


def regret_of(name: str | None, curves: Mapping[str, Points], *, is_loss: bool) -> float:
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


def raced(
    curves: Mapping[str, Points], budget: float, *, is_loss: bool
) -> tuple[str | None, float]:
    """Return the recommended arm of a race whose clock is counted, and the seconds it took."""
    metric, field = Metric("value", is_less_better=is_loss), PlayedField(curves)
    entries = [Entry(Arm(name, name), 0, number) for number, name in enumerate(curves)]
    race = Race(Question(metric, budget), entries, field)
    race.run()
    best = make_answer(race.question, race.entries, race.spent, is_over=True).best
    return None if best is None else best.name, field.seconds


def raced_by_processes(
    curves: Mapping[str, Points], budget: float, speed: float, *, is_loss: bool
) -> tuple[str | None, float]:
    """Return the same of a race of processes that play the curves."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "curves.json"
        file.write_text(json.dumps(curves))
        outcome = pipeline.race(
            f"{sys.executable} -S {PLAYER} {file} {{arm}} {speed}",
            parameters={"arm": [*curves]},
            budget_seconds=budget / speed,
            metric="value",
            minimize=is_loss,
            turn_seconds=max(5.0 / speed, 0.1),
            runs_dir=folder,
        )
    best = outcome.answer.best
    name = None if best is None else best.entry.arm.values["arm"]
    return name, outcome.answer.spent_seconds * speed


def regret(share: float, speed: float, only: str) -> bool:
    """Race all recorded fields, print regrets, and return whether all are within the target."""
    rows: list[tuple[Any, ...]] = []
    for measure in (RECALL, LOSS):
        for name, curves in fields(measure).items():
            if only not in name:
                continue
            is_loss = measure == LOSS
            total = sum(points[-1][0] for points in curves.values())
            lines = min(map(len, curves.values()))
            budget, best, took = share * total, None, share * total
            with suppress(CheckFailedError):  # no arm had a line in time
                if speed:
                    best, took = raced_by_processes(curves, budget, speed, is_loss=is_loss)
                else:
                    best, took = raced(curves, budget, is_loss=is_loss)
            own = regret_of(best, curves, is_loss=is_loss)
            rows.append((name, len(curves), lines, total, took / total, own))
    cols = [
        Col("field", 0),
        Col("arms", 1),
        Col("least lines", 2),
        Col("s of all", 3, ",.0f"),
        Col("share taken", 4, ".2f"),
        Col("regret", 5, ".2f"),
    ]
    within = sum(row[5] <= MOST_REGRET for row in rows)
    print_table(
        Table.of(
            f"Races within {share:g} of the time",
            cols,
            rows,
            [f"{within} of {len(rows)} within {MOST_REGRET:g}."],
        )
    )
    return bool(within == len(rows))


def print_table(table: Table) -> None:
    show(make_console(), table)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=("pause", "regret"))
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--turn", type=float, default=5.0)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--share", type=float, default=0.1)
    parser.add_argument("--speed", type=float, default=0.0)
    parser.add_argument("--only", default="", help="fields whose names hold this text")
    asked = parser.parse_args()
    if asked.what == "pause":
        is_within = pause(asked.python, asked.turn, asked.rounds)
    else:
        is_within = regret(asked.share, asked.speed, asked.only)
    sys.exit(0 if is_within else CheckFailedError.exit_code)


if __name__ == "__main__":
    main()
