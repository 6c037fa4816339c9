"""Samplers: draws, layouts with identifiable ids, the shape of batches, and where a run begins."""

from collections import Counter
from itertools import islice

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from support.training import NAMES, SIZE, configure

from ncfbench.catalog import find_sampler
from ncfbench.data.graph import BipartiteGraph
from ncfbench.rng import Streams
from ncfbench.sampling import Draw, base, batches, make_sampler, plan_capacity
from ncfbench.sampling.batch import Listed, negative_ids
from ncfbench.sampling.noise import AliasTable, Noise
from ncfbench.sampling.positives import PositiveStream

# --- draws of positive links, and the noise distribution


@pytest.mark.parametrize("strata", ["item", "user"])
@pytest.mark.parametrize("stratum_size", [3, 4])
def test_an_epochs_order_is_that_of_its_plain_form(tiny, strata, stratum_size):
    """NumPy's own permutations and stable sort; strata reach over the border of epochs."""
    graph, n, s = tiny.graph, tiny.graph.n_links, stratum_size
    instance = PositiveStream(graph, Streams(4), s, strata=strata)
    node = graph.link_item if strata == "item" else graph.link_user
    for epoch in range(4):
        rng = Streams(4).generator("positives", epoch)
        links = rng.permutation(n)
        rank = rng.permutation(graph.n_items if strata == "item" else graph.n_users)
        links = links[np.argsort(rank[node[links]], kind="stable")]
        head = -epoch * n % s
        body = (n - head) // s * s
        segments = rng.permutation(links[head : head + body].reshape(-1, s), axis=0)
        expected = np.concatenate([links[:head], segments.reshape(-1), links[head + body :]])
        assert np.array_equal(instance.take(epoch * n, n), expected)


def test_seeds_differ_and_streams_are_independent():
    draws = {
        (seed, role, epoch): tuple(Streams(seed).generator(role, epoch).integers(2**62, size=4))
        for seed in (0, 1)
        for role in ("positives", "negative-items", "negative-users")
        for epoch in (0, 1)
    }
    assert len(set(draws.values())) == len(draws)


def test_replacement_draws_the_textbook_distribution(five_nodes):
    """P(item) = deg / N, and its users uniform and independent (chi-squared, 99.99 %)."""
    config = configure("strat-ns", batch_size=4, stratum_size=2)
    instance = make_sampler(five_nodes, config, Streams(0), replacement=True)
    links = np.concatenate([draw.links for draw in instance.draw(0, 5000)]).reshape(-1, 2)
    assert (five_nodes.link_item[links[:, 0]] == five_nodes.link_item[links[:, 1]]).all()
    counts = Counter(map(tuple, links.tolist()))
    item_of = five_nodes.link_item.tolist()
    degree = Counter(item_of)
    chi = 0.0
    cells = [(a, b) for a in range(4) for b in range(4) if item_of[a] == item_of[b]]
    for a, b in cells:
        expected = len(links) * (degree[item_of[a]] / 4) / degree[item_of[a]] ** 2
        chi += (counts[a, b] - expected) ** 2 / expected
    assert set(counts) == set(cells)
    assert chi < 25.7  # 5 degrees of freedom


def drawn_from(table):
    """The distribution of a table's draws: a uniform cell, which stays or passes on."""
    passed = np.bincount(table.alias, 1 - table.keep, len(table.keep))
    return (table.keep + passed) / len(table.keep)


@given(
    st.lists(st.floats(0, 1e6), min_size=1, max_size=60).filter(lambda weights: sum(weights) > 0)
)
@example([0.0, 0.0, 0.5, 1.5])  # a cell of exactly the mean before one above it
@example([1.0, 1.0, 0.0, 2.0])
@settings(max_examples=300)
def test_alias_table_draws_exactly_its_distribution(weights):
    probability = np.array(weights) / np.sum(weights)
    table = AliasTable.build(probability)
    assert (table.keep >= 0).all()
    assert (table.keep <= 1).all()
    np.testing.assert_allclose(drawn_from(table), probability, atol=1e-12)


def test_alias_table_of_a_long_tail():
    probability = 1 / np.arange(1, 100_001)
    probability /= probability.sum()
    np.testing.assert_allclose(drawn_from(AliasTable.build(probability)), probability, atol=1e-13)


@pytest.mark.parametrize("alpha", [1.0, 0.0, 0.75, -0.5])
def test_draws_follow_the_declared_distribution(alpha):
    """Chi-squared on raw draws; the bound is the 99.99 % point for 3 degrees of freedom."""
    users, items = np.array([0, 1, 2, 3, 0, 1, 0, 1]), np.array([0, 0, 0, 0, 1, 1, 2, 3])
    noise = Noise(BipartiteGraph.from_links(users, items, 4, 6), alpha)
    degree = [4, 2, 1, 1]
    expected = np.array([d**alpha for d in degree]) / sum(d**alpha for d in degree)
    np.testing.assert_allclose(noise.probability, [*expected, 0, 0], atol=1e-15)
    np.testing.assert_array_equal(noise.data, np.array([*degree, 0, 0]) / 8)
    counts = np.bincount(noise.draw(np.random.default_rng(1), 40_000), minlength=6)
    assert counts[4:].sum() == 0, "an item without training links was drawn"
    assert (((counts[:4] - 40_000 * expected) ** 2) / (40_000 * expected)).sum() < 21.1


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
    draw = Draw(np.array([1, 2], np.int32), np.zeros((2, 0), np.int32), np.array([[31], [40]]))
    listed, shared = (
        make_sampler(graph, configure(name, batch_size=2, negatives=1), Streams(0))
        for name in ("neg", "ns")
    )
    batch = listed.assemble(draw, 4)
    assert batch.users.tolist() == [7, 9]
    assert batch.items.tolist() == [30, 31, 40, 0]
    assert (batch.pos_user.tolist(), batch.pos_item.tolist()) == ([0, 1], [0, 1])
    assert batch.n_items == 3
    assert [part.tolist() for part in batch.negatives] == [[[0], [1]], [[1], [2]], [[0.5], [0.5]]]
    batch = shared.assemble(draw._replace(items=draw.users), 0)
    assert batch.items.tolist() == [30, 31]
    assert batch.negatives.weight.tolist() == [[0, 0.5], [0.5, 0]]


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
    """As many users and items as the paper counts."""
    config = configure(sampler)
    b, k = SIZE, 3
    capacity = plan_capacity(tiny.graph, config)
    result = list(islice(batches(tiny.graph, config, Streams(1)), 20))
    assert {batch.items.shape for batch in result} == {(capacity,)}
    for batch in result:
        assert len(batch.users) == (b * (1 + k) if sampler in ("iid", "strat") else b)
        is_listed = isinstance(batch.negatives, Listed)
        assert is_listed == find_sampler(sampler).reads("negatives")
        assert not is_listed or batch.negatives.weight.shape == (b, k)
        assert not batch.items[batch.n_items :].any()
        real = batch.items[: batch.n_items]
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
    """In any order, and wherever a run begins, which draws what it skips in pieces."""
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
