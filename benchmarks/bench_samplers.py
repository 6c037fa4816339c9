"""The samplers on synthetic graphs of 10^5 to 10^8 links: memory of a link, links a second, seconds
of a distinct item.

    python benchmarks/bench_samplers.py --links 1e5,1e6,1e7,1e8 --seconds 5 --json FILE
    python benchmarks/bench_samplers.py --peers all --peer-links 1e7 --json FILE --resume

Each size has a process of its own, so that its peak memory is its own. Results are written to FILE
as they come. Batches are of 512 links, 10 negatives of each, strata of 4, drawn and assembled as
for training, without a device.

Times are processor seconds: a sampler is one thread, so that on an idle machine they are those of a
clock, and other processes disturb them less. A batch's seconds include its share of the order of
the links, which is made once an epoch. Targets, for each size and sampler: graph and sampler in at
most 24 bytes a link, and a distinct item in at most 4 times the smallest graph's seconds. Peers are
timed on their own draws of 10 items for each link, with our Negative Sampling beside them in the
same process.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from big_graph import array_bytes, forget_peak, make_graph, peak_bytes, resident_bytes
from peer_samplers import PEERS
from samplers_table import MOST_BYTES, MOST_RATIO, show

from ncfbench.catalog import find_sampler
from ncfbench.config import complete
from ncfbench.data.graph import BipartiteGraph
from ncfbench.errors import (
    INTERRUPTED_EXIT_CODE,
    CheckFailedError,
    NcfbenchError,
    UsageError,
    nearest,
)
from ncfbench.rng import Streams
from ncfbench.sampling import make_sampler
from ncfbench.timing import environment

SETTINGS = {"batch_size": 512, "negatives": 10, "stratum_size": 4}
ROUNDS = 5
CHUNK_BATCHES = 46
"""Batches that a training run draws at a time with these settings."""
FEWEST_LINKS = 10**6
"""Resident bytes of a smaller graph are those of the allocator, so its arrays count."""
PEER_SECONDS = 300
"""A peer that needs longer at one size, with setting up, is stopped."""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--links", default="1e5,1e6,1e7", help="sizes, separated by commas (default 1e5,1e6,1e7)"
    )
    parser.add_argument("--samplers", default="iid,neg,strat,ns,strat-ns")
    parser.add_argument(
        "--seconds",
        type=float,
        default=5.0,
        help="of timed batches of each sampler and size (default 5)",
    )
    parser.add_argument("--peers", default="", help=f"{', '.join(PEERS)}, or all; none by default")
    parser.add_argument(
        "--peer-links", default="1e7", help="largest graph for the peers (default 1e7)"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="keep the results here")
    parser.add_argument("--resume", action="store_true", help="leave out what FILE has")
    parser.add_argument(
        "--check", action="store_true", help="end with exit code 6 where a target is missed"
    )
    parser.add_argument("--child", metavar="LINKS", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    try:
        if arguments.child:
            print(
                json.dumps(
                    measure(
                        whole(arguments.child), arguments.samplers.split(","), arguments.seconds
                    )
                )
            )
            return
        result = run(arguments)
        show(result)
        missed = [
            text
            for cell in result["sizes"].values()
            for row in cell["samplers"].values()
            for text in row["missed"]
        ]
        if arguments.check and missed:
            raise CheckFailedError("\n".join(["Targets missed:", *missed]))
    except KeyboardInterrupt as error:
        raise SystemExit(INTERRUPTED_EXIT_CODE) from error
    except NcfbenchError as error:
        print(f"Error: {error}", file=sys.stderr)
        raise SystemExit(error.exit_code) from error


def whole(text: str) -> int:
    """A number of links: 100000, or 1e5."""
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if number < 1000 or number != int(number):
        raise UsageError(f"{text!r} is not a number of links, such as 1e6; 1000 or more.")
    return int(number)


def run(arguments: argparse.Namespace) -> dict[str, Any]:
    """Every size and every peer in a process of its own; the results so far are in the file after
    each.
    """
    names = arguments.samplers.split(",")
    for name in names:
        find_sampler(name)
    sizes = sorted(whole(text) for text in arguments.links.split(","))
    peers = (
        list(PEERS)
        if arguments.peers == "all"
        else [name for name in arguments.peers.split(",") if name]
    )
    unknown = [name for name in peers if name not in PEERS]
    if unknown:
        raise UsageError(
            f"Unknown peer {unknown[0]!r}{nearest(unknown[0], PEERS)} Valid: {', '.join(PEERS)}."
        )
    result: dict[str, Any] = {
        "command": "python benchmarks/bench_samplers.py " + " ".join(sys.argv[1:]),
        "settings": SETTINGS | {"samplers": names, "seconds": arguments.seconds},
        "environment": environment.describe(),
        "sizes": {},
        "peers": {},
    }
    if arguments.resume and arguments.json and arguments.json.exists():
        kept = json.loads(arguments.json.read_text(encoding="utf-8"))
        if (
            kept["settings"] != result["settings"]
            or kept["environment"]["key"] != result["environment"]["key"]
        ):
            raise UsageError(
                f"{arguments.json} was measured with other settings or on another machine: use"
                " another file."
            )
        result |= {"sizes": kept["sizes"], "peers": kept["peers"]}
    script = Path(__file__)
    for size in sizes:
        if str(size) not in result["sizes"]:
            say(f"{size:,} links ...")
            options = [
                "--child",
                str(size),
                "--samplers",
                ",".join(names),
                "--seconds",
                str(arguments.seconds),
            ]
            done = subprocess.run(
                [sys.executable, str(script), *options],
                stdout=subprocess.PIPE,
                text=True,
                check=False,
            )
            if done.returncode:
                raise CheckFailedError(
                    f"{size:,} links: the process ended with {done.returncode}; what came before is"
                    " kept."
                )
            result["sizes"][str(size)] = json.loads(done.stdout)
            judge(result["sizes"])
            save(arguments.json, result)
    for size in sizes if peers else []:
        for peer in peers:
            if size <= whole(arguments.peer_links) and peer not in result["peers"].get(
                str(size), {}
            ):
                say(f"{size:,} links, {peer} ...")
                result["peers"].setdefault(str(size), {})[peer] = run_peer(
                    script, peer, size, arguments.seconds
                )
                save(arguments.json, result)
    judge(result["sizes"])
    return result


def run_peer(script: Path, peer: str, size: int, seconds: float) -> dict[str, Any]:
    """Return what the peer's process prints, or why it prints nothing (not installed, too slow, out
    of memory).
    """
    command = [
        sys.executable,
        str(script.with_name("peer_samplers.py")),
        peer,
        str(size),
        str(seconds),
    ]
    try:
        done = subprocess.run(
            command, stdout=subprocess.PIPE, text=True, check=False, timeout=PEER_SECONDS
        )
    except subprocess.TimeoutExpired:
        return {"skipped": f"not done in {PEER_SECONDS} s"}
    if done.returncode:
        return {"skipped": f"its process ended with {done.returncode}"}
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def save(path: Path | None, result: dict[str, Any]) -> None:
    """Replace the file at once, so that an interruption leaves one or the other."""
    if path is not None:
        partial = path.with_suffix(".tmp")
        partial.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
        partial.replace(path)


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def measure(links: int, names: list[str], seconds: float) -> dict[str, Any]:
    """One size: the graph, then one sampler after another, each let go before the next."""
    for name in names:  # what is imported on first use is no part of a sampler
        measure_sampler(make_graph(2000), name, 0.0, 0)
    forget_peak()
    start, begin = resident_bytes(), time.process_time()
    graph = make_graph(links)
    made = time.process_time() - begin
    return {
        "links": graph.n_links,
        "users": graph.n_users,
        "items": graph.n_items,
        "making_seconds": made,
        "making_peak_bytes": peak_bytes(),
        "graph_array_bytes": array_bytes(graph),
        "samplers": {name: measure_sampler(graph, name, seconds, start) for name in names},
    }


def measure_sampler(graph: BipartiteGraph, name: str, seconds: float, start: int) -> dict[str, Any]:
    """Order of an epoch, then rounds of batches."""
    config = complete({"sampler": name, **SETTINGS})
    forget_peak()
    sampler = make_sampler(graph, config, Streams(0))
    orders: list[float] = []
    while not orders or (sum(orders) < 1 and len(orders) < 20):
        begin = time.process_time()
        sampler.positives.take(len(orders) * graph.n_links, 1)
        orders.append(time.process_time() - begin)
    stream = sampler.batches(0)
    distinct = [int(next(stream).n_items) for _ in range(CHUNK_BATCHES)]
    rounds: list[float] = []
    spent, chunks = 0.0, 1
    while len(rounds) < ROUNDS or spent < seconds:
        begin = time.process_time()
        distinct += [int(next(stream).n_items) for _ in range(chunks * CHUNK_BATCHES)]
        took = time.process_time() - begin
        rounds.append(took / (chunks * CHUNK_BATCHES))
        spent += took
        if len(rounds) == 1:
            chunks = max(1, round(chunks * seconds / ROUNDS / took))
    batch = float(np.median(rounds))
    whole_batch = batch + float(np.median(orders)) * config.batch_size / graph.n_links
    return {
        "order_seconds": orders,
        "rounds_batch_seconds": rounds,
        "batch_seconds": batch,
        "distinct_items": float(np.mean(distinct)),
        "links_per_second": config.batch_size / whole_batch,
        "item_seconds": whole_batch / float(np.mean(distinct)),
        "array_bytes": array_bytes(graph, sampler) / graph.n_links,
        "resident_bytes": (resident_bytes() - start) / graph.n_links,
        "peak_bytes": (peak_bytes() - start) / graph.n_links,
    }


def judge(sizes: dict[str, Any]) -> None:
    """Each row's ratio to the smallest graph, and the targets that it misses."""
    smallest = sizes[min(sizes, key=int)] if sizes else {}
    for cell in sizes.values():
        for name, row in cell["samplers"].items():
            row["item_ratio"] = row["item_seconds"] / smallest["samplers"][name]["item_seconds"]
            held = max(
                row["array_bytes"], row["resident_bytes"] if cell["links"] >= FEWEST_LINKS else 0
            )
            where = f"{name} at {cell['links']:,} links"
            row["missed"] = [f"{where}: {held:.1f} bytes a link"] * (held > MOST_BYTES)
            row["missed"] += [f"{where}: {row['item_ratio']:.2f} times the smallest graph"] * (
                row["item_ratio"] > MOST_RATIO
            )


if __name__ == "__main__":
    main()
