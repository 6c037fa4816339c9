"""The tables of the benchmark of scale, and what graphs and states take on paper."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from harness import Found
from scale_steps import RECALL_AT, SETTINGS

from ncfbench.catalog import find_sampler
from ncfbench.reporting.table import Col, Table, under
from ncfbench.timing.clock import format_duration

MOST_BYTES = 24
"""Target: bytes a link of the arrays of graph and sampler."""
FEWEST_LINKS = 10**6
"""From which on the target counts: a bit for each pair of a smaller graph takes more."""
MOST_RATIO = 4
"""Target: seconds of a distinct item over those of the smallest graph."""
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
DIMENSION, FLOAT_BYTES, STATE_COPIES = 50, 4, 3
"""A state has a table and both moments of Adam."""
FORECAST = [
    Col("links", "links", ","),
    *under(
        "GiB",
        Col("user table", "users", ",.1f", 2**-30),
        Col("item table", "items", ",.1f", 2**-30),
        Col("state", "state", ",.1f", 2**-30),
        Col("graph", "graph", ",.1f", 2**-30),
        Col("sum", "sum", ",.1f", 2**-30),
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


def tables(cells: Sequence[Found], where: str) -> Iterator[Table]:
    """Yield the tables of some cells.

    Args:
        where: the machine and when, for a note.
    """
    yield Table.of("Steps", STEPS, step_rows(cells), notes(cells), labels=2, grouped=1)
    title = (
        f"Samplers: b = 512, k = 10, s = 4; targets: {MOST_BYTES} bytes a link,"
        f" {MOST_RATIO} times the smallest graph"
    )
    below = [
        f"Peak: while an epoch's order was made; no target. {where}",
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
        below = [f"State: {STATE_COPIES} x (users + items) x {DIMENSION} x {FLOAT_BYTES} bytes."]
        yield Table.of("Memory on paper", FORECAST, [*forecasts(cells)], below, labels=1)


def sizes_of(links: int) -> dict[str, int]:
    """Return a set's size: 37 links a user and 12 an item, as CiteULike has, up to 10^6 items; from
    10^8 links on 10 links a user.
    """
    users = links // (10 if links >= 10**8 else 37)
    return {"links": links, "users": users, "items": min(links // 12, 10**6)}


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
