"""Layouts with identifiable ids, the shape of batches, and where a run begins."""

from collections import Counter
from itertools import islice

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.training import NAMES, SIZE, configure

from ncfbench.auditing import layout
from ncfbench.catalog import find_sampler
from ncfbench.data.graph import BipartiteGraph
from ncfbench.rng import Streams
from ncfbench.sampling import Draw, base, batches, make_sampler, plan_capacity
from ncfbench.sampling.batch import Listed, negative_ids

# --- every score belongs to the user and the item it is labelled with


def pairs(users, items):
    return list(zip(users.tolist(), items.tolist(), strict=True))


@pytest.mark.parametrize("sampler", NAMES)
def test_ids_come_through_every_layout(tiny, sampler):
    graph = tiny.graph
    instance = make_sampler(graph, configure(sampler), Streams(3))
    for draw in instance.draw(5, 3):
        batch = instance.assemble(draw, 200)
        expected = pairs(graph.link_user[draw.links], graph.link_item[draw.links])
        assert pairs(batch.users[batch.pos_user], batch.items[batch.pos_item]) == expected
        brought = {item for _, item in expected} | set(draw.items.reshape(-1).tolist())
        rows = zip(*negative_ids(batch), batch.negatives.weight, strict=True)
        for i, (users, items, weights) in enumerate(rows):
            user, item = expected[i]
            result = pairs(users, items)
            if sampler == "iid":
                assert result == pairs(draw.users[i], draw.items[i])
            elif sampler == "neg":
                assert result == [(user, v) for v in draw.items[i].tolist()]
            elif sampler == "strat":
                assert result == [(u, item) for u in draw.users[i].tolist()]
            else:
                assert {u for u, _ in result} == {user}
                assert set(items[weights > 0].tolist()) <= brought
            met = users[weights > 0], items[weights > 0]
            assert not graph.linked(*met).any(), "a linked pair counts as a negative"


def test_the_layout_that_the_documentation_shows():
    """The literal example of ``batch.py``."""
    graph = BipartiteGraph.from_links(np.array([7, 9, 1]), np.array([30, 31, 40]), 10, 41)
    links, none = np.array([1, 2], np.int32), np.zeros((2, 0), np.int32)

    def assembled(sampler, items, capacity):
        instance = make_sampler(graph, configure(sampler, batch_size=2, negatives=1), Streams(0))
        return instance.assemble(Draw(links, none, items), capacity)

    batch = assembled("neg", np.array([[31], [40]], np.int32), 4)
    assert batch.users.tolist() == [7, 9]
    assert batch.items.tolist() == [30, 31, 40, 0]
    assert (batch.pos_user.tolist(), batch.pos_item.tolist()) == ([0, 1], [0, 1])
    assert batch.n_items == 3
    assert batch.negatives.user.tolist() == [[0], [1]]
    assert batch.negatives.item.tolist() == [[1], [2]]
    assert batch.negatives.weight.tolist() == [[0.5], [0.5]]
    shared = assembled("ns", none, 0)
    assert shared.items.tolist() == [30, 31]
    assert shared.negatives.weight.tolist() == [[0, 0.5], [0.5, 0]]


NOISES = {"unigram": 1.0, "uniform": 0.0, "0.5": 0.5}


@given(st.integers(0, 2**32 - 1), st.booleans(), st.booleans(), st.sampled_from([*NOISES]))
@settings(max_examples=40, deadline=None)
def test_shared_weights_by_definition(seed, stratified, mask, noise):
    """weight_ij = rho_j m_ij (c_j - c_ij) / (b^2 - sum n_t^2), counted link by link."""
    rng = np.random.default_rng(seed)
    pairs = np.unique(rng.integers(0, 6, (20, 2)), axis=0)
    graph = BipartiteGraph.from_links(pairs[:, 0], pairs[:, 1], 6, 6)
    b, s = 6, 3 if stratified else 1
    config = configure(
        "strat-ns" if stratified else "ns", batch_size=b, stratum_size=3, mask=mask, noise=noise
    )
    instance = make_sampler(graph, config, Streams(seed), weight_dtype=np.float64)
    links = rng.integers(0, graph.n_links, b).astype(np.int32)
    batch = instance.assemble(Draw(links, np.zeros((b, 0), np.int32), np.zeros((b, 0), np.int32)))
    pair_set = {(int(u), int(v)) for u, v in pairs}
    degree = Counter(int(v) for _, v in pairs)
    alpha = NOISES[noise]
    total = sum(d**alpha for d in degree.values())
    for i in range(b):
        user = int(graph.link_user[links[i]])
        for j, item in enumerate(batch.items.tolist()):
            rho = (degree[item] ** alpha / total) / (degree[item] / len(pairs))
            c = sum(int(graph.link_item[link]) == item for link in links)
            of_stratum = sum(
                int(graph.link_item[links[r]]) == item for r in range(b) if r // s == i // s
            )
            m = 0 if mask and (user, item) in pair_set else 1
            assert batch.negatives.weight[i, j] == pytest.approx(
                rho * m * (c - of_stratum) / (b * b - b * s), abs=1e-12
            )


