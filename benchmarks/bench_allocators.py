"""The effect of each memory allocator on times: parts of an iteration alone in a process, and among
others.

    python benchmarks/bench_allocators.py --dataset NAME --rounds 3 --json FILE

The item function g (forward and backward), a step of IID and a step of Strat. w. N.S. are timed in
three processes of their own, and again in one process that takes turns between g and the steps of
all five samplers. A time that depends on its neighbours cannot be predicted, so the ratio *among /
alone* should be 1. Allocators take turns, in another order in each round. Every process reads
compiled programs from the cache folder, which a round that does not count fills. The allocator that
is recorded is the one that the process finds in itself. Peak memory is that of the process of all.

With --json the file is written after each allocator of a round, and the same command goes on where
it was stopped; --pieces N stops after N of them.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np

from ncfbench.config import Locations, RunConfig, complete, merge
from ncfbench.data import Dataset, open_dataset
from ncfbench.errors import INTERRUPTED_EXIT_CODE, CheckFailedError, NcfbenchError, UsageError
from ncfbench.models.towers import DeviceContent
from ncfbench.profiling.parts import Parts
from ncfbench.reporting.render.terminal import make_console
from ncfbench.reporting.render.terminal import show as print_table
from ncfbench.reporting.table import Header, Table, columns_of
from ncfbench.runs.schedule import STEP_BATCHES
from ncfbench.storage import tables
from ncfbench.timing import allocator, environment, heap
from ncfbench.timing.compile_cache import keep_compiled
from ncfbench.training.loop import TimedLoop, timed_loops
from ncfbench.training.step import Trainer

SAMPLERS = ("iid", "neg", "strat", "ns", "strat-ns")
TIMED = ("items", "iid", "strat-ns")
"""Programs that are timed alone: g, and two samplers' steps."""
ALL = "all"
CLEARED = ("LD_PRELOAD", "MALLOC_CONF", "GLIBC_TUNABLES")
ARENAS = allocator.SETTINGS["jemalloc"]["MALLOC_CONF"].partition(",narenas")[0]
ARMS: dict[str, tuple[tuple[str, ...], Mapping[str, str]]] = {
    "glibc": ((), {}),
    "glibc, our settings": ((), allocator.SETTINGS["glibc"]),
    "jemalloc": (allocator.LIBRARIES["jemalloc"], {}),
    "jemalloc, our settings": (
        allocator.LIBRARIES["jemalloc"],
        allocator.SETTINGS["jemalloc"],
    ),
    "jemalloc, ours, all arenas": (allocator.LIBRARIES["jemalloc"], {"MALLOC_CONF": ARENAS}),
    "tcmalloc": (allocator.LIBRARIES["tcmalloc"], {}),
    "mimalloc": (("libmimalloc.so.2",), {}),
}
"""Names of each allocator's library, and its variables."""


