"""The objective that a loss estimates best: its mean push of every pair against exact ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import expit, softmax

from ncfbench.auditing.bias import Bias, estimate
from ncfbench.data.graph import BipartiteGraph
from ncfbench.linting.derivatives import Evaluator
from ncfbench.linting.facts import Facts
from ncfbench.linting.scenes import Float, Scene

MOST_USERS, MOST_ITEMS = 60, 80
BLOCKS = 24
"""Blocks of batches that an interval rests on."""
SIZES = {False: (32, 4), True: (12, 3)}
"""Rows of a batch and batches of a block, by whether pushes are slow."""
DECILES = 10


@dataclass(frozen=True)
class Fit:
    """An exact objective as an estimate's target."""

    title: str
    bias: Bias


@dataclass(frozen=True)
class Fits:
    """All objectives, the best first, and how popular items fare.

    Attributes:
        deciles: float[10]: the share of all push on negatives that each tenth of the items has, the
            most popular ones first, over its share in the softmax over all items.
    """

    rows: int
    fits: list[Fit]
    deciles: list[float]


def fit(evaluator: Evaluator, facts: Facts) -> Fits:
    """Compare the mean push of many batches with the exact pushes of known objectives.

    The overall size of an objective is fitted, of its positives and negatives apart where it is
    pointwise, so that a mean and a sum are one objective.
    """
    graph = small(evaluator.graph)
    rng = np.random.default_rng((0, 11))
    scale = facts.scale.value if facts.scale else 1.0
    users, items = np.flatnonzero(graph.user_degrees), np.flatnonzero(graph.item_degrees)
    n_rows, per_block = SIZES[evaluator.is_slow]
    size = min(1 / scale, 0.6 / np.sqrt(n_rows)) if evaluator.loss.has("users") else 1 / scale
    table = rng.normal(0, size, (graph.n_users, graph.n_items)).clip(-2.5 * size, 2.5 * size)
    shape = len(users), len(items)
    user_at, item_at = (
        np.searchsorted(some, np.arange(n))
        for some, n in ((users, graph.n_users), (items, graph.n_items))
    )
    scenes = evaluator.scenes()
    means = np.zeros((BLOCKS, *shape))
    for block in range(BLOCKS):
        for _ in range(per_block):
            scene = _batch(graph, scenes, rng, table, items, n_rows)
            push = evaluator.pushes(scene)
            rows, columns = user_at[scene.user], item_at[scene.column_item]
            np.add.at(means[block], (rows[:, None], columns[None, :]), push / per_block)
    scores = table[np.ix_(users, items)]
    exact = _exact(graph, scores, scale, users, items)
    flat = means.reshape(BLOCKS, -1)
    fits = [
        Fit(title, estimate(flat, _scaled(flat, parts), BLOCKS * per_block, len(exact)))
        for title, parts in exact.items()
    ]
    fits.sort(key=lambda each: each.bias.estimate)
    (whole,) = exact["softmax over all items"]
    return Fits(n_rows, fits, _deciles(graph, items, means.mean(axis=0), whole))


def small(graph: BipartiteGraph) -> BipartiteGraph:
    """Return the links among the busiest users and their most frequent items, with their ids."""
    if graph.n_users <= MOST_USERS and graph.n_items <= MOST_ITEMS:
        return graph
    users = np.argsort(-graph.user_degrees, kind="stable")[:MOST_USERS]
    kept = np.isin(graph.link_user, users)
    counts = np.bincount(graph.link_item[kept], minlength=graph.n_items)
    items = np.argsort(-counts, kind="stable")[:MOST_ITEMS]
    kept &= np.isin(graph.link_item, items)
    ends = graph.link_user[kept], graph.link_item[kept]
    return BipartiteGraph.from_links(*ends, graph.n_users, graph.n_items)


def _batch(
    graph: BipartiteGraph, scenes: Any, rng: Any, table: Float, items: Any, n_rows: int
) -> Scene:
    """Draw links with replacement, and negatives among the items that some user has."""
    links = rng.integers(graph.n_links, size=n_rows)
    user, item = graph.link_user[links], graph.link_item[links]
    negative = np.zeros((n_rows, scenes.k), np.int32)
    is_open = np.ones(negative.shape, bool)
    for _ in range(100):
        source = graph.link_item if scenes.by_popularity else items
        negative[is_open] = rng.choice(source, int(is_open.sum()))
        is_open = graph.linked(np.repeat(user[:, None], scenes.k, 1), negative)
        if not is_open.any():
            break
    columns = np.concatenate([item, negative.reshape(-1)])
    names, slot = np.unique(columns, return_inverse=True)
    score = table[np.ix_(user, names)]
    return Scene(graph, user, item, negative, slot, score)


def _exact(
    graph: BipartiteGraph, scores: Float, scale: float, users: Any, items: Any
) -> dict[str, list[Float]]:
    """Return the exact pushes of each objective, in parts whose sizes are free."""
    linked = graph.linked(*np.meshgrid(users, items, indexing="ij"))
    popularity = graph.item_degrees[items] / graph.n_links
    uniform = np.full(len(items), 1 / len(items))
    row_links = [np.flatnonzero(row) for row in linked]
    found: dict[str, list[Float]] = {}
    for title, log_weight in (
        ("softmax over all items", 0 * popularity),
        ("softmax over items by popularity", np.log(popularity)),
    ):
        share = softmax(scale * scores + log_weight, axis=1)
        found[title] = [linked.sum(axis=1)[:, None] * share - 1.0 * linked]
    for title, weight, leaves_out in (
        ("BPR, uniform items without a link", uniform, True),
        ("BPR, items without a link by popularity", popularity, True),
        ("BPR, items by popularity", popularity, False),
    ):
        push = np.zeros(scores.shape)
        for row, own in enumerate(row_links):
            measure = weight * ~linked[row] if leaves_out else weight
            for item in own:
                each = measure * expit(scale * (scores[row] - scores[row, item])) / measure.sum()
                push[row] += each
                push[row, item] -= each.sum()
        found[title] = [push]
    for title, weight, leaves_out in (
        ("cross-entropy, uniform items without a link", uniform, True),
        ("cross-entropy, items by popularity", popularity, False),
    ):
        degree = linked.sum(axis=1)[:, None]
        negative = degree * weight * expit(scale * scores) * (~linked if leaves_out else 1)
        found[title] = [-1.0 * linked * expit(-scale * scores), negative]
    return found


def _scaled(means: Float, parts: list[Float]) -> Float:
    """Return the sum of some parts, each with the size that comes closest to the means."""
    basis = np.stack([part.reshape(-1) for part in parts], axis=1)
    sizes = np.linalg.lstsq(basis, means.mean(axis=0), rcond=None)[0]
    return np.asarray(basis @ np.maximum(sizes, 1e-12))


def _deciles(graph: BipartiteGraph, items: Any, mean: Float, whole: Float) -> list[float]:
    order = np.argsort(-graph.item_degrees[items], kind="stable")
    shares = []
    for push in (mean, whole):
        by_item = np.maximum(push, 0).sum(axis=0)
        tenths = np.array([part.sum() for part in np.array_split(by_item[order], DECILES)])
        shares.append(tenths / max(tenths.sum(), 1e-30))
    return [float(here / max(there, 1e-12)) for here, there in zip(*shares, strict=True)]
