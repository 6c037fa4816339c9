"""Seconds from the command to the first iteration, and peak memory, of `ncfbench run`.

    python benchmarks/bench_start.py --dataset citeulike --samplers strat-ns,iid --encoder cnn
    --iterations 40

Cold: with an empty cache folder, so that everything is compiled. Warm: the same command again. The
clock runs from before the process is started until its fourth iteration has been handed to the
device, which waits for the first one to be done. The run is then stopped as by Ctrl-C after
--iterations (0: it goes on to the end of its epochs), and saves its state; peak memory is that of
the whole process, saving included. What the run was told is watched from outside: progress is
counted where it is shown.

Processor seconds are those of all threads up to the same moment; on a busy machine they say what
the clock cannot.

Targets: cold 10 s, warm 4 s; peak 2 GiB, or 4 GiB for iid with texts of 300 words.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from ncfbench.catalog import find_sampler
from ncfbench.config import merge
from ncfbench.data import open_dataset
from ncfbench.errors import INTERRUPTED_EXIT_CODE, CheckFailedError, NcfbenchError
from ncfbench.reporting.render.terminal import make_console
from ncfbench.reporting.render.terminal import show as print_table
from ncfbench.reporting.table import Header, Table, columns_of, text_column
from ncfbench.timing import environment
from ncfbench.training.loop import IN_FLIGHT

HEADER: Header = [
    "sampler",
    *columns_of("cold", "s", "min..max", "processor s"),
    *columns_of("warm", "s", "min..max", "processor s"),
    "peak GiB",
    text_column("targets"),
]
COLD_SECONDS, WARM_SECONDS = 10, 4
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


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--dataset", default="synthetic")
    parser.add_argument("--samplers", default="strat-ns,iid")
    parser.add_argument("--encoder", default="cnn")
    parser.add_argument(
        "--iterations", type=int, default=40, help=f"0, or {IN_FLIGHT} or more (default 40)"
    )
    parser.add_argument(
        "--rounds",
        type=int,
        default=3,
        help="cold and warm starts of each sampler, in turn (default 3)",
    )
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="any other setting of a run"
    )
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--json", type=Path, metavar="FILE", help="keep the results here")
    parser.add_argument(
        "--check", action="store_true", help="end with exit code 6 where a target is missed"
    )
    arguments = parser.parse_args()
    if 0 < arguments.iterations < IN_FLIGHT or arguments.iterations < 0 or arguments.rounds < 1:
        parser.error(f"--iterations must be 0, or {IN_FLIGHT} or more; --rounds 1 or more")
    try:
        result = measure(arguments)
        if arguments.json:
            arguments.json.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
        show(result)
        missed = [
            f"{name}: {text}" for name, row in result["samplers"].items() for text in row["missed"]
        ]
        if arguments.check and missed:
            raise CheckFailedError("\n".join(["Targets missed:", *missed]))
    except KeyboardInterrupt as error:
        raise SystemExit(INTERRUPTED_EXIT_CODE) from error
    except NcfbenchError as error:
        print(f"Error: {error}", file=sys.stderr)
        raise SystemExit(error.exit_code) from error


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    """Every sampler's starts, round by round."""
    flags = {
        "dataset": arguments.dataset,
        "encoder": arguments.encoder,
        "data_dir": arguments.data_dir,
    }
    names = arguments.samplers.split(",")
    for name in names:
        _, locations = merge(flags | {"sampler": name}, arguments.set)
    dataset = open_dataset(
        arguments.dataset,
        data_dir=locations.data_dir,
        say=lambda text: print(text, file=sys.stderr),
    )
    words = [
        "run",
        "--dataset",
        arguments.dataset,
        "--encoder",
        arguments.encoder,
        "--data-dir",
        str(locations.data_dir),
    ]
    words += ["--quiet", *(part for text in arguments.set for part in ("--set", text))]
    starts: dict[str, dict[str, list[dict[str, float]]]] = {
        name: {"cold": [], "warm": []} for name in names
    }
    for _ in range(arguments.rounds):
        for name in names:
            with tempfile.TemporaryDirectory() as scratch:
                for kind in ("cold", "warm"):
                    begun = start([*words, "--sampler", name], Path(scratch), arguments.iterations)
                    starts[name][kind].append(begun)
    longest = dataset.tokens_IxL.shape[1]
    most = LONG_PEAK_GIB if longest >= LONG_WORDS else PEAK_GIB
    return {
        "command": "python benchmarks/bench_start.py " + " ".join(sys.argv[1:]),
        "settings": {
            key: getattr(arguments, key)
            for key in ("dataset", "encoder", "iterations", "rounds", "set")
        },
        "max_length": longest,
        "data_fingerprint": dataset.fingerprint,
        "environment": environment.describe(),
        "samplers": {
            name: found | {"missed": missed(found, most)} for name, found in starts.items()
        },
    }


