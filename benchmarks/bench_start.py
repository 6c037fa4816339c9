"""Seconds from the command to the first iteration, and peak memory, of `ncfbench run`.

    python benchmarks/bench_start.py --dataset citeulike --samplers strat-ns,iid --encoder cnn
    --iterations 40

Cold: with an empty cache folder, so that everything is compiled. Warm: the same command again. The
clock runs from before the process is started until its fourth iteration has been handed to the
device, which waits for the first one to be done. The run is then stopped as by Ctrl-C after
--iterations (0: it goes on to the end of its epochs), and saves its state; peak memory is that of
the whole process, saving included. Progress is counted where it is shown.

Processor seconds are those of all threads up to the same moment; on a busy machine they say what
the clock cannot.

Targets: cold 10 s, warm 4 s; peak 2 GiB, or 4 GiB for iid with texts of 300 words.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from harness import TINY, Benchmark, Found, machine
from measuring import command

from ncfbench.catalog import find_sampler
from ncfbench.data.store import load
from ncfbench.errors import INTERRUPTED_EXIT_CODE, CheckFailedError, UsageError
from ncfbench.reporting.table import Col, Table, under
from ncfbench.training.loop import IN_FLIGHT

KINDS = ("cold", "warm")
COLUMNS = [
    Col("sampler", "title"),
    *(
        col
        for kind in KINDS
        for col in under(
            kind,
            Col("s", f"{kind} median", ".2f"),
            Col("min..max", f"{kind} range", lambda ends: f"{ends[0]:.2f}..{ends[1]:.2f}"),
            Col("processor s", f"{kind} processor", ".2f"),
        )
    ),
    Col("peak GiB", "peak", ".2f"),
    Col("targets", "verdict", wraps=True),
]
SECONDS = {"cold": 10, "warm": 4}
PEAK_GIB, LONG_PEAK_GIB, LONG_WORDS = 2, 4, 300
CHILD = f"""
import os, signal, sys, time
from ncfbench.runs import progress
mark, last, seen = sys.argv.pop(1), int(sys.argv.pop(1)), 0
def counted(plain):
    def advance(self, iteration, item_slots):
        global seen
        seen += 1
        if seen == {IN_FLIGHT}:
            open(mark, "w").write(f"{{time.time()}} {{time.process_time()}}")
        if seen == last:
            os.kill(os.getpid(), signal.SIGINT)
        return plain(self, iteration, item_slots)
    return advance
for kind in (progress.Progress, progress.ConsoleProgress):
    kind.advance = counted(kind.__dict__["advance"])
from ncfbench.cli import main
main()
"""


class Start(Benchmark):
    """A cell for each sampler; its rounds are pairs of a cold and a warm start."""

    name, rounds = "start", 3

    options: ClassVar = {
        "dataset": ("synthetic", "a prepared data set"),
        "samplers": ("strat-ns,iid", "separated by commas"),
        "encoder": ("cnn", "any encoder"),
        "iterations": (40, f"before the run is stopped: 0, or {IN_FLIGHT} or more"),
        "set": ([], "NAME=VALUE, any other setting"),
    }
    places = ("samplers",)

    def cells(self, options: argparse.Namespace) -> Mapping[str, str]:
        if 0 < options.iterations < IN_FLIGHT or options.iterations < 0:
            raise UsageError(f"--iterations must be 0, or {IN_FLIGHT} or more.")
        if options.quick:
            options.dataset, options.iterations = TINY, IN_FLIGHT
            options.samplers = options.samplers.partition(",")[0]
        return {name: name for name in options.samplers.split(",")}

    def measure(self, name: str, cell: str, options: argparse.Namespace) -> Found:
        words = [
            "run",
            "--quiet",
            "--again",
            f"--dataset={options.dataset}",
            f"--encoder={options.encoder}",
        ]
        words += [f"--data-dir={options.data_dir}", f"--sampler={cell}"]
        words += [f"--set={text}" for text in options.set]
        starts: dict[str, list[dict[str, float]]] = {kind: [] for kind in KINDS}
        for _ in range(options.rounds):
            with tempfile.TemporaryDirectory() as scratch:
                for kind in KINDS:
                    starts[kind].append(start(words, Path(scratch), options.iterations))
        longest = load(options.data_dir, options.dataset).tokens_IxL.shape[1]
        return {"max_length": longest, **starts}

    def missed(self, cells: Sequence[Found]) -> list[str]:
        return [f"{cell['cell']}: {text}" for cell in cells for text in missed_by(cell)]

    def tables(self, cells: Sequence[Found], environments: Mapping[str, Any]) -> list[Table]:
        settings, rows = cells[0]["settings"], []
        for cell in cells:
            row: Found = {"title": find_sampler(cell["cell"]).title, "peak": peak_gib(cell)}
            row["verdict"] = "; ".join(missed_by(cell)) or "met"
            for kind in KINDS:
                seconds = np.array([start["start_seconds"] for start in cell[kind]])
                processor = np.median([start["processor_seconds"] for start in cell[kind]])
                row[f"{kind} median"] = np.median(seconds)
                row[f"{kind} range"] = (seconds.min(), seconds.max())
                row[f"{kind} processor"] = processor
            rows.append(row)
        where = environments[cells[0]["environment_key"]]
        note = (
            f"Iterations before the stop: {settings['iterations'] or 'all'}. Load"
            f" {where['load_average'][0]:.1f}. {machine(where, 'jax')}, {where['time']}"
        )
        what = f"texts of at most {cells[0]['max_length']} words"
        title = (
            "Seconds to the first iteration, and peak memory:"
            f" {settings['dataset']}, {settings['encoder']}, {what}"
        )
        return [Table.of(title, COLUMNS, rows, [note])]


def start(words: list[str], scratch: Path, iterations: int) -> dict[str, float]:
    """Return seconds and processor seconds until the first iteration was done, and peak GiB of the
    whole process.
    """
    mark = scratch / "mark"
    mark.unlink(missing_ok=True)
    folders = {name: str(scratch / name) for name in ("cache", "runs")}
    variables = {f"NCFBENCH_{name.upper()}_DIR": folder for name, folder in folders.items()}
    begin = time.time()
    child = [sys.executable, "-c", CHILD, str(mark), str(iterations), *words]
    done = command(child, variables=variables)
    if done.exit_code not in (0, INTERRUPTED_EXIT_CODE) or not mark.exists():
        raise CheckFailedError(f"ncfbench {' '.join(words)} ended with {done.exit_code}.")
    at, processor = map(float, mark.read_text().split())
    return {
        "start_seconds": at - begin,
        "processor_seconds": processor,
        "peak_gib": done.peak_bytes / 2**30,
    }


def peak_gib(cell: Found) -> float:
    """Return the largest peak of all starts."""
    return max(float(start["peak_gib"]) for kind in KINDS for start in cell[kind])


def missed_by(cell: Found) -> list[str]:
    """Return the targets that the medians, or the largest peak, miss."""
    missed = []
    for kind, target in SECONDS.items():
        seconds = float(np.median([start["start_seconds"] for start in cell[kind]]))
        if seconds > target:
            missed.append(f"{kind} start {seconds:.1f} s, target {target} s")
    most = LONG_PEAK_GIB if cell["max_length"] >= LONG_WORDS else PEAK_GIB
    if peak_gib(cell) > most:
        missed.append(f"peak {peak_gib(cell):.2f} GiB, target {most} GiB")
    return missed


if __name__ == "__main__":
    Start().main()
