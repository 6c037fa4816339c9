"""The steps of the benchmark of scale, each called in a process of its own; they check what comes
out before they time it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from measuring import interleaved, on_processor, peak_bytes, resident_bytes, restart_peak
from numpy.typing import NDArray

from ncfbench.catalog import find_sampler
from ncfbench.config import complete
from ncfbench.data import store
from ncfbench.data.graph import BipartiteGraph
from ncfbench.errors import CheckFailedError
from ncfbench.rng import Streams
from ncfbench.runs.quality import within
from ncfbench.runs.ranks import Ranks
from ncfbench.sampling import make_sampler, plan_capacity
from ncfbench.sampling.batch import Batch, negative_ids

NAME = "large"
SETTINGS = {"batch_size": 512, "negatives": 10, "stratum_size": 4}
ROUNDS = 5
CHUNK_BATCHES = 46
"""Batches that a training run draws at a time with these settings."""
EVALUATED = 4096
"""Links that are ranked."""
CHECKED_RANKS = 4
CHUNK_LINKS = 2**22
"""Links checked at a time."""
TRAINED: dict[str, dict[str, Any]] = {
    "strat-ns bow": {"sampler": "strat-ns", "encoder": "bow", "loss": "softmax"},
    "iid bow": {"sampler": "iid", "encoder": "bow", "loss": "sg"},
    "strat-ns mf": {"sampler": "strat-ns", "encoder": "mf", "loss": "softmax"},
}
"""Settings that are trained, by name."""
RECALL_AT, RECALLED = 50, 2048
"""M of recall, and the users of its sample."""
EVALUATIONS = 5
"""In training, at its end and at each half of the time before."""
BLOCK_SECONDS = 1.0
"""Seconds of training whose iterations give one time."""


def batches(scratch: Path, names: Sequence[str], seconds: float) -> dict[str, Any]:
    """Load and build; then one sampler after another."""
    for name in names:  # what is imported on first use is no part of a sampler
        find_sampler(name).load()
    before, dataset = resident_bytes(), store.load(scratch, NAME)
    check_links(dataset)
    peaks = [restart_peak()]
    graph, built = timed(lambda: dataset.graph)
    check(graph.n_links == len(dataset.links("train")[0]), "the graph has the training links")
    facts = {
        "making_seconds": built,
        "making_peak_bytes": peak_bytes(),
        "training_links": graph.n_links,
        "graph_array_bytes": array_bytes(graph),
        "samplers": {},
    }
    for name in names:
        peaks.append(restart_peak())
        facts["samplers"][name] = measure_sampler(graph, name, seconds, before)
    return {**facts, "peak_bytes": max(*peaks, peak_bytes())}


def measure_sampler(
    graph: BipartiteGraph, name: str, seconds: float, start_bytes: int
) -> dict[str, Any]:
    """Return what a sampler takes: its pilot, orders of an epoch, then rounds of batches.

    Times are processor seconds, memory in bytes a link above ``start_bytes``.
    """
    config = complete({"sampler": name, **SETTINGS})
    capacity, planned = timed(lambda: plan_capacity(graph, config), time.process_time)
    sampler = make_sampler(graph, config, Streams(0))
    orders: list[float] = []
    while not orders or (sum(orders) < 1 and len(orders) < 20):
        start = len(orders) * graph.n_links
        orders.append(timed(lambda: sampler.positives.take(start, 1), time.process_time)[1])  # noqa: B023
    stream = sampler.batches(0, capacity)
    batch, first = timed(lambda: next(stream), time.process_time)
    check_batch(batch, graph)
    distinct: list[int] = []

    def draw() -> None:
        distinct.extend(int(next(stream).n_items) for _ in range(CHUNK_BATCHES))

    chunks = interleaved({name: on_processor(draw)}, ROUNDS, seconds / ROUNDS)[name]
    return {
        "plan_seconds": planned,
        "order_seconds": orders,
        "first_batch_seconds": first,
        "rounds_batch_seconds": [chunk / CHUNK_BATCHES for chunk in chunks],
        "distinct_items": float(np.mean(distinct)),
        "array_bytes": array_bytes(graph, sampler) / graph.n_links,
        "resident_bytes": (resident_bytes() - start_bytes) / graph.n_links,
        "peak_bytes": (peak_bytes() - start_bytes) / graph.n_links,
    }


def evaluation(scratch: Path) -> dict[str, Any]:
    """Rank some links over all items, by vectors of an untrained model."""
    from flax import nnx

    from ncfbench.models.towers import DeviceContent, make_towers
    from ncfbench.training.inference import Embedder
    from ncfbench.training.recall import BLOCK_USERS, link_ranks

    dataset, config = store.load(scratch, NAME), complete({"sampler": "ns"})
    towers, variables = nnx.split(make_towers(config, dataset))
    parameters = nnx.as_pure(variables)
    embedder = Embedder(towers, DeviceContent.of(dataset))
    users = embedder.users(parameters).scored
    items = embedder.items(parameters, np.arange(dataset.n_items, dtype=np.int32))
    size = min(EVALUATED, len(dataset.users))
    chosen = np.sort(np.random.default_rng(0).choice(len(dataset.users), size, replace=False))
    user, item = dataset.users[chosen], dataset.items[chosen]
    link_ranks(users, items, user[:BLOCK_USERS], item[:BLOCK_USERS])
    ranks, ranks_took = timed(lambda: link_ranks(users, items, user, item))
    check_ranks(np.asarray(users[user[:CHECKED_RANKS]]), np.asarray(items), item, ranks.expected)
    return {
        "links": size,
        "peak_bytes": peak_bytes(),
        "rank_seconds": ranks_took,
        "scores_per_second": size * dataset.n_items / ranks_took,
    }


def train(scratch: Path, name: str, seconds: float) -> dict[str, Any]:
    """Train by the loop of ``ncfbench run``, and evaluate :data:`EVALUATIONS` times on the way.

    Recall@50 is that of one test link of each of some users, all items ranked but those of the
    user's training links: the mean of ``ncfbench floor`` and ``run``, estimated. Seconds are those
    of training alone.
    """
    import jax
    import jax.numpy as jnp

    from ncfbench.models.towers import DeviceContent
    from ncfbench.training.inference import compiled
    from ncfbench.training.loop import timed_loops
    from ncfbench.training.recall import link_ranks

    config = complete({**SETTINGS, **TRAINED[name], "dimension": 50, "optimizer": "auto"})
    begin, dataset = time.perf_counter(), store.load(scratch, NAME)
    user, item, known = held_out_sample(dataset)
    rows, everything = (np.arange(size, dtype=np.int32) for size in (len(user), dataset.n_items))
    degrees = jnp.asarray(dataset.graph.item_degrees[:, None], jnp.float32)
    recall = partial(link_ranks, users=rows, index=item, known=known)
    floor = recall(jnp.ones((len(rows), 1)), degrees)
    content = DeviceContent.of(dataset)
    curve, trained = list[dict[str, float]](), 0.0
    blocks: dict[str, list[float]] = {"seconds": [], "processor_seconds": []}
    with timed_loops(dataset, content, {name: config}) as loops:
        loop, peaks = loops[name], {"set_up": restart_peak()}
        embedder, users_of = loop.trainer.embedder(content), compiled(loop.trainer.towers, "users")
        state_bytes = sum(leaf.nbytes for leaf in jax.tree.leaves(loop.state))
        set_up = time.perf_counter() - begin
        for number in reversed(range(EVALUATIONS)):
            while trained < seconds / 2**number:
                end = time.perf_counter() + min(BLOCK_SECONDS, seconds / 2**number - trained)
                used = time.process_time()
                loop.full_block(10**9, stop=lambda: time.perf_counter() >= end)  # noqa: B023
                used, sample = time.process_time() - used, loop.samples[-1]
                trained += sample.seconds
                blocks["seconds"].append(sample.seconds / sample.iterations)
                blocks["processor_seconds"].append(used / sample.iterations)
            peaks["training"] = max(restart_peak(), peaks.get("training", 0))
            loop.settle()
            peaks["settling"] = max(restart_peak(), peaks.get("settling", 0))
            parameters = loop.state.parameters
            of_users = users_of(parameters, content, user).scored
            of_items = embedder.items(parameters, everything)
            ranks = recall(of_users, of_items)
            del of_users, of_items
            curve.append({"seconds": trained, "iterations": loop.iteration, "recall": share(ranks)})
            peaks["evaluation"] = max(restart_peak(), peaks.get("evaluation", 0))
    check(all(np.isfinite(point["recall"]) for point in curve), "recall is finite")
    return {
        "training_links": dataset.graph.n_links,
        "set_up_seconds": set_up,
        "blocks_iteration": blocks,
        "state_bytes": state_bytes,
        "peaks": peaks,
        "peak_bytes": max(peaks.values()),
        "users": len(user),
        "curve": curve,
        "popularity": share(floor),
        "chance": RECALL_AT / dataset.n_items,
    }


def share(ranks: Ranks) -> float:
    """Return the share of ranks within :data:`RECALL_AT`."""
    return float(np.mean(within(ranks, RECALL_AT)))


def held_out_sample(
    dataset: store.Dataset,
) -> tuple[NDArray[np.int32], NDArray[np.int32], BipartiteGraph]:
    """Return some users, a test item of each, and their training links; users of these are
    numbered in the order of the first.
    """
    rng, (users, items) = np.random.default_rng(0), dataset.links("test")
    who, first, counts = np.unique(users, return_index=True, return_counts=True)
    chosen = np.sort(rng.choice(len(who), min(RECALLED, len(who)), replace=False))
    item = items[first[chosen] + rng.integers(counts[chosen])]
    known, row = dataset.graph.items_of(who[chosen])
    return who[chosen], item, BipartiteGraph.from_links(row, known, len(chosen), dataset.n_items)


def array_bytes(*owners: Any) -> int:
    """Return the bytes of all arrays that some objects hold, each memory counted once."""
    found, seen, left = dict[int, int](), set[int](), list(owners)
    while left:
        thing = left.pop()
        if id(thing) in seen:
            continue
        seen.add(id(thing))
        if isinstance(thing, np.ndarray):
            while isinstance(thing.base, np.ndarray):
                thing = thing.base
            found[id(thing)] = thing.nbytes
        elif isinstance(thing, list | tuple):
            left += thing
        elif isinstance(thing, dict):
            left += thing.values()
        elif type(thing).__module__.startswith("ncfbench"):
            left += getattr(thing, "__dict__", {}).values()
    return sum(found.values())


def timed(
    call: Callable[[], Any], clock: Callable[[], float] = time.perf_counter
) -> tuple[Any, float]:
    """Return what a function returns, and its seconds."""
    begin = clock()
    result = call()
    return result, clock() - begin


def with_processor_seconds(function: Callable[..., Any], *arguments: Any) -> dict[str, Any]:
    """Return what a function finds, and the processor seconds of its process until its end."""
    found = function(*arguments)
    return {"processor_seconds": time.process_time(), **found}


# --- checks


def check(holds: object, what: str) -> None:
    """Raise a CheckFailedError where something does not hold."""
    if not holds:
        raise CheckFailedError(f"It does not hold that {what}.")


def check_links(dataset: store.Dataset) -> None:
    """Check that every link is in range and there once: they ascend by (user, item)."""
    last = -1
    for start in range(0, len(dataset.users), CHUNK_LINKS):
        user, item = (
            ids[start : start + CHUNK_LINKS].astype(np.int64)
            for ids in (dataset.users, dataset.items)
        )
        for ids, size in ((user, dataset.n_users), (item, dataset.n_items)):
            check(ids.min() >= 0 and ids.max() < size, "ids are in range")
        keys = user * dataset.n_items + item
        check((np.diff(keys, prepend=last) > 0).all(), "each link is there once")
        last = int(keys[-1])


def check_batch(batch: Batch, graph: BipartiteGraph) -> None:
    """Check that positives are links, and that no negative with weight is one."""
    user, item = batch.users[batch.pos_user], batch.items[batch.pos_item]
    check(len(user) == SETTINGS["batch_size"], "a batch has b positive links")
    check(graph.linked(user, item).all(), "positives are training links")
    users, items = negative_ids(batch)
    weight = batch.negatives.weight
    check(np.isfinite(weight).all() and (weight >= 0).all(), "weights are finite, 0 or above")
    row, column = np.nonzero(weight)
    linked = graph.linked(users[row, column], items[row, column])
    check(len(row) and not linked.any(), "no negative is a training link")
    distinct = batch.items[: int(batch.n_items)]
    check(len(np.unique(distinct)) == len(distinct), "items are distinct")


def check_ranks(
    users: NDArray[Any], items: NDArray[Any], item_ids: NDArray[Any], ranks: NDArray[Any]
) -> None:
    """Check some ranks in float64: between the items that are surely before and that may be."""
    for user, item, rank in zip(users.astype(np.float64), item_ids, ranks, strict=False):
        scores = items.astype(np.float64) @ user
        room = 1e-5 * float(np.abs(scores).max())
        least, most = (scores > scores[item] + room).sum(), (scores >= scores[item] - room).sum()
        check(least <= rank <= most, f"rank {rank} is between {least} and {most}")
