"""Description of a prepared data set: counts, missing parts, distributions of links and words, and
the contents of batches. Pure NumPy.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ncfbench.catalog import SAMPLERS, baseline_sampler
from ncfbench.config import RunConfig, complete
from ncfbench.data import Dataset
from ncfbench.data.distribution import Distribution
from ncfbench.errors import NcfbenchError, UsageError
from ncfbench.rng import Streams
from ncfbench.sampling import make_sampler
from ncfbench.sampling.batch import AllUsers, Batch, Listed, remembered

BATCHES = 20
"""Batches that are looked at for each sampler: distinct items vary by a few in a hundred, so their
mean by one or less.
"""
MOST = 5
"""Users and items with the most links that are named."""
SHOWN_SETTINGS = (
    "batch_size",
    "negatives",
    "stratum_size",
    "strata",
    "uniform_items",
    "noise",
    "seed",
)


def configurations(settings: Mapping[str, Any]) -> dict[str, RunConfig | UsageError]:
    """Return complete settings for each built-in sampler, or its reason to refuse them.

    Raises:
        UsageError: all of them refuse.
    """
    found: dict[str, RunConfig | UsageError] = {}
    for name in SAMPLERS:
        try:
            found[name] = complete({**settings, "sampler": name})
        except UsageError as error:
            found[name] = error
    if all(isinstance(each, UsageError) for each in found.values()):
        raise next(each for each in found.values() if isinstance(each, UsageError))
    return found


def describe(
    dataset: Dataset, configs: Mapping[str, RunConfig | UsageError], batches: int = BATCHES
) -> dict[str, Any]:
    """Return everything that ``ncfbench describe`` prints: dicts, lists, numbers and names.

    Degrees are training links, of the users and of the items that have one; words are of all items.
    A column of dense features is constant if standardising has set it to 0.
    Memory: some 40 bytes a link, while the graph of training links is built.

    Args:
        configs: of :func:`configurations`.
        batches: how many are measured for each sampler.
    """
    manifest = dataset.manifest
    users, items = _degrees(dataset)
    with_test = np.zeros(dataset.n_users, bool)
    with_test[dataset.links("test")[0]] = True
    used = next(config for config in configs.values() if isinstance(config, RunConfig))
    return {
        "name": dataset.name,
        "source": str(manifest.get("source", dataset.name)),
        "label": manifest.get("label"),
        "options": dict(manifest["options"]),
        "files": {
            name: dict(file)
            for name, file in _part(manifest, "files").items()
            if isinstance(file, dict)
        },
        "fingerprint": dataset.fingerprint,
        "statistics": dict(manifest["statistics"]),
        "removed": _part(manifest, "removed"),
        "missing": {
            "items_without_text": int((dataset.lengths == 0).sum()),
            "training_items_without_links": int((items[dataset.items_of("train")] == 0).sum()),
            "users_without_training_links": int((users == 0).sum()),
            "users_without_test_items": int((~with_test).sum()),
            "users_with_every_item": int(((users > 0) & (users == (items > 0).sum())).sum()),
        },
        "features": {
            kind: {"columns": each.shape[1], "constant": int((~each.any(axis=0)).sum())}
            for kind, each in (("users", dataset.user_features), ("items", dataset.item_features))
            if each is not None
        },
        "links_of_a_user": _summary(users[users > 0]),
        "links_of_an_item": _summary(items[items > 0]),
        "words_of_an_item": _summary(dataset.lengths),
        "most_linked_users": _most(users, dataset.user_ids),
        "most_linked_items": _most(items, dataset.item_ids),
        "batch_settings": {name: getattr(used, name) for name in SHOWN_SETTINGS},
        "measured_batches": batches,
        "batches": batch_rows(dataset, configs, batches),
    }


def batch_rows(
    dataset: Dataset, configs: Mapping[str, RunConfig | UsageError], batches: int = BATCHES
) -> list[dict[str, Any]]:
    """Return a row for each sampler: mean distinct nodes of its batches, or why there are none.

    ``encoded_items`` are the item slots in use, which are the distinct items where these are
    embedded once; ``fewer_items`` is IID's over the sampler's own: above 1 is less work for the
    item encoder.
    """
    rows = []
    for name, config in configs.items():
        row = dict.fromkeys(
            ("distinct_items", "encoded_items", "fewer_items", "distinct_users", "reason")
        )
        try:
            if isinstance(config, UsageError):
                raise config
            row |= _nodes(dataset, config, batches)
        except NcfbenchError as error:
            row["reason"] = str(error)
        rows.append({"sampler": name, **row})
    reference = baseline_sampler(RunConfig.loss)
    baseline = next((row["encoded_items"] for row in rows if row["sampler"] == reference), None)
    for row in rows:
        if baseline and row["encoded_items"]:
            row["fewer_items"] = baseline / row["encoded_items"]
    return rows


def distinct_nodes(batch: Batch) -> tuple[int, int]:
    """Return the numbers of distinct users and items that a batch's links name.

    Masked links count: their nodes are embedded all the same.
    """
    users = batch.users[batch.pos_user]
    if isinstance(batch.negatives, AllUsers):
        users = np.concatenate([users, batch.users[: len(batch.negatives.user_weight)]])
    if isinstance(batch.negatives, Listed):
        users = np.concatenate([users, batch.users[batch.negatives.user].reshape(-1)])
    items = batch.items[remembered(batch) : int(batch.n_items)]
    return len(np.unique(users)), len(np.unique(items))


def _nodes(dataset: Dataset, config: RunConfig, batches: int) -> dict[str, Any]:
    sampler = make_sampler(dataset.graph, config, Streams(config.seed))
    counts = []
    for draw in sampler.draw(0, batches):
        batch = sampler.assemble(draw)
        counts.append((*distinct_nodes(batch), int(batch.n_items) - remembered(batch)))
    users, items, encoded = np.mean(counts, axis=0).tolist()
    return {"distinct_items": items, "encoded_items": encoded, "distinct_users": users}


def _part(manifest: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return a part of a manifest that older manifests lack, empty there."""
    value = manifest.get(name)
    return dict(value) if isinstance(value, dict) else {}


def _degrees(dataset: Dataset) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    if not dataset.manifest["statistics"]["training_links"]:
        return np.zeros(dataset.n_users, np.int64), np.zeros(dataset.n_items, np.int64)
    return dataset.graph.user_degrees, dataset.graph.item_degrees


def _summary(counts: NDArray[np.integer]) -> dict[str, Any] | None:
    found = Distribution.of(counts)
    return None if found is None else dataclasses.asdict(found)


def _most(degrees: NDArray[np.int64], ids: pa.StringArray | None) -> list[dict[str, Any]]:
    """Return the most linked nodes, the smaller number first among equals.

    Each has its number, the source's id where there is one, and its links.
    """
    count = min(MOST, int((degrees > 0).sum()))
    if count == 0:
        return []
    least = np.partition(degrees, len(degrees) - count)[len(degrees) - count]
    # Many nodes may tie for the last rank; only as many as are wanted are sorted.
    above, level = np.flatnonzero(degrees > least), np.flatnonzero(degrees == least)
    chosen = np.concatenate([above[np.argsort(-degrees[above], kind="stable")], level])[:count]
    return [
        {
            "number": int(node),
            "id": None if ids is None else ids[int(node)].as_py(),
            "links": int(degrees[node]),
        }
        for node in chosen
    ]
