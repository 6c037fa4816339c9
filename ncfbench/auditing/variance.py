"""Parts of a gradient's variance: over users, over items, over positive links.

A batch's gradient is that of its positive links and that of its negative term, an estimate of a
mean over users ~ P_d and items ~ P_n. Two other gradients stand between it and the exact one, made
of the same batch:

1. its items meet all users: each item keeps the weight that its negative links have, before linked
   pairs are left out, and users have theirs in the data;
2. its negative term is the exact one, and only the positive links are the batch's.

*Over users* is the variance that goes with the first exchange, *over items* that which goes with
the second, *over positive links* the rest. They add up to the whole. Users and positive links of a
batch that shares its users are the same people, so a part can be slightly below zero.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from ncfbench.auditing.anchors import Anchor
from ncfbench.auditing.bias import estimate
from ncfbench.auditing.blocks import Block, blocks_of
from ncfbench.auditing.verdict import AUDIT_SEED, blocks_and_size
from ncfbench.config import RunConfig
from ncfbench.data.graph import BipartiteGraph
from ncfbench.rng import Streams
from ncfbench.sampling import make_sampler
from ncfbench.sampling.batch import Batch, EveryUser, Listed, MetUsers, negative_weights


class VarianceParts(NamedTuple):
    """Parts of the variance of a batch's gradient, E |g - E g|^2 / |exact|^2."""

    users: float
    items: float
    positive_links: float


PARTS = VarianceParts._fields


def measure_parts(
    graph: BipartiteGraph,
    config: RunConfig,
    anchors: Sequence[Anchor],
    batches: int,
) -> list[VarianceParts]:
    """Measure the parts at some anchors, on batches drawn with replacement.

    Args:
        config: of a pointwise loss, that of the anchors.
        batches: whose variance follows from the spread of their blocks' means.
    """
    blocks, size = blocks_and_size("replacement", batches)
    # The weights of items before linked pairs are left out are those of the same draws unmasked.
    streams = Streams(AUDIT_SEED + config.seed)
    samplers = (
        make_sampler(graph, replace(config, mask=mask), streams, replacement=True)
        for mask in (config.mask, False)
    )
    masked, unmasked = (blocks_of(sampler, blocks, size) for sampler in samplers)
    means = []
    for block, whole in zip(masked, unmasked, strict=True):
        met = [meeting_all_users(graph, batch, mask=config.mask) for batch in whole.batches]
        alone = [without_negatives(batch) for batch in met]
        versions = block, *(Block(graph, config, batches) for batches in (met, alone))
        means.append([[anchor.mean(version) for version in versions] for anchor in anchors])
    parts = []
    for index, anchor in enumerate(anchors):
        total, of_items, of_links = (
            estimate(np.stack(version), anchor.gradient, blocks * size).variance
            for version in zip(*(block[index] for block in means), strict=True)
        )
        parts.append(VarianceParts(total - of_items, of_items - of_links, of_links))
    return parts


def meeting_all_users(graph: BipartiteGraph, batch: Batch, *, mask: bool) -> Batch:
    """Return a batch whose items meet all users, with the items' weights of another one.

    Args:
        batch: with the weights of linked pairs, if there are any.
        mask: leave linked pairs out now.
    """
    weight = negative_weights(batch)
    slots = np.arange(len(batch.items))
    if isinstance(batch.negatives, Listed):
        slots = batch.negatives.item
    slots = np.broadcast_to(slots, weight.shape)
    weights = np.bincount(slots.reshape(-1), weight.reshape(-1), len(batch.items))
    user, item = graph.users_of(batch.items[: int(batch.n_items) if mask else 0])
    return batch._replace(
        users=np.arange(graph.n_users, dtype=np.int32),
        pos_user=batch.users[batch.pos_user],
        negatives=EveryUser(
            (graph.user_degrees / graph.n_links).astype(np.float32),
            weights.astype(np.float32),
            user.astype(np.int32),
            item.astype(np.int32),
        ),
    )


def without_negatives(batch: Batch) -> Batch:
    """Return a batch that meets all users with items of no weight."""
    negatives = batch.negatives
    assert isinstance(negatives, MetUsers)
    none = np.zeros_like(negatives.item_weight)
    return batch._replace(negatives=negatives._replace(item_weight=none))
