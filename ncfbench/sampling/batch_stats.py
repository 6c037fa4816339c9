"""The batch X-ray: what a sampler's batches hold, and how much of it has an effect. Pure NumPy.

Each batch is assembled twice from the same draw, with linked pairs left out of the negatives and
with them. The difference is what the mask removes.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ncfbench.config import RunConfig
from ncfbench.data import Dataset
from ncfbench.data.graph import BipartiteGraph
from ncfbench.rng import Streams
from ncfbench.sampling import make_sampler, plan_capacity
from ncfbench.sampling.batch import (
    AllUsers,
    Batch,
    negative_ids,
    negative_weights,
    remembered,
)
from ncfbench.sampling.noise import Noise


def xray(dataset: Dataset, config: RunConfig, batches: int = 200) -> dict[str, Any]:
    """Return one row of :data:`ncfbench.storage.schemas.XRAY`: means over the first batches of the
    shuffled stream that a run trains on.

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
    nominal = sampler.nominal()
    means = {name: float(np.mean([row[name] for row in rows])) for name in rows[0]}
    b = config.batch_size
    popularity = _popularity(graph, weight_of_item) if weight_of_item.any() else None
    effective = config.effective()
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
        "popularity_ratio": popularity and popularity / expected_popularity(graph, config),
        "data_fingerprint": dataset.fingerprint,
        **means,
    }


def expected_popularity(graph: BipartiteGraph, config: RunConfig) -> float:
    """Return the mean training degree of a negative item: user ~ P_d, item ~ P_n (uniform for a
    listwise loss), no linked pair.
    """
    return _popularity(graph, expected_weights(graph, config))


def expected_weights(graph: BipartiteGraph, config: RunConfig) -> NDArray[np.float64]:
    """Return float64[I]: the expected sum of a batch's negative weights on each item, which is the
    measure times the chance that the pair is no link.
    """
    noise = Noise(graph, config.noise_exponent)
    measure = (
        (graph.item_degrees > 0).astype(np.float64)
        if config.family == "listwise"
        else noise.probability
    )
    if not config.mask:
        return measure
    # The chance that a user ~ P_d is linked with an item is the sum of the shares of the item's
    # users.
    shares = graph.user_degrees / graph.n_links
    linked = np.bincount(graph.link_item, shares[graph.link_user], graph.n_items)
    return measure * (1 - linked)


def effective_negatives(batch: Batch) -> float:
    """Return Kish's effective number of negatives, (sum w)^2 / sum w^2, of a positive link on
    average; with all users, of a user who is met. The batch is on the host.
    """
    negatives = batch.negatives
    if not isinstance(negatives, AllUsers):
        weight = negatives.weight.astype(np.float64)
        return float(_effective(weight.sum(axis=1), np.sum(weight**2, axis=1)).mean())
    # A user's own weight cancels; nothing of size M x V is made.
    weight, met = negatives.item_weight.astype(np.float64), len(negatives.user_weight)
    sums = [
        power.sum() - np.bincount(negatives.linked_user, power[negatives.linked_item], met + 1)[:-1]
        for power in (weight, weight**2)
    ]
    return float(_effective(*sums).mean())


def _effective(of_row: NDArray[np.float64], squares: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return Kish's effective number of each row's negatives; 0 for a row without any.

    Args:
        of_row: sum of the row's weights.
        squares: sum of their squares.
    """
    found: NDArray[np.float64] = np.zeros(len(of_row))
    np.divide(of_row**2, squares, out=found, where=squares > 0)
    return found


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
