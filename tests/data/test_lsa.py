"""TF-IDF and the features derived of it, beside their definitions."""

import json
import math

import numpy as np
import pytest
from invoked import check, invoke
from prepared import quiet

from ncfbench import prepare
from ncfbench.data import store
from ncfbench.data.lsa import lsa, tfidf
from ncfbench.data.text import Texts
from ncfbench.errors import DataError, UsageError

SMALL = {"users": 60, "items": 90, "links": 900, "topics": 5, "vocabulary_size": 70}
SIZE = 6


def small(tmp_path, name, **options):
    return prepare("synthetic", name=name, data_dir=tmp_path, say=quiet, **(SMALL | options))


def test_a_weight_of_tfidf_is_that_of_its_formula():
    """The last word is in no text that is counted."""
    texts = Texts(np.array([1, 1, 2, 2, 3], np.int32), np.array([3, 2, 0], np.int32))
    first = [(1 + math.log(2)) * (math.log(3 / 2) + 1), math.log(3 / 2) + 1, 0.0]
    second = [0.0, math.log(3 / 2) + 1, math.log(3 / 1) + 1]

    rows = tfidf(texts, 3, np.array([0, 2])).toarray()

    for row, weights in zip(rows, (first, second), strict=False):
        length = math.sqrt(sum(weight**2 for weight in weights))
        assert row == pytest.approx([weight / length for weight in weights], rel=1e-6)
    assert not rows[2].any()


@pytest.mark.parametrize("hold_out", ["items", "links"])
def test_lsa_is_the_truncated_svd_of_training_items(tmp_path, hold_out):
    """NumPy's whole decomposition of the training items' rows gives the same features, up to the
    sign, of all items; prepared, they have a mean of 0 and a variance of 1 over training items.
    """
    made = small(tmp_path, "x", lsa=SIZE, hold_out=hold_out)
    training = np.unique(made.links("train")[1])
    assert training.tolist() == made.items_of("train").tolist()
    assert len(training) < made.n_items
    rows = tfidf(made.texts, made.n_words, training).toarray().astype(np.float64)
    _, _, vectors = np.linalg.svd(rows[training], full_matrices=False)
    vectors = vectors[:SIZE]
    signs = [np.sign(max(row, key=abs)) for row in vectors]
    expected = rows @ (vectors * np.array(signs)[:, None]).T

    found = lsa(made.texts, made.n_words, training, SIZE)

    np.testing.assert_allclose(found, expected, atol=2e-5)
    standard = (expected - expected[training].mean(axis=0)) / expected[training].std(axis=0)
    assert made.item_features is not None
    np.testing.assert_allclose(made.item_features, standard, atol=2e-3)


def test_words_of_held_out_items_decide_no_feature(tmp_path):
    made = small(tmp_path, "x")
    training = made.items_of("train")
    words = np.array(made.texts.words)
    of_item = np.repeat(np.arange(made.n_items), made.lengths)
    words[~np.isin(of_item, training)] = 1
    others = Texts(words, made.lengths)

    own, changed = (lsa(texts, made.n_words, training, SIZE) for texts in (made.texts, others))

    np.testing.assert_array_equal(own[training], changed[training])
    assert not np.array_equal(own, changed)


def test_features_without_rank_are_zero():
    """Two different texts have two singular values above rounding."""
    texts = Texts(np.tile([1, 2, 1, 3], 5).astype(np.int32), np.full(10, 2, np.int32))

    found = lsa(texts, 6, np.arange(10), 4)

    assert found[:, :2].any(axis=0).all()
    assert not found[:, 2:].any()


def test_derived_features_stand_behind_given_ones(tmp_path):
    given = small(tmp_path, "given", item_features=3)
    derived = small(tmp_path, "derived", lsa=SIZE)
    both = small(tmp_path, "both", item_features=3, lsa=SIZE)

    assert given.item_features is not None
    assert derived.item_features is not None
    assert both.item_features is not None
    np.testing.assert_array_equal(both.item_features[:, :3], given.item_features)
    np.testing.assert_array_equal(both.item_features[:, 3:], derived.item_features)
    assert both.manifest["statistics"]["item_features"] == 3 + SIZE
    assert len({made.fingerprint for made in (given, derived, both)}) == 3
    assert both.feature_seconds > given.feature_seconds == 0


def test_a_fingerprint_covers_the_definition_and_the_checksum_the_bits(tmp_path):
    """Features that another machine rounds otherwise belong to the same data; damaged ones are
    refused, and derived again.
    """
    made = small(tmp_path, "x", lsa=SIZE)
    path = tmp_path / "x" / made.fingerprint[:12] / "item_features.npy"
    whole = path.read_bytes()
    path.write_bytes(whole[:-4] + b"\0\0\0\0")
    with pytest.raises(DataError, match=r"damaged.*with lsa=6"):
        store.load(tmp_path, "x")

    again = small(tmp_path, "x", lsa=SIZE)

    assert again.fingerprint == made.fingerprint
    assert path.read_bytes() == whole
    manifest = json.loads((tmp_path / "x" / "manifest.json").read_text())
    assert manifest["derived_features"]["lsa"]["columns"] == SIZE
    assert again.feature_seconds == manifest["derived_features"]["lsa"]["seconds"] > 0


def test_the_command_derives_and_describe_shows_them(tmp_path):
    generated = small(tmp_path, "generated")
    rows = zip(generated.users.tolist(), generated.items.tolist(), strict=True)
    links = "".join(f"{user},{item}\n" for user, item in rows)
    (tmp_path / "links.csv").write_text(f"user,item\n{links}")
    every = map(generated.texts.__getitem__, range(len(generated.texts)))
    texts = (" ".join(f"word{word}" for word in text) for text in every)
    items = "".join(f"{item},{text}\n" for item, text in enumerate(texts))
    (tmp_path / "items.csv").write_text(f"item,title\n{items}")
    files = ("--links", tmp_path / "links.csv", "--items", tmp_path / "items.csv")
    words = ("--name", "x", "--data-dir", tmp_path)
    found = invoke("prepare", "custom", *files, "--lsa", "6", *words)
    check(found, 0, "--lsa: 6 features of each item, in 0.", "item features 6")
    usual = invoke("prepare", "custom", *files, "--name", "y", *words[2:])
    check(usual, 0, "No features by LSA, which are made by default: --lsa 300: texts of")
    check(
        invoke("describe", "x", "--set", "batch_size=64", *words[2:]),
        0,
        "derived by --lsa 6 of the items' columns, in 0.",
        "--lsa 6",
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"lsa": 65}, r"--lsa 65: texts of 65 training items .* at most 64 such features\."),
        ({"lsa": -1}, "lsa = -1"),
    ],
)
def test_impossible_sizes_are_refused(tmp_path, options, message):
    with pytest.raises(UsageError, match=message):
        small(tmp_path, "x", **options)
    assert not (tmp_path / "x" / "manifest.json").exists()


def test_items_without_texts_have_no_such_features(tmp_path):
    (tmp_path / "links.csv").write_text("user,item\n1,1\n1,2\n2,1\n")
    (tmp_path / "items.csv").write_text("item,price\n1,2\n2,3\n")
    np.save(tmp_path / "f.npy", np.eye(2))
    options = {name: tmp_path / f"{name}.csv" for name in ("links", "items")}
    options["item_features"] = tmp_path / "f.npy"
    with pytest.raises(UsageError, match="--lsa 2 makes features of texts, and"):
        prepare("custom", data_dir=tmp_path, say=quiet, lsa=2, **options)
