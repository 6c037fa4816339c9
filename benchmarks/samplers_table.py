"""The tables of the benchmark of samplers, and its targets."""

from __future__ import annotations

from typing import Any

import numpy as np

from ncfbench.catalog import SAMPLERS, find_sampler
from ncfbench.reporting.render.terminal import make_console
from ncfbench.reporting.render.terminal import show as print_table
from ncfbench.reporting.table import Header, Table, columns_of, text_column

MOST_BYTES = 24
"""Target: bytes a link of graph and sampler."""
MOST_RATIO = 4
"""Target: seconds of a distinct item over those of the smallest graph."""


def show(result: dict[str, Any]) -> None:
    """Print the tables."""
    graphs, rows = [], []
    for cell in (result["sizes"][key] for key in sorted(result["sizes"], key=int)):
        graphs.append(
            [
                *(f"{cell[name]:,}" for name in ("links", "users", "items")),
                f"{cell['making_seconds']:.1f}",
                f"{cell['making_peak_bytes'] / 2**30:.2f}",
                f"{cell['graph_array_bytes'] / cell['links']:.1f}",
            ]
        )
        for name, row in cell["samplers"].items():
            rows.append(
                [
                    f"{cell['links']:,}",
                    find_sampler(name).title if name in SAMPLERS else name,
                    f"{row['distinct_items']:.0f}",
                    f"{row['batch_seconds'] * 1e3:.3f}",
                    f"{np.median(row['order_seconds']):.3g}",
                    f"{row['links_per_second']:,.0f}",
                    f"{row['item_seconds'] * 1e6:.2f}",
                    f"{row['item_ratio']:.2f}",
                    "missed" if any("times" in text for text in row["missed"]) else "met",
                    *(
                        f"{row[kind]:.1f}"
                        for kind in ("array_bytes", "resident_bytes", "peak_bytes")
                    ),
                    "missed" if any("bytes" in text for text in row["missed"]) else "met",
                ]
            )
    where = result["environment"]
    notes = [
        "Peak: while an epoch's order was made; no target. Resident bytes count from 10^6 links"
        " on.",
        f"{where['cpu']}, {where['cores']} cores, numpy {where['packages']['numpy']},"
        f" {where['time']}",
    ]
    header: Header = [
        "links",
        "sampler",
        "distinct items",
        "batch ms",
        "order s",
        "links/s",
        "us an item",
        "ratio",
        "target",
        *columns_of("bytes a link", "arrays", "resident", "peak"),
        "target",
    ]
    title = (
        f"Samplers: b = 512, k = 10, s = 4; targets: {MOST_BYTES} bytes a link, {MOST_RATIO} times"
        " the smallest graph"
    )
    graph_header = ("links", "users", "items", "made in s", "peak GiB", "bytes a link")
    tables = [
        Table("Graphs", graph_header, graphs),
        Table(title, header, rows, notes, labels=2, grouped=1),
        *([peer_table(result["peers"])] if result["peers"] else []),
    ]
    for table in tables:
        print_table(make_console(), table)


def peer_table(peers: dict[str, Any]) -> Table:
    """Return peers with our Negative Sampling under the same noise, timed in turn with it."""
    rows = []
    for size in sorted(peers, key=int):
        for peer, found in peers[size].items():
            if "skipped" in found:
                rows.append([f"{int(size):,}", peer, *[""] * 7, found["skipped"]])
                continue
            ratios = np.array(found["seconds"]) / np.array(found["our_seconds"])
            rows.append(
                [
                    f"{int(size):,}",
                    f"{peer} {found['version']}",
                    found["draws"],
                    f"{found['setup_seconds']:.1f}",
                    f"{found['resident_bytes']:.0f}",
                    *(f"{np.median(found[kind]) * 1e6:.2f}" for kind in ("seconds", "our_seconds")),
                    f"{np.median(ratios):.1f}",
                    f"{ratios.min():.1f}..{ratios.max():.1f}",
                    found["differs"],
                ]
            )
    header: Header = [
        "links",
        "peer",
        text_column("draws"),
        "set up s",
        "B/link",
        "us a link",
        "ours us",
        "ratio",
        "min..max",
        text_column("what differs"),
    ]
    return Table("Ten items for each positive link", header, rows, labels=2, grouped=1)
