"""Draws of positive links and of negative items: permutations, strata, with replacement, and the
noise distribution.
"""

from collections import Counter

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from support.training import configure

from ncfbench.data.graph import BipartiteGraph
from ncfbench.rng import Streams
from ncfbench.sampling import make_sampler
from ncfbench.sampling.noise import AliasTable, Noise
from ncfbench.sampling.positives import PositiveStream


@pytest.mark.parametrize("strata", ["item", "user"])
@pytest.mark.parametrize("stratum_size", [3, 4])
def test_an_epochs_order_is_that_of_its_plain_form(tiny, strata, stratum_size):
    """NumPy's own permutations and stable sort, epoch by epoch, where strata reach over the border
    of epochs.
    """
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
    """Strata with replacement: P(item) = deg / N, and its users uniform and independent
    (chi-squared, 99.99 %).
    """
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


# --- the noise distribution


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
