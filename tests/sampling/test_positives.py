"""The stream of positive links: permutations, strata, and draws with replacement."""

from collections import Counter

import numpy as np
import pytest
from support.training import configure

from ncfbench.rng import Streams
from ncfbench.sampling import make_sampler
from ncfbench.sampling.positives import PositiveStream


@pytest.mark.parametrize("strata", ["item", "user"])
@pytest.mark.parametrize("stratum_size", [3, 4])
def test_an_epochs_order_is_that_of_its_plain_form(tiny, strata, stratum_size):
    """NumPy's own permutations and stable sort, epoch by epoch, where strata reach over the border
    of epochs.
    """
    graph, n, s = tiny.graph, tiny.graph.n_links, stratum_size
    made = PositiveStream(graph, Streams(4), s, strata=strata)
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
        assert np.array_equal(made.take(epoch * n, n), expected)


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
    made = make_sampler(five_nodes, config, Streams(0), replacement=True)
    links = np.concatenate([draw.links for draw in made.draw(0, 5000)]).reshape(-1, 2)
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
