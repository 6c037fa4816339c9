"""What a data set and its batches hold: counts, distributions, distinct nodes, the batch X-ray.

Pure NumPy.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ncfbench.catalog import SAMPLERS, baseline_sampler
from ncfbench.config import RunConfig, complete, identity_of
from ncfbench.data import Dataset
from ncfbench.data.content import cautions
from ncfbench.data.graph import BipartiteGraph
from ncfbench.errors import NcfbenchError, UsageError
from ncfbench.rng import Streams
from ncfbench.sampling import make_sampler, plan_capacity
from ncfbench.sampling.batch import (
    Batch,
    Listed,
    MetUsers,
    negative_ids,
    negative_weights,
    remembered,
)
from ncfbench.sampling.noise import Noise

BATCHES = 20
"""Batches described for each sampler."""
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


# --- a data set


def configurations(settings: Mapping[str, Any]) -> dict[str, RunConfig | UsageError]:
    """Return complete settings for each built-in sampler, or its reason to refuse them.

    Raises:
        UsageError: all of them refuse.
    """
    configs: dict[str, RunConfig | UsageError] = {}
    for name in SAMPLERS:
        try:
            configs[name] = complete({**settings, "sampler": name})
        except UsageError as error:
            configs[name] = error
    refused = [config for config in configs.values() if isinstance(config, UsageError)]
    if len(refused) == len(configs):
        raise refused[0]
    return configs


def describe(
    dataset: Dataset, configs: Mapping[str, RunConfig | UsageError], batches: int = BATCHES
) -> dict[str, Any]:
    """Return everything that ``ncfbench describe`` prints: dicts, lists, numbers and names.

    Degrees are training links, of the users and of the items that have one; words are of all items.
    A column of dense features is constant if standardising has set it to 0.

    Args:
        configs: of :func:`configurations`.
        batches: how many are measured for each sampler.
    """
    manifest = dataset.manifest
    users, items = np.zeros(dataset.n_users, np.int64), np.zeros(dataset.n_items, np.int64)
    if manifest["statistics"]["training_links"]:
        users, items = dataset.graph.user_degrees, dataset.graph.item_degrees
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
            for name, file in manifest.get("files", {}).items()
            if isinstance(file, dict)
        },
        "fingerprint": dataset.fingerprint,
        "statistics": dict(manifest["statistics"]),
        "cautions": cautions(manifest),
        "removed": dict(manifest.get("removed", {})),
        "missing": {
            "items_without_text": int((dataset.lengths == 0).sum()),
            "training_items_without_links": int((items[dataset.items_of("train")] == 0).sum()),
            "users_without_training_links": int((users == 0).sum()),
            "users_without_test_items": int((~with_test).sum()),
        },
        "features": {
            kind: {"columns": table.shape[1], "constant": int((~table.any(axis=0)).sum())}
            for kind, table in (("users", dataset.user_features), ("items", dataset.item_features))
            if table is not None
        },
        "links_of_a_user": distribution(users[users > 0]),
        "links_of_an_item": distribution(items[items > 0]),
        "words_of_an_item": distribution(dataset.lengths),
        "most_linked_users": _most_linked(users, dataset.user_ids),
        "most_linked_items": _most_linked(items, dataset.item_ids),
        "batch_settings": {name: getattr(used, name) for name in SHOWN_SETTINGS},
        "measured_batches": batches,
        "batches": _batch_rows(dataset, configs, batches),
    }


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
    upto = np.concatenate([np.zeros(1, np.int64), np.cumsum(ranked)])
    total, largest = int(upto[-1]), int(ranked[-1])

    def share_of_top(parts: int) -> float | None:
        return float(total - upto[n - -(-n // parts)]) / total if total else None

    # The sum of the i smallest counts, summed over i, is the area below the Lorenz curve.
    gini = float((n + 1 - 2 * (upto[1:].sum(dtype=np.float64) / total)) / n) if total else None
    lows = [0, *(2**power for power in range(largest.bit_length()))]
    highs = [*(low - 1 for low in lows[1:]), largest]
    begins = np.searchsorted(ranked, lows).tolist()
    bins = [
        {"low": low, "high": high, "nodes": end - begin, "total": int(upto[end] - upto[begin])}
        for low, high, begin, end in zip(lows, highs, begins, [*begins[1:], n], strict=True)
        if end > 0
    ]
    return {
        "nodes": n,
        "total": total,
        "smallest": int(ranked[0]),
        "median": float(np.median(ranked)),
        "mean": total / n,
        "largest": largest,
        "top_1_percent": share_of_top(100),
        "top_10_percent": share_of_top(10),
        "gini": gini,
        "bins": bins,
    }


def _most_linked(degrees: NDArray[np.int64], ids: pa.StringArray | None) -> list[dict[str, Any]]:
    """Return the most linked nodes, the smaller number first among equals."""
    order = np.argsort(-degrees, kind="stable")[:MOST]
    return [
        {
            "number": int(node),
            "id": None if ids is None else ids[int(node)].as_py(),
            "links": int(degrees[node]),
        }
        for node in order
        if degrees[node]
    ]


# --- batches


def _batch_rows(
    dataset: Dataset, configs: Mapping[str, RunConfig | UsageError], batches: int
) -> list[dict[str, Any]]:
    """Return a row for each sampler: mean distinct nodes of its batches, or why there are none.

    ``encoded_items`` are the item slots in use, which are the distinct items where these are
    embedded once; ``fewer_items`` is IID's over the sampler's own: above 1 is less work for the
    item encoder.
    """
    columns = ("distinct_items", "encoded_items", "fewer_items", "distinct_users", "reason")
    rows: dict[str, dict[str, Any]] = {
        name: {"sampler": name, **dict.fromkeys(columns)} for name in configs
    }
    for name, config in configs.items():
        try:
            if isinstance(config, UsageError):
                raise config
            rows[name] |= _nodes(dataset, config, batches)
        except NcfbenchError as error:
            rows[name]["reason"] = str(error)
    baseline = rows.get(baseline_sampler(RunConfig.loss), {}).get("encoded_items")
    for row in rows.values():
        if baseline and row["encoded_items"]:
            row["fewer_items"] = baseline / row["encoded_items"]
    return list(rows.values())


def distinct_nodes(batch: Batch) -> tuple[int, int]:
    """Return the numbers of distinct users and items that a batch's links name.

    Masked links count: their nodes are embedded all the same.
    """
    users = batch.users[batch.pos_user]
    if isinstance(batch.negatives, MetUsers):
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


def xray(dataset: Dataset, config: RunConfig, batches: int = 200) -> dict[str, Any]:
    """Return one row of :data:`ncfbench.storage.schemas.XRAY`: means over the first batches of the
    shuffled stream that a run trains on.

    Each batch is assembled twice from the same draw, with linked pairs left out of the negatives
    and with them. The difference is what the mask removes.

    A negative is *nominal* by the paper's count; *unmasked* where its weight is not zero, an item
    that meets a user once however many links brought it; *effective* by Kish's (sum w)^2 / sum w^2.
    ``popularity_ratio``: the mean training degree of a negative item, by weight, over its
    expectation under P_n and the mask; 1 where the weights are right.
    """
    graph = dataset.graph
    sampler = make_sampler(graph, config, Streams(config.seed))
    unmasked = make_sampler(graph, dataclasses.replace(config, mask=False), Streams(config.seed))
    slots = plan_capacity(graph, config)
    rows = []
    weight_of_item = np.zeros(graph.n_items)
    for draw, same in zip(sampler.draw(0, batches), unmasked.draw(0, batches), strict=True):
        batch, whole = sampler.assemble(draw, slots), unmasked.assemble(same, slots)
        _, items = negative_ids(batch)
        weight_of_item += np.bincount(
            items.reshape(-1), negative_weights(batch).reshape(-1), graph.n_items
        )
        rows.append(_counts(batch, whole, dataset.lengths, dataset.tokens_IxL.shape[1]))
    nominal = sampler.claims().nominal
    means = {name: float(np.mean([row[name] for row in rows])) for name in rows[0]}
    b = config.batch_size
    popularity = None
    if weight_of_item.any():
        expected = _popularity(graph, expected_weights(graph, config))
        popularity = _popularity(graph, weight_of_item) / expected
    effective = identity_of(config)
    return {
        **{
            name: effective[name]
            for name in ("dataset", "noise", "sampler", "strata", "mask", "batch_size")
        },
        "batches": batches,
        "nominal_users": nominal and nominal.users,
        "nominal_items": nominal and nominal.items,
        "nominal_negatives": nominal and nominal.negatives,
        "nominal_negatives_of_a_positive": nominal and nominal.negatives / b,
        "popularity_ratio": popularity,
        "data_fingerprint": dataset.fingerprint,
        **means,
    }


def expected_weights(graph: BipartiteGraph, config: RunConfig) -> NDArray[np.float64]:
    """Return float64[I]: the expected sum of a batch's negative weights on each item.

    It is P_n (uniform for a listwise loss) times the chance that a user ~ P_d has no link to it.
    """
    measure = Noise(graph, config.noise_exponent).probability
    if config.family == "listwise":
        measure = (graph.item_degrees > 0).astype(np.float64)
    if not config.mask:
        return measure
    # The chance of a link is the sum of the shares of the item's users.
    shares = graph.user_degrees / graph.n_links
    linked = np.bincount(graph.link_item, shares[graph.link_user], graph.n_items)
    return measure * (1 - linked)


def effective_negatives(batch: Batch) -> float:
    """Return Kish's effective number of negatives, (sum w)^2 / sum w^2, of a positive link on
    average; with all users, of a user who is met. The batch is on the host.
    """
    negatives = batch.negatives
    if not isinstance(negatives, MetUsers):
        weight = negatives.weight.astype(np.float64)
        return float(_effective(weight.sum(axis=1), np.sum(weight**2, axis=1)).mean())
    # A user's own weight cancels; nothing of size M x V is made.
    weight, met = negatives.item_weight.astype(np.float64), len(negatives.user_weight)
    sums = [
        power.sum() - np.bincount(negatives.linked_user, power[negatives.linked_item], met + 1)[:-1]
        for power in (weight, weight**2)
    ]
    return float(_effective(*sums).mean())


def _effective(sums: NDArray[np.float64], squares: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return Kish's effective number of each row, from sums of weights and of their squares."""
    numbers: NDArray[np.float64] = np.zeros(len(sums))
    np.divide(sums**2, squares, out=numbers, where=squares > 0)
    return numbers