def main() -> None:
    """Measure, print, and keep."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--dataset", default="synthetic")
    parser.add_argument("--encoder", default="cnn")
    parser.add_argument("--items", type=int, default=3456, help="items of g")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--blocks", type=int, default=5, help="blocks of each part in a process")
    parser.add_argument("--block-seconds", type=float, default=0.5)
    parser.add_argument("--quick", action="store_true", help="one short block, nothing beforehand")
    parser.add_argument("--allocators", help=f"separated by semicolons: {'; '.join(ARMS)}")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--json", type=Path, metavar="FILE", help="keep raw seconds; resume")
    parser.add_argument("--pieces", type=int, help="stop after so many allocators")
    parser.add_argument("--part", choices=(*TIMED, ALL), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.blocks, arguments.block_seconds = 1, 0.01
    try:
        if arguments.part:
            print(json.dumps(measure(arguments)))
        else:
            show(compare(arguments))
    except KeyboardInterrupt as error:
        raise SystemExit(INTERRUPTED_EXIT_CODE) from error
    except NcfbenchError as error:
        print(f"Error: {error}", file=sys.stderr)
        raise SystemExit(error.exit_code) from error


def compare(arguments: argparse.Namespace) -> dict[str, Any]:
    """Measure what is missing, piece by piece: one allocator in one round each."""
    arms = installed_arms(arguments.allocators)
    _, dataset = opened(arguments)
    result: dict[str, Any] = {
        "settings": {
            name: getattr(arguments, name)
            for name in ("dataset", "encoder", "items", "blocks", "block_seconds", "set")
        },
        "max_length": dataset.tokens_IxL.shape[1],
        "data_fingerprint": dataset.fingerprint,
        "environment": environment.describe(),
        "pieces": [],
    }
    if arguments.json and arguments.json.exists():
        result["pieces"] = earlier_pieces(arguments.json, result)
    done = {(piece["round"], piece["allocator"]) for piece in result["pieces"]}
    if not done and not arguments.quick:
        for part in (*TIMED, ALL):
            start(part, arms["glibc"])
    measured = 0
    for number in range(arguments.rounds):
        for name in random.Random(number).sample(list(arms), len(arms)):
            if (number, name) in done or measured == arguments.pieces:
                continue
            print(f"round {number + 1}, {name}", file=sys.stderr)
            parts = {part: start(part, arms[name]) for part in (*TIMED, ALL)}
            result["pieces"].append({"round": number, "allocator": name, "parts": parts})
            measured += 1
            if arguments.json:
                arguments.json.parent.mkdir(parents=True, exist_ok=True)
                tables.write_json(arguments.json, result)
    return result


def installed_arms(chosen: str | None) -> dict[str, Mapping[str, str]]:
    """Return the variables of each allocator that is installed, the chosen ones only.

    Raises:
        UsageError: an unknown name.
    """
    names = list(ARMS) if chosen is None else [name.strip() for name in chosen.split(";")]
    unknown = [name for name in names if name not in ARMS]
    if unknown:
        raise UsageError(f"--allocators: no {unknown[0]!r}. Valid: {'; '.join(ARMS)}.")
    found: dict[str, Mapping[str, str]] = {}
    for name in names:
        files, variables = ARMS[name]
        library = next(allocator.installed(files, os.environ), None)
        if library:
            found[name] = {"LD_PRELOAD": library, **variables}
        elif not files:
            found[name] = variables
        else:
            print(f"{name}: {files[0]} is not installed", file=sys.stderr)
    return found


def earlier_pieces(path: Path, result: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the pieces of an earlier result that may stand beside those of this one.

    Raises:
        UsageError: it was made with other settings, data or environment.
    """
    earlier = tables.read_json(path)
    for name in ("settings", "data_fingerprint"):
        if earlier.get(name) != result[name]:
            raise UsageError(f"{path} was made with other {name}: use another file.")
    if earlier["environment"]["key"] != result["environment"]["key"]:
        raise UsageError(f"{path} was made in another environment: use another file.")
    pieces: list[dict[str, Any]] = earlier["pieces"]
    return pieces