# --- shapes, dtypes, capacity


@pytest.mark.parametrize("sampler", NAMES)
def test_shapes_and_dtypes_are_static(tiny, sampler):
    """As the layout declares them; and as many users and items as the paper counts."""
    config = configure(sampler)
    b, k = SIZE, 3
    capacity = plan_capacity(tiny.graph, config)
    result = list(islice(batches(tiny.graph, config, Streams(1)), 20))
    assert layout.shape_fault(result, b) == layout.id_fault(result, tiny.graph) == ""
    assert {batch.items.shape for batch in result} == {(capacity,)}
    for batch in result:
        assert len(batch.users) == (b * (1 + k) if sampler in ("iid", "strat") else b)
        is_listed = isinstance(batch.negatives, Listed)
        assert is_listed == find_sampler(sampler).reads("negatives")
        assert not is_listed or batch.negatives.weight.shape == (b, k)
        assert not batch.items[batch.n_items :].any()
        real = batch.items[: batch.n_items]
        assert tiny.graph.item_degrees[real].min() >= 1, "a held-out item is in a batch"
        assert len(np.unique(real)) == len(real)


@pytest.mark.parametrize("sampler", NAMES)
def test_slots_are_planned_from_draws_alone(tiny, sampler, monkeypatch):
    """A plan assembles no batch, and draws no more at a time than training does."""
    config = configure(sampler)
    instance = make_sampler(tiny.graph, config, Streams(1))
    draws = instance.draw(3, 4)
    counts = [int(instance.assemble(draw).n_items) for draw in draws]
    capacity, drawn = plan_capacity(tiny.graph, config), type(instance).draw
    assert capacity >= max(counts)
    monkeypatch.setattr(base, "CHUNK_DRAWS", 1000)

    def draw_few(self, start, count):
        assert count <= self.batches_per_draw <= 10
        return drawn(self, start, count)

    monkeypatch.setattr(type(instance), "draw", draw_few)
    monkeypatch.setattr(type(instance), "assemble", None)
    assert [instance.required_capacity(draw) for draw in draws] == counts
    assert plan_capacity(tiny.graph, config) == capacity


def test_capacity_grows_and_nothing_is_dropped(tiny):
    instance = make_sampler(tiny.graph, configure("iid"), Streams(0))
    sizes = [(len(batch.items), int(batch.n_items)) for batch in islice(instance.batches(0, 8), 20)]
    assert all(slots >= real for slots, real in sizes)
    assert [slots for slots, _ in sizes] == list(np.maximum.accumulate([real for _, real in sizes]))


# --- streams


@pytest.mark.parametrize("replacement", [False, True])
@pytest.mark.parametrize("sampler", NAMES)
def test_batches_do_not_depend_on_the_chunk(tiny, sampler, replacement, monkeypatch):
    """One after the other, every third, and back; nor on where a run begins, which draws what it
    skips in pieces.
    """
    config = configure(sampler)

    def fresh():
        return make_sampler(tiny.graph, config, Streams(5), replacement=replacement)

    one, many = fresh(), fresh().draw(0, 90)
    monkeypatch.setattr(base, "CHUNK_DRAWS", 77)
    pairs = [(number, one) for number in (*range(20), *range(20, 90, 3), *range(19, 90, 3))]
    pairs += [(number, fresh()) for number in (1, 33, 34, 77)]
    for number, instance in pairs:
        for left, right in zip(instance.draw(number, 1)[0], many[number], strict=True):
            np.testing.assert_array_equal(left, right)
