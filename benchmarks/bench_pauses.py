"""The cost of pausing a program that trains.

    python benchmarks/bench_pauses.py [--python PYTHON] [--turn 5] [--rounds 8] [--json FILE]

A program in PyTorch and one in JAX take turns as the arms of a race do, each of three blocks of
--turn seconds. *Lost* is the share of steps that the first block, the one after a pause, lacks
beside the second one. *Floor* is the same of the second block beside the third, which nothing
separates: the noise of the measurement. Each block is compared with its neighbour, so that a slow
change of the machine cancels. The other program's share of caches is part of the loss. A short
--turn shows the milliseconds of a pause more exactly, a long one that no slower loss follows.
Both train on a GPU where there is one.

Also the time from a line's printing to its reading, the time between two turns, and the processor
time of the race itself. --python names an interpreter that has both. Target: 2 % at most.
"""

from __future__ import annotations

import argparse
import os
import shlex
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from harness import Benchmark, Found

from ncfbench.errors import CheckFailedError
from ncfbench.racing.arms import Arm
from ncfbench.racing.entry import Entry
from ncfbench.racing.field import Field, make_slots
from ncfbench.racing.metric import Metric
from ncfbench.reporting.table import Col, Table
from ncfbench.timing.contention import OtherPrograms
from ncfbench.timing.intervals import hodges_lehmann

MOST_LOST = 0.02
BLOCKS = 3
START_SECONDS = 60.0
"""In which a program must have printed :data:`LEAST_LINES`."""
LEAST_LINES = 40
PRINT = """
    if time.perf_counter() - shown > 0.05:
        shown = time.perf_counter()
        print(json.dumps({"value": step, "step": step, "seconds": time.perf_counter()}), flush=True)
"""
TORCH = """
import json, time, torch
device = "cuda" if torch.cuda.is_available() else "cpu"
torch.set_default_device(device)
users, items = torch.nn.Embedding(20000, 64), torch.nn.EmbeddingBag(20000, 64)
model = torch.nn.ModuleList([users, items])
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
step = shown = 0
while True:
    u, words = torch.randint(20000, (256,)), torch.randint(20000, (256, 30))
    loss = torch.nn.functional.cross_entropy(users(u) @ items(words).T, torch.arange(256))
    optimizer.zero_grad(); loss.backward(); optimizer.step()
    if device == "cuda": torch.cuda.synchronize()
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


class Pauses(Benchmark):
    """A cell for each length of a turn."""

    name, rounds = "pauses", 8
    options: ClassVar = {
        "turn": (5.0, "seconds of a block"),
        "python": (sys.executable, "an interpreter that has PyTorch and JAX"),
    }
    identity, places = ("turn",), ("python",)

    def cells(self, options: argparse.Namespace) -> Mapping[str, None]:
        if options.quick:
            options.turn = 0.5
        return {"turns": None}

    def measure(self, name: str, cell: None, options: argparse.Namespace) -> Found:
        return measure(options.python, options.turn, options.rounds)

    def missed(self, cells: Sequence[Found]) -> list[str]:
        lost_by = {
            f"{name}, turns of {cell['turn']:g} s": lost(blocks, 0)[0]
            for cell in cells
            for name, blocks in cell["rates"].items()
        }
        return [f"{name}: {share:.1%}" for name, share in lost_by.items() if share > MOST_LOST]

    def tables(self, cells: Sequence[Found], environments: Mapping[str, Any]) -> Iterator[Table]:
        yield from map(table, cells)


def rates(points: np.ndarray[Any, np.dtype[np.float64]], begun: float, turn: float) -> list[float]:
    """Return the steps a second of each block of a turn.

    The steps at its beginning are those of the last line before it and what was made between that
    line and the pause, at the pace of the block before.

    Args:
        points: running seconds and steps of all lines.
        begun: running seconds at which the turn began.
    """
    seconds, steps = points[:, 0], points[:, 1]
    before = (seconds <= begun) & (seconds > begun - turn)
    (first, low), (last, high) = points[before][0], points[before][-1]
    start = high + (high - low) / (last - first) * (begun - last)
    after = seconds > begun
    ends = [begun + block * turn for block in range(BLOCKS)] + [seconds[-1]]
    at = np.interp(ends, [begun, *seconds[after]], [start, *steps[after]])
    return [float(rate) for rate in np.diff(at) / np.diff(ends)]


def points_of(entry: Entry) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Return the running seconds at which each line was printed, and its steps."""
    assert entry.process is not None
    began = entry.process.began
    return np.array(
        [((line.seconds or 0.0) - began - line.paused, line.step) for line in entry.readings], float
    )


