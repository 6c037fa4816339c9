"""Dense features of items, given and derived from texts by TF-IDF and LSA, by definition."""

import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from support.cli import check, invoke
from support.tables import ITEMS, LINKS, as_csv, ids_of, prepare
from support.training import quiet

from ncfbench import prepare as prepare_dataset
from ncfbench.data import store
from ncfbench.data.features import standardise
from ncfbench.data.lsa import lsa, tfidf
from ncfbench.data.text import Texts
from ncfbench.errors import DataError, UsageError

ROWS = np.array([[1.0, -2.0, 5.0], [3.0, 0.5, 5.0], [2.0, 7.0, 5.0], [9.0, 9.0, 5.0]])
"""In the order of the items' file. The last feature is the same for all."""


@pytest.mark.parametrize("kind", [np.float64, np.float32, np.float16])
def test_features_by_definition(tmp_path, kind):
    """Standardised over training items, in plain NumPy."""
    np.save(tmp_path / "f.npy", ROWS.astype(kind))
    dataset, said = prepare(tmp_path, item_features=tmp_path / "f.npy")
    order = [
        [str(item["movieId"]) for item in ITEMS].index(id_) for id_ in ids_of(dataset.item_ids)
    ]
    fitted = ROWS[order][dataset.split == 0]
    deviation = np.where(np.ptp(fitted, axis=0) > 0, fitted.std(axis=0), np.inf)
    expected = (ROWS[order] - fitted.mean(axis=0)) / deviation
    np.testing.assert_allclose(dataset.item_features, expected, atol=1e-6)
    assert any("1 of 3 features of the items are the same" in line for line in said)
    assert "Features of items: f.npy (4 x 3), in the order of the items." in said
    assert dataset.manifest["statistics"]["item_features"] == 3
    np.save(tmp_path / "f.npy", -ROWS.astype(kind))
    negated, _ = prepare(tmp_path, item_features=tmp_path / "f.npy")
    assert negated.fingerprint != dataset.fingerprint


def test_items_may_have_no_text(tmp_path):
    items = [{"movieId": item["movieId"]} for item in ITEMS]
    np.save(tmp_path / "f.npy", ROWS)
    features = {"item_features": tmp_path / "f.npy"}
    dataset, said = prepare(tmp_path, LINKS, items, **features)
    assert dataset.n_words == 0
    assert not dataset.lengths.any()
    assert any("text none" in line for line in said)
    with pytest.raises(DataError, match="--item-features"):
        prepare(tmp_path, LINKS, items)
    with pytest.raises(UsageError, match="--lsa 2 makes features of texts, and"):
        prepare(tmp_path, LINKS, items, lsa=2, **features)


def test_a_wrong_array_is_refused(tmp_path):
    path = tmp_path / "f.npy"
    broken = ROWS.copy()
    broken[2, 1] = 1e39
    for array, words in (
        (np.ones((3, 2)), "has 3 rows, and --items 4"),
        (np.ones(4), "array of float64 of shape 4"),
        (np.array([["a"]] * 4), "features are numbers"),
        (broken, "row 3: a value is not a finite number"),
        (np.full((4, 2), np.inf, np.float16), "row 1: a value is not a finite number"),
        (np.ones((4, 0)), "0 features; 1 to 65,536 are supported"),
        (np.array([[3e38], [1], [2], [3]]), "f.npy: item '100' has a feature that is too far"),
    ):
        np.save(path, array)
        with pytest.raises(DataError, match=words):
            prepare(tmp_path, item_features=path)
    path.write_bytes(b"no array")
    with pytest.raises(DataError, match="Cannot read"):
        prepare(tmp_path, item_features=path)


@settings(max_examples=30)
@given(
    arrays.arrays(
        np.float32,
        st.tuples(st.integers(2, 30), st.integers(1, 4)),
        elements=st.floats(-1e4, 1e4, width=32).map(lambda x: round(x, 2)),
    ),
    st.sampled_from([1.0, 3e34]),
)
def test_standardised_by_definition(features, scale):
    """Also where the squares exceed float32."""
    features *= np.float32(scale)
    fitted = np.arange(len(features)) % 3 != 1
    rows = features.astype(np.float64)
    mean, deviation = rows[fitted].mean(axis=0), rows[fitted].std(axis=0)
    is_constant = deviation <= 2.0**-23 * np.abs(mean)
    scaled = (rows - mean) / np.where(is_constant, np.inf, deviation)
    result, constant = standardise(features, fitted)
    assert constant == is_constant.sum()
    np.testing.assert_allclose(result, scaled, rtol=1e-4, atol=1e-4)


KINDS = st.sampled_from([np.float16, np.float32])


@given(KINDS, st.floats(1, 6e4), st.integers(0, 40), st.integers(2, 30))
def test_features_that_differ_are_not_constant(kind, mean, steps, n_rows):
    """Two numbers of a type that are some steps of its apart, in turn, become -1 and 1."""
    low = kind(mean)
    high = kind(low + steps * np.spacing(low))
    features = np.resize(np.array([[low], [high]], kind), (2 * n_rows, 1))
    result, constant = standardise(features, np.ones(len(features), bool))
    assert constant == (low == high) or steps <= 4
    if constant:
        assert not result.any()
    else:
        np.testing.assert_allclose(result[:, 0], np.resize([-1.0, 1.0], 2 * n_rows), rtol=0.05)


