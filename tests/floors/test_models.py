"""Floors beside their formulas, written out on data small enough to invert."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from ncfbench.data.text import Texts
from ncfbench.floors import models
from ncfbench.floors.ranking import link_ranks
from ncfbench.floors.task import Features, Task, tfidf

RNG = np.random.default_rng(5)
LINKS = (RNG.random((7, 9)) < 0.4).astype(np.float32)
LINKS[:, 7:] = 0.0  # new items
CONTENT = RNG.normal(size=(9, 4)).astype(np.float32)
NEW = np.array([7, 8], np.int32)
KNOWN = np.arange(7, dtype=np.int32)
ALL_USERS = np.arange(7)


def task(candidates: np.ndarray, content: Features | None = CONTENT) -> Task:
    return Task(sparse.csr_array(LINKS), candidates, content)


def test_a_weight_of_tfidf_is_that_of_its_formula() -> None:
    texts = Texts(np.array([1, 1, 2, 2, 3], np.int32), np.array([3, 2, 0], np.int32))
    first = [(1 + math.log(2)) * (math.log(4 / 2) + 1), math.log(4 / 3) + 1, 0.0]
    length = math.sqrt(sum(weight**2 for weight in first))

    rows = tfidf(texts, 3).toarray()

    assert rows[0] == pytest.approx([weight / length for weight in first], rel=1e-6)
    assert np.linalg.norm(rows[1]) == pytest.approx(1.0)
    assert not rows[2].any()


def test_popularity_counts_training_links() -> None:
    scores = models.popularity(task(KNOWN))(np.array([2, 0]))

    assert scores.tolist() == [LINKS[:, :7].sum(axis=0).tolist()] * 2


def test_a_profile_adds_the_products_with_the_users_items() -> None:
    scores = models.profile(task(NEW))(ALL_USERS)

    by_hand = [
        [sum(float(CONTENT[c] @ CONTENT[i]) for i in np.flatnonzero(LINKS[u])) for c in NEW]
        for u in ALL_USERS
    ]
    assert scores == pytest.approx(np.array(by_hand), rel=1e-5, abs=1e-5)


@pytest.mark.parametrize("width", [4, 30])  # fewer features than items, and more
def test_ridge_scores_are_those_of_the_regression_of_each_user(width: int) -> None:
    content = RNG.normal(size=(9, width)).astype(np.float32)
    trained = np.flatnonzero(LINKS.any(axis=0))
    x, y = content[trained].astype(np.float64), LINKS[:, trained].astype(np.float64)
    weights = np.linalg.solve(x.T @ x + 2.5 * np.eye(width), x.T @ y.T)

    for given_content in (content, sparse.csr_array(content)):
        scores = models.ridge(task(NEW, given_content), 2.5)(ALL_USERS)
        assert scores == pytest.approx((content[NEW] @ weights).T, rel=1e-3, abs=1e-4)


def test_ease_regresses_each_item_on_all_others() -> None:
    links = LINKS[:, :7].astype(np.float64)

    scores = models.ease(Task(sparse.csr_array(LINKS[:, :7]), KNOWN), 1.5)(ALL_USERS)

    for item in range(7):
        others = np.delete(np.arange(7), item)
        x = links[:, others]
        weights = np.linalg.solve(x.T @ x + 1.5 * np.eye(6), x.T @ links[:, item])
        assert scores[:, item] == pytest.approx(x @ weights, rel=1e-3, abs=1e-4)


def test_ials_ends_where_its_objective_has_no_slope() -> None:
    penalty, unobserved = 0.05, 0.3
    links = LINKS[:, :7].astype(np.float64)
    users, items = models.factors(
        sparse.csr_array(LINKS[:, :7]), penalty, dimension=3, unobserved=unobserved, sweeps=400
    )

    by_user = penalty * (links.sum(axis=1) + unobserved * 7)
    by_item = penalty * (links.sum(axis=0) + unobserved * 7)
    error = links * (users @ items.T - 1) + unobserved * (users @ items.T)
    has_links = links.any(axis=1), links.any(axis=0)
    slope_of_users = error @ items + by_user[:, None] * users
    slope_of_items = error.T @ users + by_item[:, None] * items
    assert np.abs(slope_of_users[has_links[0]]).max() < 1e-3
    assert np.abs(slope_of_items[has_links[1]]).max() < 1e-3


@given(st.lists(st.lists(st.integers(0, 3), min_size=5, max_size=5), min_size=3, max_size=3))
def test_ranks_count_higher_scores_and_equal_ones_before(values: list[list[int]]) -> None:
    scores = np.array(values, np.float32)
    users, index = np.array([0, 0, 1, 2, 2, 2]), np.array([4, 1, 0, 2, 3, 4])

    ranks = link_ranks(lambda rows: scores[rows], users, index, 5)

    order = [sorted(range(5), key=lambda item: (-row[item], item)) for row in values]
    assert ranks.tolist() == [order[u].index(i) for u, i in zip(users, index, strict=True)]