def _popularity(graph: BipartiteGraph, weight: NDArray[np.float64]) -> float:
    return float(weight @ graph.item_degrees / weight.sum())


def _counts(
    batch: Batch, whole: Batch, lengths: NDArray[np.integer], length: int
) -> dict[str, float]:
    weight, before = negative_weights(batch).astype(np.float64), negative_weights(whole)
    front = remembered(batch)  # remembered items are not embedded
    n_items, slots = int(batch.n_items) - front, len(batch.items) - front
    users, _ = negative_ids(batch)
    items = batch.items[front : front + n_items]
    named = np.concatenate([batch.users[batch.pos_user], users[weight > 0]])
    unmasked = int(np.count_nonzero(weight))
    return {
        "distinct_users": len(np.unique(named)),
        "distinct_items": len(np.unique(items)),
        "positives": len(batch.pos_user),
        "unmasked_negatives": unmasked,
        "unmasked_negatives_of_a_positive": unmasked / len(batch.pos_user),
        "effective_negatives": float(weight.sum() ** 2 / np.sum(weight**2)) if unmasked else 0.0,
        "effective_negatives_of_a_positive": effective_negatives(batch),
        "masked_share": 1 - unmasked / max(int(np.count_nonzero(before)), 1),
        "padding_share": 1 - n_items / slots,
        "word_padding_share": 1 - float(lengths[items].sum()) / max(slots * length, 1),
    }