def test_constant_columns_of_many_rows_are_constant():
    """Sums of 1.6e9 over many rows are rounded; their mean must not be."""
    features = np.full((100_000, 2), 1_600_000_000.1)
    features[:, 1] += np.arange(100_000) % 2
    result, constant = standardise(features, np.arange(100_000) % 3 > 0)
    assert constant == 1
    assert not result[:, 0].any()
    np.testing.assert_allclose(np.abs(result[:, 1]), 1.0, rtol=1e-4)


# --- features derived from the texts

SMALL = {"users": 60, "items": 90, "links": 900, "topics": 5, "vocabulary_size": 70}
SIZE = 6


def small(tmp_path, name, **options):
    return prepare_dataset(
        "synthetic", name=name, data_dir=tmp_path, say=quiet, **(SMALL | options)
    )


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
    prepared = small(tmp_path, "x", lsa=SIZE, hold_out=hold_out)
    training = np.unique(prepared.links("train")[1])
    assert training.tolist() == prepared.items_of("train").tolist()
    assert len(training) < prepared.n_items
    rows = tfidf(prepared.texts, prepared.n_words, training).toarray().astype(np.float64)
    _, _, vectors = np.linalg.svd(rows[training], full_matrices=False)
    vectors = vectors[:SIZE]
    signs = [np.sign(max(row, key=abs)) for row in vectors]
    expected = rows @ (vectors * np.array(signs)[:, None]).T
    result = lsa(prepared.texts, prepared.n_words, training, SIZE)
    np.testing.assert_allclose(result, expected, atol=2e-5)
    standard = (expected - expected[training].mean(axis=0)) / expected[training].std(axis=0)
    np.testing.assert_allclose(prepared.item_features, standard, atol=2e-3)


def test_features_without_rank_are_zero():
    """Two different texts have two singular values above rounding."""
    texts = Texts(np.tile([1, 2, 1, 3], 5).astype(np.int32), np.full(10, 2, np.int32))
    result = lsa(texts, 6, np.arange(10), 4)
    assert result[:, :2].any(axis=0).all()
    assert not result[:, 2:].any()


def test_derived_features_stand_behind_given_ones(tmp_path):
    given = small(tmp_path, "given", item_features=3)
    derived = small(tmp_path, "derived", lsa=SIZE)
    both = small(tmp_path, "both", item_features=3, lsa=SIZE)
    np.testing.assert_array_equal(both.item_features[:, :3], given.item_features)
    np.testing.assert_array_equal(both.item_features[:, 3:], derived.item_features)
    assert both.manifest["statistics"]["item_features"] == 3 + SIZE
    assert len({prepared.fingerprint for prepared in (given, derived, both)}) == 3
    assert both.feature_seconds > given.feature_seconds == 0


def test_a_fingerprint_covers_the_definition_and_the_checksum_the_bits(tmp_path):
    """Features that another machine rounds otherwise belong to the same data; damaged ones are
    refused, and derived again.
    """
    prepared = small(tmp_path, "x", lsa=SIZE)
    path = tmp_path / "x" / prepared.fingerprint[:12] / "item_features.npy"
    whole = path.read_bytes()
    path.write_bytes(whole[:-4] + b"\0\0\0\0")
    with pytest.raises(DataError, match=r"damaged.*with lsa=6"):
        store.load(tmp_path, "x")
    again = small(tmp_path, "x", lsa=SIZE)
    assert again.fingerprint == prepared.fingerprint
    assert path.read_bytes() == whole
    manifest = json.loads((tmp_path / "x" / "manifest.json").read_text())
    assert manifest["derived_features"]["lsa"]["columns"] == SIZE
    assert again.feature_seconds == manifest["derived_features"]["lsa"]["seconds"] > 0


def test_the_command_derives_and_describe_shows_them(tmp_path):
    links, items = as_csv(tmp_path / "r.csv", LINKS), as_csv(tmp_path / "m.csv", ITEMS)
    words = ["prepare", "custom", "--links", links, "--items", items, "--name"]
    folder = ("--data-dir", tmp_path)
    check(invoke(*words, "x", "--lsa", "1", *folder), 0, "--lsa: 1 features of each item, in 0.")
    check(invoke(*words, "y", *folder), 0, "No features by LSA, which are made by default")
    shown = invoke("describe", "x", "--set", "batch_size=2", *folder)
    check(shown, 0, "derived by --lsa 1 of the items' columns, in 0.", "--lsa 1")


def test_more_features_than_texts_or_memory_are_refused(tmp_path, monkeypatch):
    with pytest.raises(UsageError, match=r"texts of 65 training items .* at most 64 such feat"):
        small(tmp_path, "x", lsa=65)
    monkeypatch.setattr("ncfbench.storage.free_space.available_memory", lambda: 0)
    with pytest.raises(UsageError, match=f"{SIZE} features by --lsa"):
        lsa(Texts(np.ones(9, np.int32), np.ones(9, np.int32)), 3, np.arange(9), SIZE)
    assert not (tmp_path / "x" / "manifest.json").exists()