def measure(python: str, turn: float, rounds: int) -> Found:
    """Return the rates of all blocks, and what the race adds."""
    found: Found = {"rates": {name: [] for name in PROGRAMS}}
    between, delays = [], []
    with (
        tempfile.TemporaryDirectory() as folder,
        Field(Metric("value"), Path(folder), make_slots(1)) as field,
    ):
        entries = [
            Entry(Arm(name, f"{python} -c {shlex.quote(text)}"), 0, number)
            for number, (name, text) in enumerate(PROGRAMS.items())
        ]
        for entry in entries:
            field.start(entry)
            field.turn([entry], START_SECONDS, lambda each: len(each.readings) >= LEAST_LINES)
            if not entry.can_train:
                raise CheckFailedError(f"{entry.name}: {entry.reason}")
            field.turn([entry], BLOCKS * turn, lambda _: False)
        began, used, others = time.perf_counter(), time.process_time(), OtherPrograms()
        for _ in range(rounds):
            for entry in entries:
                begun, since = entry.running_seconds, time.perf_counter()
                field.turn([entry], BLOCKS * turn, lambda _: False)
                passed = time.perf_counter() - since
                between.append(passed - (entry.running_seconds - begun))
                found["rates"][entry.name].append(rates(points_of(entry), begun, turn))
        found["race_cores"] = (time.process_time() - used) / (time.perf_counter() - began)
        found["other_programs_cores"] = others.cores()
        for entry in entries:
            assert entry.process is not None
            delays += [
                entry.process.began + line.running + line.paused - (line.seconds or 0.0)
                for line in entry.readings
            ]
    found["between_seconds"] = between
    shares = (0.5, 0.99, 1.0)
    found["delay_seconds"] = {share: float(np.quantile(delays, share)) for share in shares}
    return found


def lost(blocks: list[list[float]], first: int) -> tuple[float, float, float]:
    """Return the share of a block's steps that are missing beside the next one's, with its 95 %
    interval.
    """
    value, lower, upper = hodges_lehmann([each[first] / each[first + 1] for each in blocks])
    return 1 - value, 1 - upper, 1 - lower


def table(found: Found) -> Table:
    """Return a row for each program."""
    turn, between, late = found["turn"], found["between_seconds"], found["delay_seconds"]
    rows: list[tuple[Any, ...]] = [
        (
            name,
            statistics.median(rate for each in blocks for rate in each),
            lost(blocks, 0),
            lost(blocks, 1),
        )
        for name, blocks in found["rates"].items()
    ]
    cols = [
        Col("program", 0),
        Col("steps/s", 1, ",.1f"),
        Col("lost (95 %)", 2, "{0[0]:.1%} ({0[1]:.1%} to {0[2]:.1%})".format),
        Col("floor (95 %)", 3, "{0[0]:.1%} ({0[1]:.1%} to {0[2]:.1%})".format),
        Col("ms lost", lambda row: f"{1e3 * turn * row[2][0]:.1f}"),
    ]
    notes = [
        "From a line's printing to its reading: median {:.2f} ms, 99 % {:.1f}, all {:.1f}.".format(
            *(1e3 * seconds for seconds in late.values())
        ),
        f"Between two turns: median {1e3 * statistics.median(between):.1f} ms, all"
        f" {1e3 * max(between):.1f}. The race itself used {found['race_cores']:.1%} of a core,"
        f" other programs {found['other_programs_cores']:.1%}.",
    ]
    rounds = len(between) // len(PROGRAMS)
    return Table.of(f"Turns of {turn:g} s, {rounds} rounds", cols, rows, notes)


if __name__ == "__main__":
    # The harness starts JAX here, beside the programs.
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    Pauses().main()
