"""Large synthetic sets from the command to batches and ranks: seconds, bytes a link, peak memory;
and negative samplers of other libraries on the same graphs.

    python benchmarks/bench_scale.py --links 1e5,1e6,1e7,1e8 --json FILE
    python benchmarks/bench_scale.py --links 1e5,1e6 --peers all --json FILE

For each size `ncfbench prepare synthetic` as a user runs it; then the data set is loaded, the graph
built, and each sampler draws and assembles batches of 512 links, 10 negatives
of each, strata of 4, without a device; then recall is evaluated over all items for some links, by
blocks, with the vectors of an untrained model; and models are trained by the loop of ``ncfbench
run`` for --train seconds each, until their recall passes that of popularity. Each step has a
process of its own, so that its peak memory is its own. The data set lies in a folder of its own
below --scratch, and is removed. The memory of 10^9 links is computed.

Times of samplers are processor seconds: a sampler is one thread, so that on an idle machine they
are those of a clock, and other processes disturb them less. A batch's seconds include its share of
the order of the links, which is made once an epoch. Peers are timed on their own draws of 10 items
for each link, with our Negative Sampling beside them in the same process (``peer_samplers.py``).

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

import numpy as np
from harness import Benchmark, Found, machine, say
from measuring import isolated, ncfbench
from peer_samplers import PEERS, measure_peer
from scale_steps import (
    NAME,
    RECALL_AT,
    SETTINGS,
    TRAINED,
    batches,
    check,
    evaluation,
    train,
    with_processor_seconds,
)

from ncfbench.catalog import SAMPLERS, find_sampler
from ncfbench.errors import CheckFailedError, UsageError, nearest
from ncfbench.reporting.formats import interval
from ncfbench.reporting.table import Col, Table, under
from ncfbench.timing.clock import format_duration

MOST_BYTES = 24
"""Target: bytes a link of the arrays of graph and sampler."""
FEWEST_LINKS = 10**6
"""From which on the target counts: a bit for each pair of a smaller graph takes more."""
MOST_RATIO = 4
"""Target: seconds of a distinct item over those of the smallest graph."""
VALID = ", ".join(PEERS)
PEER_SECONDS = 300
"""A peer that needs longer at one size, with setting up, is stopped."""
STEPS = [
    Col("links", "links", ","),
    Col("step", "step"),
    Col("s", "seconds", ".1f"),
    Col("processor s", "processor_seconds", ".1f"),
    Col("peak GiB", "peak_bytes", ".2f", 2**-30),
    Col("peak B/link", "a_link", ".1f"),
    Col("within", "within"),
]
TRAINING = [
    Col("links", "links", ","),
    Col("trained", "name"),
    Col("set up s", "set_up_seconds", ".1f"),
    *under(
        "iteration",
        Col("ms", "iteration_ms", ".2f"),
        Col("processor ms", "processor_ms", ".2f"),
    ),
    Col("epoch min", "epoch_minutes", ".1f"),
    Col("peak GiB", "peak_bytes", ".2f", 2**-30),
    Col("peak B/link", "a_link", ".0f"),
    Col("links trained", "trained_links", ",.0f"),
    Col(f"recall@{RECALL_AT}", "recall", ".4f"),
    Col("of popularity", "popularity", ".4f"),
    Col("passed after processor s", "passed"),
]
DIMENSION, FLOAT_BYTES, STATE_COPIES, SHARDED_COPIES, DEVICES = 50, 4, 3, 4, 8
"""A state has a table and both moments of Adam, and where tables are sharded its gradient too."""
FORECAST = [
    Col("links", "links", ","),
    *under(
        "GiB",
        Col("user table", "users", ",.1f", 2**-30),
        Col("item table", "items", ",.1f", 2**-30),
        Col("state", "state", ",.1f", 2**-30),
        Col("graph", "graph", ",.1f", 2**-30),
        Col("sum", "sum", ",.1f", 2**-30),
        Col(f"each of {DEVICES} devices", "sharded", ",.1f", 2**-30),
    ),
]
OURS = [
    Col("links", "training_links", ","),
    Col("sampler", "title"),
    Col("distinct items", "distinct_items", ".0f"),
    Col("plan s", "plan_seconds", ".2f"),
    Col("order s", "order", ".3g"),
    Col("batch ms", "batch_ms", ".3f"),
    Col("links/s", "links_per_second", ",.0f"),
    Col("us an item", "item_us", ".2f"),
    Col("ratio", "ratio", ".2f"),
    *under(
        "bytes a link",
        Col("arrays", "array_bytes", ".1f"),
        Col("resident", "resident_bytes", ".1f"),
        Col("peak", "peak_bytes", ".1f"),
    ),
    Col("targets", "verdict"),
]
THEIRS = [
    Col("links", "links", ","),
    Col("peer", "peer"),
    Col("draws", "draws", wraps=True),
    Col("set up s", "setup_seconds", ".1f"),
    Col("B/link", "resident_bytes", ".0f"),
    Col("us a link", "us", ".2f"),
    Col("ours us", "our_us", ".2f"),
    Col("ratio", "ratio", ".1f"),
    Col("min..max", "range", interval(".1f")),
    Col("what differs", "differs", wraps=True),
]


class Scale(Benchmark):
    """A cell for each size: its steps, and its peers."""

    name = "scale"

    options: ClassVar = {
        "links": ("1e8", "sizes, separated by commas"),
        "samplers": ("", "separated by commas; by default those that races take unasked"),
        "seconds": (2.0, "of timed batches of a sampler or peer"),
        "peers": ("", f"{VALID}, or all; none by default"),
        "train": (60.0, "seconds of training of each of some settings; 0 for none"),
        "scratch": (None, "where the data sets lie; by default a temporary folder"),
        "limit_gib": (24.0, "memory of a process"),
    }
    places = ("links", "scratch")

    def cells(self, options: argparse.Namespace) -> Mapping[str, int]:
        if options.quick:
            options.links, options.seconds, options.train = "1e4,2e4", 0.05, 0.5
        # Others meet too many pairs for a check that looks at each, or refuse popular items.
        raced = [name for name in SAMPLERS if find_sampler(name).in_default_race]
        options.samplers = options.samplers or ",".join(raced)
        options.peers = ",".join(PEERS) if options.peers == "all" else options.peers
        for name in options.samplers.split(","):
            find_sampler(name)
        for name in filter(None, options.peers.split(",")):
            if name not in PEERS:
                raise UsageError(f"Unknown peer {name!r}{nearest(name, PEERS)} Valid: {VALID}.")
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
            names = filter(None, options.peers.split(","))
            peers = {peer: try_peer(peer, scratch, seconds) for peer in names}
        return {**sizes, "steps": steps, "peers": peers}

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
        yield Table.of("Steps", STEPS, step_rows(cells), notes(cells), labels=2, grouped=1)
        title = (
            f"Samplers: b = 512, k = 10, s = 4; targets: {MOST_BYTES} bytes a link,"
            f" {MOST_RATIO} times the smallest graph"
        )
        below = [
            f"Peak: while an epoch's order was made; no target. {packages}, {where['time']}",
        ]
        ours = list(sampler_rows(cells))
        yield Table.of(title, OURS, ours, below, labels=2, grouped=1)
        if trained := list(training_rows(cells)):
            title = "Training: b = 512, D = 50, each user's links held out at random"
            below = [
                f"Recall of a test link of each of {trained[0]['users']:,} users or fewer. Seconds"
                " of training, without setting up, compilation and evaluation."
            ]
            yield Table.of(title, TRAINING, trained, below, labels=2, grouped=1)
            below = [
                f"State: {STATE_COPIES} x (users + items) x {DIMENSION} x {FLOAT_BYTES} bytes. On"
                f" {DEVICES} devices with --shard-tables {SHARDED_COPIES} copies in equal parts,"
                " and the graph in each process."
            ]
            yield Table.of("Memory on paper", FORECAST, [*forecasts(cells)], below, labels=1)
        if theirs := list(peer_rows(cells)):
            title = "Ten items for each positive link"
            yield Table.of(title, THEIRS, theirs, labels=2, grouped=1)


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


def sizes_of(links: int) -> dict[str, int]:
    """Return a set's size: 37 links a user and 12 an item, as CiteULike has, up to 10^6 items; from
    10^8 links on 10 links a user.
    """
    users = links // (10 if links >= 10**8 else 37)
    return {"links": links, "users": users, "items": min(links // 12, 10**6)}


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


def try_peer(name: str, scratch: Path, seconds: float) -> Found:
    """Return the figures of a peer, or why there are none."""
    say(f"{name} ...")
    try:
        return dict(isolated(measure_peer, name, scratch, seconds, limit_seconds=PEER_SECONDS))
    except ImportError as error:
        return {"skipped": f"not installed ({error})"}
    except (TimeoutError, CheckFailedError) as error:
        return {"skipped": str(error)}


# --- rows of the tables


def step_rows(cells: Sequence[Found]) -> Iterator[Found]:
    """Yield the steps of each size, and among them the making of the graph."""
    for cell in cells:
        made, limit = cell["steps"]["batches"], cell["settings"]["limit_gib"]
        graph = {"seconds": made["making_seconds"], "peak_bytes": made["making_peak_bytes"]}
        for name, found in {**cell["steps"], "graph": graph}.items():
            if "seconds" in found:
                within = "yes" if found["peak_bytes"] <= limit * 2**30 else "no"
                peak = found["peak_bytes"] / cell["links"]
                row = {"processor_seconds": None, **found, "within": within, "a_link": peak}
                yield {**row, "links": cell["links"], "step": name}


def training_rows(cells: Sequence[Found]) -> Iterator[Found]:
    """Yield what each size trained."""
    for cell in cells:
        for name, row in cell["steps"].items():
            if not name.startswith("train "):
                continue
            seconds, used = (float(np.median(own)) for own in row["blocks_iteration"].values())
            b = SETTINGS["batch_size"]
            last, floor = row["curve"][-1], row["popularity"]
            passed = (point for point in row["curve"] if point["recall"] > floor)
            first = next(passed, None)
            after = f"{used * (first or last)['iterations']:.3g}"
            yield {
                **row,
                "links": cell["links"],
                "name": name.removeprefix("train "),
                "iteration_ms": 1e3 * seconds,
                "processor_ms": 1e3 * used,
                "epoch_minutes": used * row["training_links"] / b / 60,
                "a_link": row["peak_bytes"] / cell["links"],
                "trained_links": b * last["iterations"],
                "recall": last["recall"],
                "passed": after if first else f"not in {after}",
            }


def forecasts(cells: Sequence[Found]) -> Iterator[Found]:
    """Yield the bytes that 10^8 and 10^9 links take on paper; a link has those of the largest
    measured graph.
    """
    made = max(cells, key=lambda cell: cell["links"])["steps"]["batches"]
    a_link = max(row["array_bytes"] for row in made["samplers"].values())
    for size in map(sizes_of, (10**8, 10**9)):
        users, items = (size[of] * DIMENSION * FLOAT_BYTES for of in ("users", "items"))
        state, graph = STATE_COPIES * (users + items), a_link * size["links"]
        yield {
            "links": size["links"],
            "users": users,
            "items": items,
            "state": state,
            "graph": graph,
            "sum": state + graph,
            "sharded": SHARDED_COPIES * (users + items) / DEVICES + graph,
        }


def sampler_rows(cells: Sequence[Found]) -> Iterator[Found]:
    """Yield each sampler at each size; the smallest size is the first."""
    smallest: dict[str, float] = {}
    for cell in sorted(cells, key=lambda cell: cell["links"]):
        b, links = SETTINGS["batch_size"], cell["steps"]["batches"]["training_links"]
        for name, row in cell["steps"]["batches"]["samplers"].items():
            batch, order = (
                float(np.median(row[of])) for of in ("rounds_batch_seconds", "order_seconds")
            )
            whole_batch = batch + order * b / links
            item = whole_batch / row["distinct_items"]
            ratio = item / smallest.setdefault(name, item)
            held = row["array_bytes"]
            missed = [f"{held:.1f} bytes a link"] * (links >= FEWEST_LINKS and held > MOST_BYTES)
            missed += [f"{ratio:.2f} times the smallest graph"] * (ratio > MOST_RATIO)
            yield {
                "plan_seconds": None,
                **row,
                "training_links": links,
                "title": find_sampler(name).title,
                "order": order,
                "batch_ms": 1e3 * batch,
                "links_per_second": b / whole_batch,
                "item_us": 1e6 * item,
                "ratio": ratio,
                "verdict": ", ".join(missed) or "met",
            }


def peer_rows(cells: Sequence[Found]) -> Iterator[Found]:
    """Yield each peer at each size, beside our Negative Sampling under the same noise."""
    for cell in cells:
        for peer, row in cell["peers"].items():
            if "skipped" in row:
                none = dict.fromkeys(str(col.key) for col in THEIRS)
                yield none | {"links": cell["links"], "peer": peer, "differs": row["skipped"]}
                continue
            ratios = np.array(row["seconds"]) / np.array(row["our_seconds"])
            yield {
                **row,
                "links": cell["links"],
                "peer": f"{peer} {row['version']}",
                "us": 1e6 * np.median(row["seconds"]),
                "our_us": 1e6 * np.median(row["our_seconds"]),
                "ratio": np.median(ratios),
                "range": (ratios.min(), ratios.max()),
            }


def notes(cells: Sequence[Found]) -> Iterator[str]:
    """Yield the other figures of each size."""
    yield "Peak and resident memory hold the mapped files."
    for cell in cells:
        made, links = cell["steps"]["batches"], f"{cell['links']:,} links"
        bytes_a_link = made["graph_array_bytes"] / made["training_links"]
        yield (
            f"{links}: {cell['users']:,} users, {cell['items']:,} items; {bytes_a_link:.1f} bytes a"
            " training link in the graph."
        )
        if "evaluation" in cell["steps"]:
            found = cell["steps"]["evaluation"]
            disk = cell["steps"]["prepare"]["disk_bytes"] / cell["links"]
            yield (
                f"{links}: {disk:.1f} bytes a link on the disk; rank {found['links']:,} links"
                f" {found['rank_seconds']:.1f} s: {found['scores_per_second'] / 1e6:.0f} million"
                " scores a second."
            )
            held_out = cell["links"] - made["training_links"]
            scores = held_out * cell["items"]
            yield (
                f"{links}: ncfbench run would rank all {held_out:,} held-out links at the end of an"
                f" epoch: about {format_duration(scores / found['scores_per_second'])}."
            )


if __name__ == "__main__":
    Scale().main()
