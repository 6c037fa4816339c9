"""Batches without duplicates: the colouring, the weights, and the bias of rejection."""

from __future__ import annotations

import itertools
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ncfbench.config import RunConfig, complete
from ncfbench.data.graph import BipartiteGraph
from ncfbench.data.store import Dataset
from ncfbench.errors import UsageError
from ncfbench.rng import Streams
from ncfbench.sampling import Draw, make_sampler
from ncfbench.sampling.distinct import DistinctSharingSampler


def configure(b: int, **more: Any) -> RunConfig:
    return complete({"sampler": "ns-distinct", "batch_size": b} | more)


def graph_of(pairs: list[tuple[int, int]]) -> BipartiteGraph:
    users, items = np.array(pairs).T
    return BipartiteGraph.from_links(users, items, users.max() + 1, items.max() + 1)


graphs = st.sets(st.tuples(st.integers(0, 7), st.integers(0, 7)), min_size=4, max_size=40).map(
    lambda pairs: graph_of(sorted(pairs))
)


@given(graphs, st.integers(2, 8), st.integers(0, 99), st.booleans())
@settings(max_examples=150, deadline=None)
def test_batches_exist_or_are_refused(
    graph: BipartiteGraph, b: int, seed: int, replacement: bool
) -> None:
    """They exist exactly if no node has more links than an epoch has batches (Koenig)."""
    if b > graph.n_links:
        return
    count = graph.n_links // b
    most = int(max(graph.user_degrees.max(), graph.item_degrees.max()))
    if most > count:
        with pytest.raises(UsageError, match="without duplicates"):
            DistinctSharingSampler(graph, configure(b), Streams(0))
        return
    made = DistinctSharingSampler(graph, configure(b), Streams(seed), replacement=replacement)
    assert made.positives.epoch_length == count * b
    draws = made.draw(0, 2 * count)
    for draw in draws:
        for nodes in (graph.link_user, graph.link_item):
            assert len(set(nodes[draw.links].tolist())) == b
    if not replacement:
        for epoch in (draws[:count], draws[count:]):
            links = np.concatenate([draw.links for draw in epoch])
            assert len(set(links.tolist())) == count * b


def test_a_complete_graph_is_cut_into_matchings() -> None:
    """Every batch needs all users and all items: no link may be left for the end."""
    graph = graph_of(list(itertools.product(range(6), range(6))))
    made = DistinctSharingSampler(graph, configure(6), Streams(3))
    for draw in made.draw(0, 12):
        assert sorted(graph.link_user[draw.links].tolist()) == list(range(6))
        assert sorted(graph.link_item[draw.links].tolist()) == list(range(6))


SMALL = [(0, 0), (0, 1), (1, 1), (1, 2), (2, 2), (2, 3), (3, 0), (3, 3), (4, 1)]


def test_rejection_draws_what_it_says() -> None:
    """Ordered batches of three links: every one with the product of its conditional chances."""
    graph = graph_of(SMALL)
    links = list(zip(graph.link_user.tolist(), graph.link_item.tolist(), strict=True))

    def fits(link: int, before: tuple[int, ...]) -> bool:
        return all(
            links[link][0] != links[other][0] and links[link][1] != links[other][1]
            for other in before
        )

    # No order of three links leaves a batch that cannot be filled: nothing is begun again.
    chance: dict[tuple[int, ...], float] = {(): 1.0}
    for _ in range(3):
        longer = {}
        for before, p in chance.items():
            able = [link for link in range(len(links)) if fits(link, before)]
            assert able
            longer |= {(*before, link): p / len(able) for link in able}
        chance = longer
    made = make_sampler(graph, configure(3), Streams(0), replacement=True)
    draws = made.draw(0, 9000)
    found = Counter(tuple(draw.links.tolist()) for draw in draws)
    assert found.keys() <= chance.keys()
    expected = {key: 9000 * p for key, p in chance.items()}
    chi = sum((found[key] - value) ** 2 / value for key, value in expected.items())
    freedom = len(expected) - 1
    assert chi < freedom + 4.5 * (2 * freedom) ** 0.5
    # Links of nodes with more links come less often: the bias that the sampler declares.
    assert not made.claims().draws_links_uniformly
    assert "rejected" in made.claims().bias


@pytest.mark.parametrize("family", ["sg", "softmax"])
def test_weights_by_definition(family: str) -> None:
    graph, n = graph_of(SMALL), len(SMALL)
    made = make_sampler(
        graph, configure(3, loss=family, noise="0.5"), Streams(1), weight_dtype=np.float64
    )
    links = list(zip(graph.link_user.tolist(), graph.link_item.tolist(), strict=True))
    sharing = [sum(u == a or v == b for a, b in links) for u, v in links]
    degree = Counter(v for _, v in links)
    total = sum(d**0.5 for d in degree.values())
    free = sum(n - k for k in sharing) / n**2
    draw = made.draw(0, 1)[0]
    none = np.zeros((3, 0), np.int32)
    batch = made.assemble(Draw(draw.links, none, none), 5)
    for i, link in enumerate(draw.links.tolist()):
        for other in draw.links.tolist():
            item = links[other][1]
            slot = batch.items[:3].tolist().index(item)
            rho = 1 if family == "softmax" else degree[item] ** 0.5 / total
            expected = rho / (degree[item] / n) / 6 / free
            expected *= (1 - sharing[link] / n) * (1 - sharing[other] / n)
            expected *= (links[link][0], item) not in links
            assert batch.negatives.weight[i, slot] == pytest.approx(expected, rel=1e-12)
    assert not batch.negatives.weight[:, 3:].any()


def test_an_epoch_is_nearly_unbiased(tiny: Dataset) -> None:
    """The weights of the pairs in training epochs sum to the exact negative weight; those of
    ``ns`` on the same batches do not.
    """
    graph = tiny.graph
    n = graph.n_links
    made = make_sampler(graph, configure(16), Streams(0), weight_dtype=np.float64)
    plain = make_sampler(
        graph, complete({"sampler": "ns", "batch_size": 16}), Streams(0), weight_dtype=np.float64
    )
    users, items = graph.user_degrees / n, graph.item_degrees / n
    exact = 1 - np.sum(users[graph.link_user] * items[graph.link_item])
    draws = made.draw(0, 40 * (n // 16))
    own, without = (
        np.mean([sampler.assemble(draw).negatives.weight.sum() for draw in draws])
        for sampler in (made, plain)
    )
    assert abs(own / exact - 1) < 0.002
    assert abs(without / exact - 1) > 5 * abs(own / exact - 1)
