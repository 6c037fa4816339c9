"""Floors beside their formulas, on data small enough to invert, and the content that they read."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import linalg, sparse
from support.training import quiet

from ncfbench.data import prepare, store
from ncfbench.data.lsa import tfidf
from ncfbench.floors import linear, models
from ncfbench.floors.case import Case, recall_of
from ncfbench.floors.task import HeldOut, Task, contents_of

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


def check_scores(name, content, candidates, expected, *penalty):
    """Compare the scores of dense and of sparse content with those of all users."""
    for given in (content, sparse.csr_array(content)):
        scores = getattr(models, name)(task(given), *penalty)(candidates)(ALL_USERS[::-1])
        assert scores == pytest.approx(np.array(expected)[::-1], rel=1e-5, abs=1e-6)


@pytest.mark.parametrize("candidates", [NEW, ALL])
def test_a_profile_adds_the_products_with_the_users_items(candidates):
    products = CONTENT[candidates] @ CONTENT.T
    of_users = [products[:, LINKS[user] > 0].sum(axis=1) for user in ALL_USERS]
    check_scores("profile", CONTENT, candidates, of_users)


@pytest.mark.parametrize("candidates", [NEW, ALL])  # fewer than users, and more
@pytest.mark.parametrize("width", [4, 30])  # fewer than items, and more
def test_ridge_scores_are_regressions_of_each_user(candidates, width):
    content = RNG.normal(size=(9, width)).astype(np.float32)
    trained = np.flatnonzero(LINKS.any(axis=0))
    x, y = content[trained].astype(np.float64), LINKS[:, trained].astype(np.float64)
    weights = np.linalg.solve(x.T @ x + 2.5 * np.eye(width), x.T @ y.T)
    check_scores("ridge", content, candidates, (content[candidates] @ weights).T, 2.5)


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
    check_scores("denoised", CONTENT, candidates, (CONTENT[candidates] @ weights).T, 2.5)


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


# --- regressions on content, by a factor and by conjugate gradients


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
    scores = regression.of_columns(sparse.csr_array(chosen))
    assert scores == pytest.approx(x @ inverse @ chosen.T, rel=1e-4, abs=1e-5)
    weights = regression.of_items(sparse.csr_array(links))
    assert weights == pytest.approx(inverse @ x.T @ links.T, rel=1e-4, abs=1e-5)


def test_an_empty_text_has_no_weights(monkeypatch):
    monkeypatch.setattr(linear, "DIRECT", 0)
    rows = content_of((40, 60))
    rows[3] = 0.0
    scores = linear.Regression(sparse.csr_array(rows), 1.0).of_columns(sparse.csr_array(rows[2:4]))
    assert np.isfinite(scores).all()
    assert not scores[:, 1].any()


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
    users, items = np.nonzero(linked[:, 900:])
    known = task(content, links)
    held_out = HeldOut(known, users, items + 900, np.arange(900, 1500))
    recalls = []
    for direct in (1e9, 0):
        monkeypatch.setattr(linear, "DIRECT", direct)
        scores = models.ridge(known, penalty)(held_out.candidates)
        recalls.append(recall_of(held_out.evaluate(scores)))
    assert recalls[0] > 0.2
    assert recalls[1] == pytest.approx(recalls[0], abs=5e-4)


# --- content: TF-IDF of texts, and features that LSA has not made


BOTH = "TF-IDF and features"


WITHOUT_FEATURES, WITHOUT_TEXTS = {"item_features": None}, {"vocabulary": ()}


def derived(dataset, **columns):
    """Return a data set whose last features are said to be derived."""
    facts = {name: {"columns": n, "seconds": 100.0 + n} for name, n in columns.items()}
    return replace(dataset, manifest={**dataset.manifest, "derived_features": facts})


def test_features_stand_beside_texts(featured):
    """A product of two items adds those of their words and of their features."""
    contents, seconds = contents_of(featured)
    words = tfidf(featured.texts, featured.n_words, featured.items_of("train")).toarray()
    features = featured.item_features.astype(np.float64)
    features /= np.linalg.norm(features, axis=1, keepdims=True)
    both = contents[BOTH].toarray()
    np.testing.assert_allclose(both @ both.T, words @ words.T + features @ features.T, atol=1e-5)
    np.testing.assert_array_equal(contents["TF-IDF"].toarray(), words)
    assert seconds == 0
    alone, _ = contents_of(replace(featured, **WITHOUT_TEXTS))
    assert [*alone] == ["features"]
    np.testing.assert_array_equal(both[:, words.shape[1] :], alone["features"])
    assert contents_of(replace(featured, **WITHOUT_FEATURES))[0].keys() == {"TF-IDF"}
    assert contents_of(replace(featured, **WITHOUT_FEATURES, **WITHOUT_TEXTS))[0] == {}


def test_features_by_lsa_are_left_out(featured):
    """Of six columns those of LSA stand before the checkpoint's, whose seconds count."""
    textless = replace(featured, **WITHOUT_TEXTS)
    left, seconds = contents_of(derived(textless, lsa=2, embed=3))
    without = replace(textless, item_features=featured.item_features[:, [0, 3, 4, 5]])
    np.testing.assert_array_equal(left["features"], contents_of(without)[0]["features"])
    assert seconds == 103
    only_lsa, seconds = contents_of(derived(featured, lsa=6))
    assert (only_lsa.keys(), seconds) == ({"TF-IDF"}, 0)
    assert contents_of(derived(featured, lsa=5))[0].keys() == {"TF-IDF", BOTH}


@pytest.mark.parametrize("is_validated", [True, False])
def test_validation_chooses_whether_features_count(tmp_path, tiny_options, *, is_validated):
    """Ones that name an item's users help, and noise does not: its seconds do not count either."""
    fraction = 0.3 if is_validated else 0.0
    options = replace(tiny_options, items=2000, links=6000, validation_fraction=fraction)
    prepare("synthetic", options, tmp_path, "many", say=quiet)
    many = store.load(tmp_path, "many")
    users = np.zeros((many.n_items, many.n_users), np.float32)
    users[many.items, many.users] = 1
    noise = np.random.default_rng(0).normal(size=(many.n_items, 4)).astype(np.float32)
    for features, content, counts in ((users, BOTH, True), (noise, "TF-IDF", False)):
        dataset = derived(replace(many, item_features=features), embed=features.shape[1])
        case = Case.of(dataset, np.inf, needs_content=True)
        assert (case.content, case.content_seconds > 100) == (content, counts)
        assert (case.task.content != contents_of(dataset)[0][content]).nnz == 0
    case = Case.of(replace(many, item_features=users), 1.0, needs_content=True)
    assert case.content == "TF-IDF"
