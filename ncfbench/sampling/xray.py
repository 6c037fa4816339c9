"""The X-ray of a sampler's batches: what they hold, and how much of it counts."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ncfbench.config import RunConfig, identity_of
from ncfbench.data import Dataset
from ncfbench.data.graph import BipartiteGraph
from ncfbench.rng import Streams
from ncfbench.sampling import make_sampler, plan_capacity
from ncfbench.sampling.batch import Batch, MetUsers, negative_ids, negative_weights, remembered
from ncfbench.sampling.noise import Noise

Float64 = NDArray[np.float64]
IDENTITY = ("dataset", "noise", "sampler", "strata", "mask", "batch_size")
"""Settings that a row names."""


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
    graph, b = dataset.graph, config.batch_size
    sampler = make_sampler(graph, config, Streams(config.seed))
    unmasked = make_sampler(graph, dataclasses.replace(config, mask=False), Streams(config.seed))
    slots = plan_capacity(graph, config)
    rows, weight_of_item = [], np.zeros(graph.n_items)
    for draw, same in zip(sampler.draw(0, batches), unmasked.draw(0, batches), strict=True):
        batch, whole = sampler.assemble(draw, slots), unmasked.assemble(same, slots)
        weights, (_, items) = negative_weights(batch), negative_ids(batch)
        weight_of_item += np.bincount(items.reshape(-1), weights.reshape(-1), graph.n_items)
        rows.append(_counts(batch, whole, dataset))
    popularity = None
    if weight_of_item.any():
        expected = expected_weights(graph, config)
        found, right = (
            float(weight @ graph.item_degrees / weight.sum())
            for weight in (weight_of_item, expected)
        )
        popularity = found / right
    nominal, settings = sampler.claims().nominal, identity_of(config)
    return {
        **{
            name: settings[name]
            for name in ["dataset", "noise", "sampler", "strata", "mask", "batch_size"]
        },
        "batches": batches,
        "nominal_users": nominal and nominal.users,
        "nominal_items": nominal and nominal.items,
        "nominal_negatives": nominal and nominal.negatives,
        "nominal_negatives_of_a_positive": nominal and nominal.negatives / b,
        "popularity_ratio": popularity,
        "data_fingerprint": dataset.fingerprint,
        **{name: float(np.mean([row[name] for row in rows])) for name in rows[0]},
    }


def expected_weights(graph: BipartiteGraph, config: RunConfig) -> Float64:
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
    return measure * (1 - np.bincount(graph.link_item, shares[graph.link_user], graph.n_items))


def effective_negatives(batch: Batch) -> float:
    """Return Kish's effective number of negatives, (sum w)^2 / sum w^2, of a positive link on
    average; with all users, of a user who is met. The batch is on the host.
    """
    negatives = batch.negatives
    if isinstance(negatives, MetUsers):
        # A user's own weight cancels; nothing of size M x V is made.
        weight, met = negatives.item_weight.astype(np.float64), len(negatives.user_weight)
        user, item = negatives.linked_user, negatives.linked_item
        sums, squares = (
            power.sum() - np.bincount(user, power[item], met + 1)[:-1]
            for power in (weight, weight**2)
        )
    else:
        weight = negatives.weight.astype(np.float64)
        sums, squares = weight.sum(axis=1), np.sum(weight**2, axis=1)
    zeros = np.zeros(len(sums))
    return float(np.divide(sums**2, squares, out=zeros, where=squares > 0).mean())


def _counts(batch: Batch, whole: Batch, dataset: Dataset) -> dict[str, float]:
    """Count what a batch holds.

    Args:
        whole: the same batch without the mask.
    """
    weight = negative_weights(batch).astype(np.float64)
    front = remembered(batch)  # remembered items are not embedded
    items, slots = batch.items[front : int(batch.n_items)], len(batch.items) - front
    users = [batch.users[batch.pos_user], negative_ids(batch)[0][weight > 0]]
    unmasked, b = int(np.count_nonzero(weight)), len(batch.pos_user)
    before, words = int(np.count_nonzero(negative_weights(whole))), dataset.lengths[items].sum()
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
