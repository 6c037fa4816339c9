"""Large synthetic sets from the command to batches and ranks: seconds, bytes a link, peak memory.

    python benchmarks/bench_scale.py --links 1e5,1e6,1e7,1e8 --json FILE

For each size `ncfbench prepare synthetic` as a user runs it; then the data set is loaded, the graph
built, and each sampler draws and assembles batches of 512 links, 10 negatives
of each, strata of 4, without a device; then recall is evaluated over all items for some links, by
blocks, with the vectors of an untrained model; and models are trained by the loop of ``ncfbench
run`` for --train seconds each, until their recall passes that of popularity. Each step has a
process of its own, so that its peak memory is its own. The data set lies in a folder of its own
below --scratch, and is removed. The memory of 10^9 links is computed.

Times of samplers are processor seconds: a sampler is one thread, so that on an idle machine they
are those of a clock, and other processes disturb them less. A batch's seconds include its share of
the order of the links, which is made once an epoch.

Targets: a process within --limit-gib; for each size and sampler, arrays of at most 24 bytes a link
in graph and sampler (from 10^6 links on), and a distinct item in at most 4 times the smallest
graph's time.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from harness import Benchmark, Found, machine, say
from measuring import isolated, ncfbench
from scale_steps import (
    NAME,
    TRAINED,
    batches,
    check,
    evaluation,
    train,
    with_processor_seconds,
)
from scale_tables import sampler_rows, sizes_of, step_rows, tables

from ncfbench.catalog import SAMPLERS, find_sampler
from ncfbench.errors import UsageError
from ncfbench.reporting.table import Table


class Scale(Benchmark):
    """A cell for each size: its steps."""

    name = "scale"

    options: ClassVar = {
        "links": ("1e8", "sizes, separated by commas"),
        "samplers": ("", "separated by commas; by default all"),
        "seconds": (2.0, "of timed batches of a sampler"),
        "train": (60.0, "seconds of training of each of some settings; 0 for none"),
        "scratch": (None, "where the data sets lie; by default a temporary folder"),
        "limit_gib": (24.0, "memory of a process"),
    }
    places = ("links", "scratch")

    def cells(self, options: argparse.Namespace) -> Mapping[str, int]:
        if options.quick:
            options.links, options.seconds, options.train = "1e4,2e4", 0.05, 0.5
        scaled = list(SAMPLERS)
        options.samplers = options.samplers or ",".join(scaled)
        for name in options.samplers.split(","):
            find_sampler(name)
        return {str(size): size for size in sorted(map(whole, options.links.split(",")))}

    def measure(self, name: str, cell: int, options: argparse.Namespace) -> Found:
        seconds, sizes, samplers = options.seconds, sizes_of(cell), options.samplers.split(",")
        where = tempfile.TemporaryDirectory(prefix="ncfbench-scale-", dir=options.scratch)
        with where as text:
            scratch = Path(text)
            steps = {"prepare": prepare(sizes, scratch)}
            steps["batches"] = step(batches, scratch, samplers, seconds)
            steps["evaluation"] = step(evaluation, scratch)
            for arm in TRAINED if options.train else ():
                steps[f"train {arm}"] = step(train, scratch, arm, options.train)
        return {**sizes, "steps": steps}

    def missed(self, cells: Sequence[Found]) -> list[str]:
        large = [
            f"{row['links']:,} links, {row['step']}: {row['peak_bytes'] / 2**30:.2f} GiB"
            for row in step_rows(cells)
            if row["within"] == "no"
        ]
        return large + [
            f"{row['title']} at {row['training_links']:,} links: {row['verdict']}"
            for row in sampler_rows(cells)
            if row["verdict"] != "met"
        ]

    def tables(self, cells: Sequence[Found], environments: Mapping[str, Any]) -> Iterator[Table]:
        where = environments[cells[0]["environment_key"]]
        packages = f"{machine(where, 'numpy', 'jax')}, load {where['load_average'][0]:.1f}"
        return tables(cells, f"{packages}, {where['time']}")


def whole(text: str) -> int:
    """Return a number of links: 100000, or 1e5.

    Raises:
        UsageError: it is none.
    """
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if number < 1000 or number != int(number):
        raise UsageError(f"{text!r} is not a number of links, such as 1e6; 1000 or more.")
    return int(number)


def prepare(sizes: Mapping[str, int], scratch: Path) -> Found:
    """Run the command, and return what it takes and what it makes.

    Raises:
        CheckFailedError: it failed, or made another number of links.
    """
    words = [f"--{name}={size}" for name, size in sizes.items()]
    words += ["--hold-out=links", f"--data-dir={scratch}", f"--name={NAME}", "--json"]
    done = ncfbench(["prepare", "synthetic", *words])
    links = json.loads(done.output)["statistics"]["links"]
    check(links == sizes["links"], f"{sizes['links']:,} links were made")
    return {
        "seconds": done.seconds,
        "processor_seconds": done.processor_seconds,
        "peak_bytes": done.peak_bytes,
        "disk_bytes": sum(path.stat().st_size for path in scratch.rglob("*") if path.is_file()),
    }


def step(function: Callable[..., Found], *arguments: Any) -> Found:
    """Return what a function finds in a process of its own, and its seconds."""
    say(f"{function.__name__} ...")
    begin = time.perf_counter()
    found: Found = isolated(with_processor_seconds, function, *arguments)
    return {"seconds": time.perf_counter() - begin, **found}


if __name__ == "__main__":
    Scale().main()
