import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ncfbench.data.graph import BipartiteGraph
from ncfbench.sampling.noise import AliasTable, Noise


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
    counts = np.bincount(noise.draw(np.random.default_rng(1), 40_000), minlength=6)
    assert counts[4:].sum() == 0, "an item without training links was drawn"
    assert (((counts[:4] - 40_000 * expected) ** 2) / (40_000 * expected)).sum() < 21.1


def test_data_distribution_is_the_share_of_links():
    users, items = np.array([0, 1, 2, 0]), np.array([0, 0, 0, 1])
    noise = Noise(BipartiteGraph.from_links(users, items, 3, 3), 1.0)
    np.testing.assert_array_equal(noise.data, [3 / 4, 1 / 4, 0])
    np.testing.assert_array_equal(noise.data, noise.probability)
