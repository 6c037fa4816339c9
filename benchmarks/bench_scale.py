"""A large synthetic set from the command to batches and ranks: seconds, bytes a link, peak memory,
each in its own process.

    python benchmarks/bench_scale.py                                     10^8 links, 10^7 users,
    10^6 items python benchmarks/bench_scale.py --links 1e6 --users 1e5 --items 1e4

Three steps, one process each: `ncfbench prepare synthetic` as a user runs it; then the data set is
loaded and verified, the graph built, and each sampler draws and assembles batches; then recall is
evaluated over all items for some links, by blocks, with the vectors of an untrained model. The data
set lies in a folder of its own below --scratch, and is removed.

What comes out is checked once before it is timed: the number of links is exact, each is in range
and there once; a batch's positives are training links, its slots are in range and its weights
finite, and no training link has a weight among the negatives; some ranks are counted again in
float64. A process that takes more memory than the limit ends the benchmark with exit code 6. Times
of samplers are processor seconds, as other work may share the machine; seconds of steps are both.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
from big_graph import array_bytes, forget_peak, peak_bytes, resident_bytes
from scale_checks import check, check_batch, check_links, check_ranks
from scale_table import show

from ncfbench.catalog import SAMPLERS, find_sampler
from ncfbench.config import complete
from ncfbench.data import store
from ncfbench.data.content import Content
from ncfbench.data.graph import BipartiteGraph
from ncfbench.errors import INTERRUPTED_EXIT_CODE, CheckFailedError, NcfbenchError
from ncfbench.rng import Streams
from ncfbench.sampling import make_sampler, plan_capacity
from ncfbench.timing import environment

LIMIT_GIB = 24.0
SETTINGS = {"batch_size": 512, "negatives": 10, "stratum_size": 4}
ROUNDS = 5
CHECKED_RANKS = 4
NAME = "large"
KEPT = ("links", "users", "items", "batch_size", "batches", "evaluated", "limit_gib")
highest = 0
STEPS = ("prepare", "batches", "evaluation")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--links", type=whole, default=10**8)
    parser.add_argument("--users", type=whole, default=10**7)
    parser.add_argument("--items", type=whole, default=10**6)
    parser.add_argument(
        "--samplers",
        default="all",
        help="names, separated by commas (default: those that races take unasked)",
    )
    parser.add_argument(
        "--batches", type=whole, default=1000, help="timed batches of each sampler (default 1000)"
    )
    parser.add_argument(
        "--evaluated", type=whole, default=4096, help="links that are ranked (default 4096)"
    )
    parser.add_argument("--batch-size", type=whole, default=SETTINGS["batch_size"])
    parser.add_argument(
        "--scratch",
        type=Path,
        help="where the data set lies meanwhile (default: a temporary folder)",
    )
    parser.add_argument(
        "--limit-gib", type=float, default=LIMIT_GIB, help="memory of a process (default 24)"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="keep the results here")
    parser.add_argument("--child", choices=STEPS[1:], help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    try:
        names = arguments.samplers.split(",")
        if arguments.samplers == "all":
            # Others meet too many pairs for a check that looks at each, or refuse popular items.
            names = [name for name in SAMPLERS if find_sampler(name).in_default_race]
        for name in names:
            find_sampler(name)
        if arguments.child:
            print(
                json.dumps(
                    batches(arguments, names)
                    if arguments.child == "batches"
                    else evaluation(arguments)
                )
            )
            return
        result = run(arguments, names)
        if arguments.json:
            arguments.json.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
        show(result)
        if result["missed"]:
            raise CheckFailedError("\n".join(["Over the limit:", *result["missed"]]))
    except KeyboardInterrupt as error:
        raise SystemExit(INTERRUPTED_EXIT_CODE) from error
    except NcfbenchError as error:
        print(f"Error: {error}", file=sys.stderr)
        raise SystemExit(error.exit_code) from error


def whole(text: str) -> int:
    """A number above zero: 100000, or 1e5."""
    try:
        number = int(text) if text.isdecimal() else float(text)
        if number >= 1 and number == int(number):
            return int(number)
    except (ValueError, OverflowError):
        pass
    raise argparse.ArgumentTypeError(f"{text!r} is not a number such as 1e6")


def run(arguments: argparse.Namespace, names: list[str]) -> dict[str, Any]:
    """The three steps one after another."""
    result: dict[str, Any] = {
        "command": "python benchmarks/bench_scale.py " + " ".join(sys.argv[1:]),
        "settings": SETTINGS | {key: getattr(arguments, key) for key in KEPT} | {"samplers": names},
        "environment": environment.describe(),
        "steps": {},
    }
    steps = result["steps"]
    with tempfile.TemporaryDirectory(prefix="ncfbench-scale-", dir=arguments.scratch) as scratch:
        sizes = [
            part
            for key in ("users", "items", "links")
            for part in (f"--{key}", str(getattr(arguments, key)))
        ]
        sizes += ["--data-dir", scratch, "--name", NAME, "--json"]
        say(
            f"prepare: {arguments.links:,} links, {arguments.users:,} users, {arguments.items:,}"
            " items ..."
        )
        steps["prepare"] = process("prepare", ["-m", "ncfbench", "prepare", "synthetic", *sizes])
        manifest = steps["prepare"].pop("output")
        steps["prepare"]["statistics"] = manifest["statistics"]
        steps["prepare"]["disk_bytes"] = sum(
            path.stat().st_size for path in Path(scratch).rglob("*") if path.is_file()
        )
        if manifest["statistics"]["links"] != arguments.links:
            raise CheckFailedError(f"{manifest['statistics']['links']:,} links were made.")
        passed = ["--batches", str(arguments.batches), "--evaluated", str(arguments.evaluated)]
        passed += [
            "--batch-size",
            str(arguments.batch_size),
            "--samplers",
            ",".join(names),
            "--scratch",
            scratch,
        ]
        for step in STEPS[1:]:
            steps[step] = process(step, [__file__, "--child", step, *passed])
            found = steps[step].pop("output")
            # A process that lets its peak begin anew does so for the system too.
            steps[step] |= found | {
                "peak_bytes": max(steps[step]["peak_bytes"], found["peak_bytes"])
            }
    for name, step in steps.items():
        step["peak_bytes_a_link"] = step["peak_bytes"] / arguments.links
        say(f"{name}: {step['seconds']:.1f} s, peak {step['peak_bytes'] / 2**30:.2f} GiB")
    result["missed"] = [
        f"{name}: {step['peak_bytes'] / 2**30:.2f} GiB, limit {arguments.limit_gib:g} GiB"
        for name, step in steps.items()
        if step["peak_bytes"] > arguments.limit_gib * 2**30
    ]
    return result


def process(step: str, words: list[str]) -> dict[str, Any]:
    """Return what a process prints as JSON, its seconds, and its peak memory."""
    begin = time.perf_counter()
    child = subprocess.Popen([sys.executable, *words], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    printed = child.stdout.read()
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise CheckFailedError(f"{step}: the process ended with {child.returncode}.")
    return {
        "seconds": time.perf_counter() - begin,
        "processor_seconds": usage.ru_utime + usage.ru_stime,
        "peak_bytes": usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024),
        "output": json.loads(printed),
    }


def anew() -> None:
    """Let the peak begin anew, and remember the highest."""
    global highest
    highest = max(highest, peak_bytes())
    forget_peak()


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def batches(arguments: argparse.Namespace, names: list[str]) -> dict[str, Any]:
    """Load, verify and build; then one sampler after another, each let go before the next."""
    before = resident_bytes()
    loaded: list[float] = []
    verified: list[float] = []
    plain = Content.digest

    def digest(content: Content, options: Mapping[str, Any]) -> str:
        return str(timed(verified, lambda: plain(content, options)))

    say("load and verify ...")
    with patch.object(Content, "digest", digest):
        dataset = timed(loaded, lambda: store.load(arguments.scratch, NAME))
    links = len(dataset.users)
    say("check the links ...")
    check_links(dataset)
    say("build the graph ...")
    built: list[float] = []
    anew()
    graph = timed(built, lambda: dataset.graph)
    check(
        graph.n_links == int((dataset.split[dataset.items] == 0).sum()),
        "the graph has the training links",
    )
    found = {
        "load_seconds": loaded[0] - verified[0],
        "verify_seconds": verified[0],
        "graph_seconds": built[0],
        "graph_peak_bytes": peak_bytes(),
        "training_links": graph.n_links,
        "graph_array_bytes_a_link": array_bytes(graph) / graph.n_links,
        "samplers": {},
    }
    for name in names:
        say(f"{name} ...")
        config = complete({"sampler": name, **SETTINGS, "batch_size": arguments.batch_size})
        found["samplers"][name] = measure(graph, config, arguments.batches, before) | {
            "links": links
        }
    anew()
    return found | {"peak_bytes": highest}


def timed(seconds: list[float], call: Callable[[], Any]) -> Any:
    begin = time.perf_counter()
    result = call()
    seconds.append(time.perf_counter() - begin)
    return result


def measure(graph: BipartiteGraph, config: Any, count: int, before: int) -> dict[str, Any]:
    """One sampler: what a run does before its first batch, and then batches."""
    anew()
    planned: list[float] = []
    ordered: list[float] = []
    first: list[float] = []
    capacity = timed(planned, lambda: plan_capacity(graph, config))
    sampler = make_sampler(graph, config, Streams(0))
    timed(ordered, lambda: sampler.positives.take(0, 1))
    stream = sampler.batches(0, capacity)
    check_batch(timed(first, lambda: next(stream)), graph, config)
    distinct: list[int] = []
    rounds: list[float] = []
    for _ in range(ROUNDS):
        begin = time.process_time()
        distinct += [int(next(stream).n_items) for _ in range(max(1, count // ROUNDS))]
        rounds.append((time.process_time() - begin) / max(1, count // ROUNDS))
    batch, items = float(np.median(rounds)), float(np.mean(distinct))
    # An epoch's order serves all its batches.
    whole_batch = batch + ordered[0] * config.batch_size / graph.n_links
    peak = peak_bytes()
    return {
        "plan_seconds": planned[0],
        "order_seconds": ordered[0],
        "first_batch_seconds": first[0],
        "rounds_batch_seconds": rounds,
        "batch_seconds": batch,
        "distinct_items": items,
        "link_seconds": whole_batch / config.batch_size,
        "item_seconds": whole_batch / items,
        "array_bytes_a_link": array_bytes(graph, sampler) / graph.n_links,
        "resident_bytes": resident_bytes() - before,
        "peak_bytes": peak - before,
    }


def evaluation(arguments: argparse.Namespace) -> dict[str, Any]:
    """Recall of some links over all items, by vectors of an untrained model."""
    import jax
    from flax import nnx

    from ncfbench.models.interaction import make_interaction
    from ncfbench.models.towers import DeviceContent, make_towers
    from ncfbench.runs.quality import Ranking
    from ncfbench.training.inference import Embedder
    from ncfbench.training.recall import BLOCK_LINKS, link_ranks

    dataset = store.load(arguments.scratch, NAME)
    say("embed users and items ...")
    config = complete({"sampler": "ns"})
    towers, variables = nnx.split(make_towers(config, dataset))
    parameters = nnx.as_pure(variables)
    embedder = Embedder(towers, DeviceContent.of(dataset))
    model, held = peak_bytes(), resident_bytes()
    anew()
    seconds: list[float] = []
    users = timed(seconds, lambda: jax.block_until_ready(embedder.users(parameters).scored))
    everything = np.arange(dataset.n_items, dtype=np.int32)
    items = timed(seconds, lambda: jax.block_until_ready(embedder.items(parameters, everything)))
    size = min(arguments.evaluated, len(dataset.users))
    chosen = np.sort(np.random.default_rng(0).choice(len(dataset.users), size, replace=False))
    user, item = dataset.users[chosen], dataset.items[chosen]
    say(f"rank {size:,} links among {dataset.n_items:,} items ...")
    score = make_interaction(config)
    link_ranks(score, users, items, user[:BLOCK_LINKS], item[:BLOCK_LINKS])
    ranks = timed(seconds, lambda: link_ranks(score, users, items, user, item))
    peak = peak_bytes()
    check_ranks(np.asarray(users[user[:CHECKED_RANKS]]), np.asarray(items), item, ranks)
    return {
        "links": size,
        "dimension": int(items.shape[1]),
        "peak_bytes": max(model, peak),
        "model_peak_bytes": model,
        "own_peak_bytes": peak - held,
        "embed_users_seconds": seconds[0],
        "embed_items_seconds": seconds[1],
        "rank_seconds": seconds[2],
        "scores_per_second": size * dataset.n_items / seconds[2],
        "quality": Ranking(user, item, dataset.n_items)(ranks).figures,
    }


if __name__ == "__main__":
    main()