def start(words: list[str], scratch: Path, iterations: int) -> dict[str, float]:
    """Seconds and processor seconds until the first iteration was done, and peak GiB of the whole
    process.
    """
    mark = scratch / "mark"
    mark.unlink(missing_ok=True)
    variables = {
        "NCFBENCH_CACHE_DIR": str(scratch / "cache"),
        "NCFBENCH_RUNS_DIR": str(scratch / "runs"),
    }
    begin = time.time()
    process = subprocess.Popen(
        [sys.executable, "-c", CHILD, str(mark), str(iterations), *words],
        env={
            **{key: value for key, value in os.environ.items() if not key.startswith("JAX_")},
            **variables,
        },
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    said = process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode not in (0, INTERRUPTED_EXIT_CODE) or not mark.exists():
        raise CheckFailedError(
            f"ncfbench {' '.join(words)} ended with {process.returncode}:\n{said}"
        )
    at, processor = map(float, mark.read_text().split())
    return {
        "start_seconds": at - begin,
        "processor_seconds": processor,
        "peak_gib": usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024) / 2**30,
    }


def missed(found: dict[str, list[dict[str, float]]], most: float) -> list[str]:
    """The targets that the medians, or the largest peak, miss."""
    result = []
    for kind, target in (("cold", COLD_SECONDS), ("warm", WARM_SECONDS)):
        seconds = float(np.median([row["start_seconds"] for row in found[kind]]))
        if seconds > target:
            result.append(f"{kind} start {seconds:.1f} s, target {target} s")
    peak = max(row["peak_gib"] for rows in found.values() for row in rows)
    if peak > most:
        result.append(f"peak {peak:.2f} GiB, target {most} GiB")
    return result


def show(result: dict[str, Any]) -> None:
    """Print the table."""
    settings = result["settings"]
    what = (
        f"{settings['dataset']}, {settings['encoder']}, texts of at most {result['max_length']}"
        " words"
    )
    rows = []
    for name, row in result["samplers"].items():
        cells = [find_sampler(name).title]
        for kind in ("cold", "warm"):
            seconds = np.array([sample["start_seconds"] for sample in row[kind]])
            processor = np.median([sample["processor_seconds"] for sample in row[kind]])
            cells += [
                f"{np.median(seconds):.2f}",
                f"{seconds.min():.2f}..{seconds.max():.2f}",
                f"{processor:.2f}",
            ]
        cells += [
            f"{max(sample['peak_gib'] for kind in ('cold', 'warm') for sample in row[kind]):.2f}"
        ]
        rows.append([*cells, "; ".join(row["missed"]) or "met"])
    where = result["environment"]
    note = (
        f"Iterations before the stop: {settings['iterations'] or 'all'}. Load"
        f" {where['load_average'][0]:.1f}. {where['cpu']}, {where['cores']} cores, jax"
        f" {where['packages']['jax']}, {where['time']}"
    )
    title = f"Seconds to the first iteration, and peak memory: {what}"
    print_table(make_console(), Table(title, HEADER, rows, [note]))


if __name__ == "__main__":
    main()
