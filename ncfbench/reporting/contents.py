"""Contents of a data set and of its batches: counts, distributions, the batch X-ray."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ncfbench.catalog import SAMPLERS, baseline_sampler
from ncfbench.config import RunConfig, complete, identity_of
from ncfbench.data import Dataset
from ncfbench.data.content import cautions
from ncfbench.data.options import HOLD_OUTS, flags_of
from ncfbench.errors import NcfbenchError, UsageError
from ncfbench.rng import Streams
from ncfbench.sampling import Sampler, make_sampler, plan_capacity
from ncfbench.sampling.batch import (
    Batch,
    Listed,
    negative_ids,
)
from ncfbench.sampling.noise import explicit_measure

Float64 = NDArray[np.float64]
BATCHES = 20
"""Batches described for each sampler."""
MOST = 5
"""Users and items with the most links that are named."""
IDENTITY = ("dataset", "noise", "sampler", "strata", "mask", "batch_size")
"""Settings that a row names."""
SHOWN_SETTINGS = (
    *("batch_size", "negatives", "stratum_size", "strata", "uniform_items", "noise", "seed"),
)


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
    used = next(config for config in configs.values() if isinstance(config, RunConfig))
    files, features = manifest.get("files", {}), (dataset.user_features, dataset.item_features)
    return {
        "name": dataset.name,
        "source": str(manifest.get("source", dataset.name)),
        "label": manifest.get("label"),
        "options": dict(manifest["options"]),
        "files": {name: dict(file) for name, file in files.items() if isinstance(file, dict)},
        "fingerprint": dataset.fingerprint,
        "statistics": dict(manifest["statistics"]),
        "held_out": _held_out(manifest),
        "explicit_negatives": _explicit_negatives(manifest, int((users > 0).sum())),
        "cautions": cautions(manifest),
        "removed": dict(manifest.get("removed", {})),
        "missing": {
            "items_without_text": int((dataset.lengths == 0).sum()),
            "training_items_without_links": int((items[dataset.items_of("train")] == 0).sum()),
            "users_without_training_links": int((users == 0).sum()),
            "users_without_test_items": dataset.n_users - len(np.unique(dataset.links("test")[0])),
        },
        "features": {
            kind: {"columns": table.shape[1], "constant": int((~table.any(axis=0)).sum())}
            for kind, table in zip(("users", "items"), features, strict=True)
            if table is not None
        },
        "derived_features": {
            name: {"columns": fact["columns"], "seconds": fact["seconds"]}
            for name, fact in manifest.get("derived_features", {}).items()
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


def _explicit_negatives(manifest: Mapping[str, Any], trained_users: int) -> str | None:
    """Return how many explicit negatives there are, and for which share of the users with training
    links, in words; None where none were asked for.
    """
    counts = manifest["statistics"]
    if "explicit_negatives" not in counts:
        return None
    pairs, users = counts["explicit_negatives"], counts["users_with_explicit_negatives"]
    share = f" ({100 * users / trained_users:.1f} %)" if trained_users else ""
    return (
        f"{pairs:,} pairs shown and not chosen, {counts['explicit_negatives_of_training_items']:,}"
        f" of them of training items, for {users:,} of {trained_users:,} users with training"
        f" links{share}"
    )


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


def _batch_rows(
    dataset: Dataset, configs: Mapping[str, RunConfig | UsageError], batches: int
) -> list[dict[str, Any]]:
    """Return a row for each sampler: mean distinct nodes of its batches, or why there are none.

    ``encoded_items`` are the item slots in use, which are the distinct items where these are
    embedded once; ``fewer_items`` is IID's over the sampler's own: above 1 is less work for the
    item encoder.
    """
    columns = ("distinct_users", "distinct_items", "encoded_items")
    rows = []
    for name, config in configs.items():
        row: dict[str, Any] = dict.fromkeys(("sampler", *columns, "fewer_items", "reason"))
        try:
            if isinstance(config, UsageError):
                raise config
            sampler = make_sampler(dataset.graph, config, Streams(config.seed))
            counts = [
                (*distinct_nodes(batch), int(batch.n_items))
                for batch in map(sampler.assemble, sampler.draw(0, batches))
            ]
            row |= zip(columns, np.mean(counts, axis=0).tolist(), strict=True)
        except NcfbenchError as error:
            row["reason"] = str(error)
        rows.append(row | {"sampler": name})
    baseline = baseline_sampler(RunConfig.loss)
    of_baseline = next((row for row in rows if row["sampler"] == baseline), {})
    for row in rows:
        if of_baseline.get("encoded_items") and row["encoded_items"]:
            row["fewer_items"] = of_baseline["encoded_items"] / row["encoded_items"]
    return rows


def distinct_nodes(batch: Batch) -> tuple[int, int]:
    """Return the numbers of distinct users and items that a batch's links name.

    Masked links count: their nodes are embedded all the same.
    """
    users, negatives = [batch.users[batch.pos_user]], batch.negatives
    if isinstance(negatives, Listed):
        users.append(batch.users[negatives.user].reshape(-1))
    items = batch.items[: int(batch.n_items)]
    return len(np.unique(np.concatenate(users))), len(np.unique(items))


def xray(dataset: Dataset, config: RunConfig, batches: int = 200) -> dict[str, Any]:
    """Return one row of :data:`ncfbench.storage.schemas.XRAY`: means over the first batches of the
    shuffled stream that a run trains on.

    Each batch is assembled twice from the same draw, with linked pairs left out of the negatives
    and with them. The difference is what the mask removes.

    A negative is *nominal* by the paper's count; *unmasked* where its weight is not zero, an item
    that meets a user once however many links brought it; *effective* by Kish's (sum w)^2 / sum w^2.
    ``popularity_ratio``: the mean training degree of a negative item, by weight, over its
    expectation under P_n (or a user's explicit negatives) and the mask; 1 where the weights are
    right.
    """
    graph, b = dataset.graph, config.batch_size
    sampler = make_sampler(graph, config, Streams(config.seed))
    unmasked = make_sampler(graph, dataclasses.replace(config, mask=False), Streams(config.seed))
    slots = plan_capacity(graph, config)
    rows, weight_of_item = [], np.zeros(graph.n_items)
    for draw, same in zip(sampler.draw(0, batches), unmasked.draw(0, batches), strict=True):
        batch, whole = sampler.assemble(draw, slots), unmasked.assemble(same, slots)
        weights, (_, items) = batch.negatives.weight, negative_ids(batch)
        weight_of_item += np.bincount(items.reshape(-1), weights.reshape(-1), graph.n_items)
        rows.append(_counts(batch, whole, dataset))
    popularity = None
    if weight_of_item.any():
        expected = expected_weights(sampler)
        found, right = (
            float(weight @ graph.item_degrees / weight.sum())
            for weight in (weight_of_item, expected)
        )
        popularity = found / right
    nominal, settings = sampler.claims().nominal, identity_of(config)
    return {
        **{name: settings[name] for name in IDENTITY},
        "batches": batches,
        "nominal_users": nominal and nominal.users,
        "nominal_items": nominal and nominal.items,
        "nominal_negatives": nominal and nominal.negatives,
        "nominal_negatives_of_a_positive": nominal and nominal.negatives / b,
        "popularity_ratio": popularity,
        "data_fingerprint": dataset.fingerprint,
        **{name: float(np.mean([row[name] for row in rows])) for name in rows[0]},
    }


def expected_weights(sampler: Sampler) -> Float64:
    """Return float64[I]: the expected sum of a batch's negative weights on each item, its measure
    times the chance that a user ~ P_d has no link to it; and what users with explicit negatives
    have instead.
    """
    graph, config = sampler.graph, sampler.config
    shares = graph.user_degrees / graph.n_links
    own = explicit_measure(graph, config)
    from_own = 0.0
    if own is not None:
        from_own = shares @ own
        shares = np.where(np.diff(own.indptr) > 0, 0.0, shares)
    chance = 1.0 if own is None else shares.sum()
    if config.mask:
        # The chance of a link is the sum of the shares of the item's users.
        chance = chance - np.bincount(graph.link_item, shares[graph.link_user], graph.n_items)
    return np.asarray(sampler.measure * chance + from_own)


def effective_negatives(batch: Batch) -> float:
    """Return Kish's effective number of negatives, (sum w)^2 / sum w^2, of a positive link on
    average. The batch is on the host.
    """
    weight = batch.negatives.weight.astype(np.float64)
    sums, squares = weight.sum(axis=1), np.sum(weight**2, axis=1)
    zeros = np.zeros(len(sums))
    return float(np.divide(sums**2, squares, out=zeros, where=squares > 0).mean())


def _counts(batch: Batch, whole: Batch, dataset: Dataset) -> dict[str, float]:
    """Count what a batch holds.

    Args:
        whole: the same batch without the mask.
    """
    weight = batch.negatives.weight.astype(np.float64)
    items, slots = batch.items[: int(batch.n_items)], len(batch.items)
    users = [batch.users[batch.pos_user], negative_ids(batch)[0][weight > 0]]
    unmasked, b = int(np.count_nonzero(weight)), len(batch.pos_user)
    before, words = int(np.count_nonzero(whole.negatives.weight)), dataset.lengths[items].sum()
    return {
        "distinct_users": len(np.unique(np.concatenate(users))),
        "distinct_items": len(np.unique(items)),
        "positives": b,
        "unmasked_negatives": unmasked,
        "unmasked_negatives_of_a_positive": unmasked / b,
        "effective_negatives": float(weight.sum() ** 2 / np.sum(weight**2)) if unmasked else 0.0,
        "effective_negatives_of_a_positive": effective_negatives(batch),
        "masked_share": 1 - unmasked / max(before, 1),
        "padding_share": 1 - len(items) / slots,
        "word_padding_share": 1 - float(words) / max(slots * dataset.tokens_IxL.shape[1], 1),
    }
