"""Facts of a prepared data set: counts and distributions."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ncfbench.data import Dataset
from ncfbench.data.content import cautions
from ncfbench.data.options import HOLD_OUTS, flags_of

MOST = 5
"""Users and items with the most links that are named."""


def describe(dataset: Dataset) -> dict[str, Any]:
    """Return the facts of a data set: dicts, lists, numbers and names.

    Degrees are training links, of the users and of the items that have one; words are of all items.
    A column of dense features is constant if standardising has set it to 0.
    """
    manifest = dataset.manifest
    users, items = np.zeros(dataset.n_users, np.int64), np.zeros(dataset.n_items, np.int64)
    if manifest["statistics"]["training_links"]:
        users, items = dataset.graph.user_degrees, dataset.graph.item_degrees
    files, features = manifest.get("files", {}), dataset.item_features
    return {
        "name": dataset.name,
        "source": str(manifest.get("source", dataset.name)),
        "label": manifest.get("label"),
        "options": dict(manifest["options"]),
        "files": {name: dict(file) for name, file in files.items() if isinstance(file, dict)},
        "fingerprint": dataset.fingerprint,
        "statistics": dict(manifest["statistics"]),
        "held_out": _held_out(manifest),
        "cautions": cautions(manifest),
        "removed": dict(manifest.get("removed", {})),
        "missing": {
            "items_without_text": int((dataset.lengths == 0).sum()),
            "training_items_without_links": int((items[dataset.items_of("train")] == 0).sum()),
            "users_without_training_links": int((users == 0).sum()),
            "users_without_test_items": dataset.n_users - len(np.unique(dataset.links("test")[0])),
        },
        "item_features": None
        if features is None
        else {"columns": features.shape[1], "constant": int((~features.any(axis=0)).sum())},
        "derived_features": {
            name: {"columns": fact["columns"], "seconds": fact["seconds"]}
            for name, fact in manifest.get("derived_features", {}).items()
        },
        "links_of_a_user": distribution(users[users > 0]),
        "links_of_an_item": distribution(items[items > 0]),
        "words_of_an_item": distribution(dataset.lengths),
        "most_linked_users": _most_linked(users, dataset.user_ids),
        "most_linked_items": _most_linked(items, dataset.item_ids),
    }


def _held_out(manifest: Mapping[str, Any]) -> str:
    """Return what is held out, and for how many users, in words."""
    options, counts = flags_of(manifest["options"]), manifest["statistics"]
    kind = options.get("hold_out", "items")
    what = HOLD_OUTS.get(kind or "", f"as column {options.get('split_column')} says")
    if "test_links" not in counts:
        users = counts["users_with_test_items"]
        return f"{what}: {counts['test_items']:,} items, with links of {users:,} users"
    to_new, n_test = counts["test_links_to_new_items"], counts["test_links"]
    share = f", {100 * to_new / n_test:.1f} % of them to new items" if n_test else ""
    return f"{what}: {n_test:,} links of {counts['users_with_test_links']:,} users{share}"


def distribution(counts: NDArray[np.integer]) -> dict[str, Any] | None:
    """Summarise whole numbers, 0 or above, one per node; None without a node.

    ``top_1_percent`` is the share of the total that the hundredth of the nodes with most has,
    rounded up to whole nodes. ``gini`` is half the mean difference of two nodes' counts over the
    mean count. Both are None where the total is 0. ``bins`` are 0, 1, 2 to 3, 4 to 7, ... from the
    first to the last with a node, each with its nodes and their total; the last ends with the
    largest count.
    """
    n = len(counts)
    if n == 0:
        return None
    ranked = np.sort(counts).astype(np.int64)
    running, largest = np.cumsum(ranked), int(ranked[-1])
    total = int(running[-1])
    lows = np.array([0, *(2**power for power in range(largest.bit_length()))])
    bin_of = np.searchsorted(lows, ranked, side="right") - 1
    return {
        "nodes": n,
        "total": total,
        "smallest": int(ranked[0]),
        "median": float(np.median(ranked)),
        "mean": total / n,
        "largest": largest,
        "top_1_percent": float(ranked[-math.ceil(n / 100) :].sum()) / total if total else None,
        "top_10_percent": float(ranked[-math.ceil(n / 10) :].sum()) / total if total else None,
        # The sum of the i smallest counts, summed over i, is the area below the Lorenz curve.
        "gini": float((n + 1 - 2 * (running.sum(dtype=np.float64) / total)) / n) if total else None,
        "bins": [
            {
                "low": low,
                "high": min(max(2 * low - 1, 0), largest),
                "nodes": int((bin_of == index).sum()),
                "total": int(ranked[bin_of == index].sum()),
            }
            for index, low in enumerate(lows.tolist())
            if index >= bin_of[0]
        ],
    }


def _most_linked(degrees: NDArray[np.int64], ids: pa.StringArray | None) -> list[dict[str, Any]]:
    """Return the most linked nodes, the smaller number first among equals."""
    nodes = np.argsort(-degrees, kind="stable")[:MOST].tolist()
    return [
        {
            "number": node,
            "id": None if ids is None else ids[node].as_py(),
            "links": int(degrees[node]),
        }
        for node in nodes
        if degrees[node]
    ]
