"""A graph with explicit negatives, and the objective's weights on it by plain loops."""

from __future__ import annotations

import itertools

import numpy as np

from ncfbench.data.graph import BipartiteGraph

N_USERS, N_ITEMS = 4, 6
LINKS = [(0, 0), (0, 1), (1, 1), (1, 2), (1, 3), (2, 0), (2, 4), (3, 5)]
EXPLICIT = {0: [2, 3, 5], 2: [1]}
"""Explicit negatives of users 0 and 2; users 1 and 3 have none."""
PLAIN = BipartiteGraph.from_links(*np.array(LINKS, np.int32).T, N_USERS, N_ITEMS)
PAIRS = np.array([(user, item) for user in EXPLICIT for item in EXPLICIT[user]], np.int32).T
GRAPH = PLAIN.with_negatives(*PAIRS)
SHARES = PLAIN.user_degrees / PLAIN.n_links


def noise(alpha: float) -> np.ndarray:
    weight = PLAIN.item_degrees.astype(float) ** alpha
    return np.asarray(weight / weight.sum())


def target(family: str, alpha: float, *, mask: bool = True) -> np.ndarray:
    """The weight of each item as a negative of each user, by the definition."""
    expected = np.zeros((N_USERS, N_ITEMS))
    for user, item in itertools.product(range(N_USERS), range(N_ITEMS)):
        own = EXPLICIT.get(user)
        if own:
            usual = 1.0 if family == "listwise" else 1 / len(own)
            expected[user, item] = usual if item in own else 0.0
        elif not (mask and (user, item) in LINKS):
            expected[user, item] = 1.0 if family == "listwise" else noise(alpha)[item]
    return expected