def start(part: str, variables: Mapping[str, str]) -> dict[str, Any]:
    """Measure a part, or all, in a process of its own."""
    usual = {name: value for name, value in os.environ.items() if name not in CLEARED}
    done = subprocess.run(
        [sys.executable, *sys.argv, "--part", part],
        env={**usual, **variables},
        stdout=subprocess.PIPE,
        text=True,
    )
    if done.returncode != 0:
        raise CheckFailedError(f"The process that measures {part} ended with {done.returncode}.")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def opened(arguments: argparse.Namespace) -> tuple[dict[str, RunConfig], Dataset]:
    """Return the settings of each sampler, and the data set."""
    flags = {name: getattr(arguments, name) for name in ("dataset", "encoder", "data_dir")}
    configs, locations = {}, Locations()
    for name in SAMPLERS:
        given, locations = merge(flags | {"sampler": name}, arguments.set)
        configs[name] = complete(given)
    say: Callable[[str], None] = lambda text: print(text, file=sys.stderr)  # noqa: E731
    return configs, open_dataset(arguments.dataset, data_dir=locations.data_dir, say=say)


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the seconds of an iteration of a part, or of all, block by block."""
    keep_compiled(lambda text: print(text, file=sys.stderr))
    configs, dataset = opened(arguments)
    content = DeviceContent.of(dataset)
    names = SAMPLERS if arguments.part == ALL else [arguments.part]
    seconds: dict[str, list[float]] = {}
    with timed_loops(
        dataset, content, {name: configs[name] for name in names if name in configs}
    ) as loops:
        blocks: dict[str, Callable[[int], float]] = {}
        if arguments.part in ("items", ALL):
            parts = Parts(*Trainer.create(configs["iid"], dataset), content)
            call = parts.item(item_ids(dataset, arguments.items))
            jax.block_until_ready(call())
            blocks["items"] = partial(call_block, call)
        for name, loop in loops.items():
            loop.full_block(STEP_BATCHES)
            loop.step_block()
            loop.take_samples()
            blocks[name] = partial(step_block, loop)
        counts = {}
        for name, block in blocks.items():
            block(1)
            counts[name] = max(1, round(arguments.block_seconds / block(1)))
        for _ in range(arguments.blocks):
            for name, block in blocks.items():
                seconds.setdefault(name, []).append(block(counts[name]))
    return {"seconds": seconds, "peak_bytes": peak_bytes(), "allocator": heap.describe()}


def item_ids(dataset: Dataset, count: int) -> np.ndarray:
    """Distinct items in use as far as there are any, then again."""
    used = dataset.graph.items_in_use
    return np.resize(np.random.default_rng(0).permutation(used), count)


def call_block(call: Callable[[], Any], count: int) -> float:
    """Return the seconds of a call."""
    begin = time.perf_counter()
    for _ in range(count):
        result = call()
    jax.block_until_ready(result)
    return (time.perf_counter() - begin) / count


def step_block(loop: TimedLoop, count: int) -> float:
    """Return the seconds of a step."""
    whole = -(-count // loop.trainer.per_dispatch) * loop.trainer.per_dispatch
    loop.step_block(whole)
    return loop.take_samples()[-1].seconds / whole


def peak_bytes() -> int:
    """Return the largest resident memory of this process, without its parent's."""
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    return 1024 * int(status.partition("VmHWM:")[2].split()[0])


def show(result: dict[str, Any]) -> None:
    """Print the table."""
    rows = []
    for name in ARMS:
        pieces = [piece for piece in result["pieces"] if piece["allocator"] == name]
        if not pieces:
            continue
        cells = [name]
        for part in TIMED:
            alone, among = (
                1e3
                * float(
                    np.median(
                        [np.median(piece["parts"][where]["seconds"][part]) for piece in pieces]
                    )
                )
                for where in (part, ALL)
            )
            cells += [f"{alone:.1f}", f"{among:.1f}", f"{among / alone:.2f}"]
        peak = float(np.median([piece["parts"][ALL]["peak_bytes"] for piece in pieces]))
        rows.append([*cells, f"{peak / 2**30:.2f}", str(len(pieces))])
    where = result["environment"]
    note = (
        f"Medians over rounds of the medians of a process. {where['cpu']}, {where['cores']} cores,"
        f" jax {where['packages']['jax']}, {where['time']}"
    )
    header: Header = [
        "allocator",
        *columns_of("g", "alone", "among", "ratio"),
        *columns_of("step of IID", "alone", "among", "ratio"),
        *columns_of("step of Strat. w. N.S.", "alone", "among", "ratio"),
        "peak GiB",
        "rounds",
    ]
    title = (
        f"Milliseconds alone in a process and among others: {result['settings']['dataset']},"
        f" {result['settings']['encoder']}, {result['max_length']} words, g of"
        f" {result['settings']['items']:,} items"
    )
    print_table(make_console(), Table(title, header, rows, [note]))


if __name__ == "__main__":
    main()
