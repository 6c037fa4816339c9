"""Floors beside their formulas, written out on data small enough to invert."""

import numpy as np
import pytest
from scipy import linalg, sparse

from ncfbench.floors import models
from ncfbench.floors.task import Task

RNG = np.random.default_rng(5)
LINKS = (RNG.random((7, 9)) < 0.4).astype(np.float32)
LINKS[:, 7:] = 0.0  # new items
CONTENT = RNG.normal(size=(9, 4)).astype(np.float32)
NEW = np.array([7, 8], np.int32)
ALL = np.arange(9, dtype=np.int32)
ALL_USERS = np.arange(7)


def task(content=CONTENT, links=LINKS):
    return Task(sparse.csr_array(links), content)


def test_popularity_counts_training_links():
    scores = models.popularity(task())(ALL)(np.array([2, 0]))
    assert scores.tolist() == [LINKS.sum(axis=0).tolist()] * 2


@pytest.mark.parametrize("candidates", [NEW, ALL])
def test_a_profile_adds_the_products_with_the_users_items(candidates):
    by_hand = [
        [sum(float(CONTENT[c] @ CONTENT[i]) for i in np.flatnonzero(LINKS[u])) for c in candidates]
        for u in ALL_USERS
    ]
    for content in (CONTENT, sparse.csr_array(CONTENT)):
        scores = models.profile(task(content))(candidates)(ALL_USERS)
        assert scores == pytest.approx(np.array(by_hand), rel=1e-5, abs=1e-5)


@pytest.mark.parametrize("candidates", [NEW, ALL])  # fewer than users, and more
@pytest.mark.parametrize("width", [4, 30])  # fewer than items, and more
def test_ridge_scores_are_regressions_of_each_user(candidates, width):
    content = RNG.normal(size=(9, width)).astype(np.float32)
    trained = np.flatnonzero(LINKS.any(axis=0))
    x, y = content[trained].astype(np.float64), LINKS[:, trained].astype(np.float64)
    weights = np.linalg.solve(x.T @ x + 2.5 * np.eye(width), x.T @ y.T)
    for given_content in (content, sparse.csr_array(content)):
        scores = models.ridge(task(given_content), 2.5)(candidates)(ALL_USERS[::-1])
        expected = (content[candidates] @ weights).T[::-1]
        assert scores == pytest.approx(expected, rel=1e-5, abs=1e-6)


@pytest.mark.parametrize("candidates", [NEW, ALL])
def test_denoised_scores_regress_links_with_dropout(candidates):
    """B by its normal equations, with expectations over the links that are kept."""
    p, trained = models.KEPT, np.flatnonzero(LINKS.any(axis=0))
    x, y = CONTENT[trained].astype(np.float64), LINKS[:, trained].astype(np.float64)
    pairs, own = y.T @ y, np.diag(y.sum(axis=0))
    kept = p * p * (pairs - own) + p * own  # E[(kept)'(kept)]
    taken = p * (1 - p) * (pairs - own)  # E[(kept)'(taken)]
    inverse = np.linalg.inv(kept + p * p * models.LINK_PENALTY * np.eye(len(trained)))
    completed = y + y @ inverse @ taken
    weights = np.linalg.solve(x.T @ x + 2.5 * np.eye(4), x.T @ completed.T)
    for content in (CONTENT, sparse.csr_array(CONTENT)):
        scores = models.denoised(task(content), 2.5)(candidates)(ALL_USERS[::-1])
        expected = (CONTENT[candidates] @ weights).T[::-1]
        assert scores == pytest.approx(expected, rel=1e-5, abs=1e-6)


@pytest.mark.parametrize("n_users", [40, 5])  # more users than items, and fewer
def test_ease_regresses_each_item_on_all_others(n_users):
    links = (RNG.random((n_users, 9)) < 0.5).astype(np.float32)
    links[:, 3] = 0.0  # a new item among known ones
    candidates = np.array([0, 3, 8])
    scores = models.ease(task(None, links), 1.5)(candidates)(np.arange(n_users))
    y = links.astype(np.float64)
    for column, item in enumerate(candidates):
        others = np.delete(np.arange(9), item)
        x = y[:, others]
        weights = np.linalg.solve(x.T @ x + 1.5 * np.eye(8), x.T @ y[:, item])
        assert scores[:, column] == pytest.approx(x @ weights, rel=1e-5, abs=1e-6)


@pytest.mark.parametrize("name", models.FLOORS)
@pytest.mark.parametrize("n_users", [7, 14])  # fewer than items, and more
@pytest.mark.parametrize("width", [4, 30])
def test_products_are_those_of_all_scores(name, n_users, width):
    """Products with the scores and their transpose, beside those of the scores themselves."""
    content = sparse.csr_array(RNG.normal(size=(9, width)).astype(np.float32))
    fitted = models.FLOORS[name].fit(task(content, np.tile(LINKS, (n_users // 7, 1))), 2.5)
    scores = fitted(ALL)(np.arange(n_users))
    basis = RNG.normal(size=(9, 3)).astype(np.float32)
    left = RNG.normal(size=(n_users, 3)).astype(np.float32)
    assert fitted.product(basis) == pytest.approx(scores @ basis, rel=1e-4, abs=1e-4)
    assert fitted.transposed_product(left) == pytest.approx(scores.T @ left, rel=1e-4, abs=1e-4)


def test_ease_refuses_a_penalty_that_rounding_hides():
    """Where an item has one user, and he no other item, P_ii is 0."""
    links = np.array([[1, 1, 0], [0, 0, 1]], np.float32)
    with pytest.raises(linalg.LinAlgError):
        models.ease(task(None, links), 1e-8)


def test_ials_ends_where_its_objective_has_no_slope(monkeypatch):
    """In batches of two rows, of padded links."""
    monkeypatch.setattr(models, "BATCH_ROWS", 2)
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


def test_the_vectors_of_ials_are_those_of_each_candidate():
    scores = models.ials(task(), 0.01)(np.array([8, 2]))(np.array([3, 0]))
    assert not scores[:, 0].any()
    unobserved = 2 * LINKS.sum() / LINKS.size
    users, items = models.factors(
        sparse.csr_array(LINKS), 0.01, dimension=64, unobserved=unobserved, sweeps=10
    )
    assert scores[:, 1] == pytest.approx([users[3] @ items[2], users[0] @ items[2]], rel=1e-5)
