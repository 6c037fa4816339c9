from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ncfbench.data.graph import BipartiteGraph
from ncfbench.sampling.noise import Noise


class Numbers:
    """Gives chosen numbers as a generator's uniform ones."""

    def __init__(self, numbers: np.ndarray) -> None:
        self.numbers = numbers

    def random(self, size: int) -> np.ndarray:
        return self.numbers[:size]


@given(st.lists(st.integers(0, 9), min_size=1, max_size=40).filter(any), st.sampled_from([0, 2]))
@settings(max_examples=100, deadline=None)
def test_draws_divide_the_unit_interval_exactly(degrees: list[int], alpha: int) -> None:
    """By the middles of equal parts, of which each item gets as many as its probability says; the
    ends of the interval fall to the first and the last item with links.
    """
    items = np.repeat(np.arange(len(degrees)), degrees)
    graph = BipartiteGraph.from_links(np.arange(len(items)), items, len(items), len(degrees))
    parts = np.array([degree**alpha if degree else 0 for degree in degrees])
    middles = (np.arange(parts.sum()) + 0.5) / parts.sum()
    numbers: Any = Numbers(np.append(middles, [0, np.nextafter(1, 0)]))
    *drawn, first, last = Noise(graph, alpha).draw(numbers, parts.sum() + 2).tolist()
    assert np.bincount(drawn, minlength=len(degrees)).tolist() == parts.tolist()
    assert (first, last) == (items[0], items[-1])


@pytest.mark.parametrize("alpha", [1.0, 0.0, 0.75, -0.5])
def test_draws_follow_the_declared_distribution(alpha: float) -> None:
    """Chi-squared on raw draws; the bound is the 99.99 % point for 3 degrees of freedom."""
    users, items = np.array([0, 1, 2, 3, 0, 1, 0, 1]), np.array([0, 0, 0, 0, 1, 1, 2, 3])
    noise = Noise(BipartiteGraph.from_links(users, items, 4, 6), alpha)
    degree = [4, 2, 1, 1]
    expected = np.array([d**alpha for d in degree]) / sum(d**alpha for d in degree)
    np.testing.assert_allclose(noise.probability, [*expected, 0, 0], atol=1e-15)
    counts = np.bincount(noise.draw(np.random.default_rng(1), 40_000), minlength=6)
    assert counts[4:].sum() == 0, "an item without training links was drawn"
    assert (((counts[:4] - 40_000 * expected) ** 2) / (40_000 * expected)).sum() < 21.1


def test_data_distribution_is_the_share_of_links() -> None:
    users, items = np.array([0, 1, 2, 0]), np.array([0, 0, 0, 1])
    noise = Noise(BipartiteGraph.from_links(users, items, 3, 3), 1.0)
    np.testing.assert_array_equal(noise.data, [3 / 4, 1 / 4, 0])
    np.testing.assert_array_equal(noise.data, noise.probability)
