"""Regressions on content, by a factor and by conjugate gradients, beside plain algebra."""

import numpy as np
import pytest
from scipy import sparse

from ncfbench.floors import linear, models
from ncfbench.floors.case import recall_of
from ncfbench.floors.task import HeldOut, Task

RNG = np.random.default_rng(3)


def content_of(shape, n_dense=0):
    """Return sparse content, whose last columns all items have."""
    rows = (RNG.random(shape) * (RNG.random(shape) < 0.2)).astype(np.float32)
    rows[:, shape[1] - n_dense :] = RNG.normal(size=(shape[0], n_dense))
    return rows


@pytest.mark.parametrize("shape", [(150, 90), (90, 150)])
@pytest.mark.parametrize("n_dense", [0, 7])
@pytest.mark.parametrize("is_direct", [True, False])
def test_both_sides_are_those_of_the_normal_equations(shape, n_dense, is_direct, monkeypatch):
    """In several blocks, of which the last has fewer systems."""
    for name, value in (("DIRECT", 1024 * is_direct), ("COLUMNS", 32), ("SYSTEMS", 32)):
        monkeypatch.setattr(linear, name, value)
    monkeypatch.setattr(linear, "TOLERANCE", 1e-6)
    rows, links = content_of(shape, n_dense), (RNG.random((70, shape[0])) < 0.1) * 1.0
    chosen = content_of((80, shape[1]))
    x = rows.astype(np.float64)
    inverse = np.linalg.inv(x.T @ x + 2.5 * np.eye(shape[1]))
    regression = linear.Regression(sparse.csr_array(rows), 2.5)
    found = regression.of_columns(sparse.csr_array(chosen))
    assert found == pytest.approx(x @ inverse @ chosen.T, rel=1e-4, abs=1e-5)
    found = regression.of_items(sparse.csr_array(links))
    assert found == pytest.approx(inverse @ x.T @ links.T, rel=1e-4, abs=1e-5)


def test_an_empty_text_has_no_weights(monkeypatch):
    monkeypatch.setattr(linear, "DIRECT", 0)
    rows = content_of((40, 60))
    rows[3] = 0.0
    found = linear.Regression(sparse.csr_array(rows), 1.0).of_columns(sparse.csr_array(rows[2:4]))
    assert np.isfinite(found).all()
    assert not found[:, 1].any()


@pytest.mark.parametrize("penalty", [0.3, 3.0, 30.0])
def test_iterations_end_where_recall_is_that_of_a_factor(penalty, monkeypatch):
    """Texts of which some words are in many, so that the Gram matrix has large eigenvalues."""
    words = RNG.zipf(1.2, (1500, 30)) % 2000
    once = np.ones(words.size, np.float32), (np.repeat(np.arange(1500), 30), words.ravel())
    counts = sparse.csr_array(sparse.coo_array(once, (1500, 2000)))
    lengths = np.sqrt((counts**2).sum(axis=1))
    content = sparse.csr_array(counts / lengths[:, None], dtype=np.float32)
    tastes = RNG.normal(size=(2000, 300)).astype(np.float32)
    likes = (content @ tastes).T + 0.1 * RNG.normal(size=(300, 1500))
    linked = likes > np.quantile(likes, 0.97, axis=1, keepdims=True)
    links = linked.astype(np.float32)
    links[:, 900:] = 0.0
    task = Task(sparse.csr_array(links), content)
    users, items = np.nonzero(linked[:, 900:])
    held_out = HeldOut(task, users, items + 900, np.arange(900, 1500))
    recalls = []
    for direct in (1e9, 0):
        monkeypatch.setattr(linear, "DIRECT", direct)
        scores = models.ridge(task, penalty)(held_out.candidates)
        recalls.append(recall_of(held_out.evaluate(scores)))
    assert recalls[0] > 0.2
    assert recalls[1] == pytest.approx(recalls[0], abs=5e-4)
