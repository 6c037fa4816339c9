"""The tables of the benchmark of scale."""

from __future__ import annotations

from typing import Any

from ncfbench.catalog import SAMPLERS, find_sampler
from ncfbench.reporting.render.terminal import make_console
from ncfbench.reporting.render.terminal import show as print_table
from ncfbench.reporting.table import Header, Table, columns_of


def show(result: dict[str, Any]) -> None:
    """Print the tables."""
    settings, steps = result["settings"], result["steps"]
    links = settings["links"]
    title = (
        f"{links:,} links, {settings['users']:,} users, {settings['items']:,} items; limit"
        f" {settings['limit_gib']:g} GiB"
    )
    over = []
    for name, step in steps.items():
        gib, link = step["peak_bytes"] / 2**30, step["peak_bytes_a_link"]
        cells = (
            f"{step['seconds']:.1f}",
            f"{step['processor_seconds']:.1f}",
            f"{gib:.2f}",
            f"{link:.1f}",
        )
        over.append([name, *cells, "yes" if gib <= settings["limit_gib"] else "no"])
    b, training = settings["batch_size"], steps["batches"]["training_links"]
    rows = []
    for name, row in steps["batches"]["samplers"].items():
        rows.append(
            [
                find_sampler(name).title if name in SAMPLERS else name,
                *(f"{row[key]:.2f}" for key in ("plan_seconds", "order_seconds")),
                f"{row['first_batch_seconds']:.3f}",
                f"{row['batch_seconds'] * 1e6:.0f}",
                f"{row['link_seconds'] * 1e6:.2f}",
                f"{row['distinct_items']:.0f}",
                f"{row['item_seconds'] * 1e6:.2f}",
                f"{row['array_bytes_a_link']:.1f}",
                *(f"{row[key] / training:.1f}" for key in ("resident_bytes", "peak_bytes")),
            ]
        )
    found, loaded, where = steps["evaluation"], steps["batches"], result["environment"]
    disk, rate = steps["prepare"]["disk_bytes"] / links, found["scores_per_second"] / 1e6
    lines = (
        f"Peak and resident memory hold the mapped files. On the disk: {disk:.1f} bytes a link.",
        (
            f"Load {loaded['load_seconds']:.2f} s, verify {loaded['verify_seconds']:.2f} s, build"
            f" the graph {loaded['graph_seconds']:.1f} s ({loaded['graph_array_bytes_a_link']:.1f}"
            " bytes a training link)."
        ),
        (
            f"Embed users {found['embed_users_seconds']:.1f} s, items"
            f" {found['embed_items_seconds']:.1f} s; rank {found['links']:,} links among all items"
            f" {found['rank_seconds']:.1f} s: {rate:.0f} million scores a second."
        ),
        (
            f"Peak of evaluation above the model: {found['own_peak_bytes'] / 2**30:.2f} GiB; of"
            f" making the model: {found['model_peak_bytes'] / 2**30:.2f} GiB."
        ),
        (
            f"{where['cpu']}, {where['cores']} cores, numpy {where['packages']['numpy']}, jax"
            f" {where['packages']['jax']}, load {where['load_average'][0]:.1f}, {where['time']}"
        ),
    )
    steps_header = ("step", "s", "processor s", "peak GiB", "peak B/link", "within")
    header: Header = [
        "sampler",
        *("plan s", "order s", "first batch s", "batch us", "link us", "distinct items", "item us"),
        *columns_of("bytes a link", "arrays", "resident", "peak"),
    ]
    samplers = f"Samplers on {training:,} training links: b = {b}, k = 10, s = 4"
    for table in (Table(title, steps_header, over), Table(samplers, header, rows, lines)):
        print_table(make_console(), table)
