"""What floors read of the items: TF-IDF of their texts, and features that LSA has not made."""

from dataclasses import replace

import numpy as np
import pytest
from support.training import quiet

from ncfbench.data import prepare, store
from ncfbench.data.lsa import tfidf
from ncfbench.floors.case import Case
from ncfbench.floors.task import contents_of

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
