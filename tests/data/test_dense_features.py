"""Dense features of users' own data: their numbers by definition; faults name their row."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from tables_of import ITEMS, LINKS, ids_of, prepare

from ncfbench.data.features import standardise
from ncfbench.errors import DataError

VALUES = {100: [1.0, -2.0, 5.0], 5: [3.0, 0.5, 5.0], 30: [2.0, 7.0, 5.0], 8: [9.0, 9.0, 5.0]}
"""By item, in the order of the items' file. The last one is the same for all."""


def expected(dataset):
    """Standardised over training items, in plain NumPy."""
    rows = np.array([VALUES[int(id_)] for id_ in ids_of(dataset.item_ids)])
    fitted = rows[dataset.split == 0]
    deviation = fitted.std(axis=0)
    return np.where(deviation > 0, (rows - fitted.mean(axis=0)) / np.maximum(deviation, 1e-9), 0)


@pytest.mark.parametrize("kind", [np.float64, np.float32, np.float16, np.int64])
def test_features_by_definition(tmp_path, kind):
    np.save(tmp_path / "f.npy", np.array(list(VALUES.values())).astype(kind))
    dataset, said = prepare(tmp_path, item_features=tmp_path / "f.npy")
    assert dataset.item_features is not None
    if kind is not np.int64:
        np.testing.assert_allclose(dataset.item_features, expected(dataset), atol=1e-6)
    assert any("1 of 3 features of the items are the same" in line for line in said)
    assert "Features of items: f.npy (4 x 3), in the order of the items." in said
    assert dataset.manifest["statistics"]["item_features"] == 3


def test_features_are_part_of_the_fingerprint(tmp_path):
    plain, _ = prepare(tmp_path)
    assert "item_features" not in plain.manifest["options"]
    prints = {plain.fingerprint}
    for scale in (1.0, -1.0):
        np.save(tmp_path / "f.npy", scale * np.array(list(VALUES.values())))
        prints.add(prepare(tmp_path, item_features=tmp_path / "f.npy")[0].fingerprint)
    assert len(prints) == 3


def test_items_may_have_no_text(tmp_path):
    items = [{"movieId": item["movieId"]} for item in ITEMS]
    np.save(tmp_path / "f.npy", np.array(list(VALUES.values())))
    dataset, said = prepare(tmp_path, LINKS, items, item_features=tmp_path / "f.npy")
    assert dataset.n_words == 0
    assert not dataset.lengths.any()
    assert any("text none" in line for line in said)
    with pytest.raises(DataError, match="--item-features"):
        prepare(tmp_path, LINKS, items)


def test_a_wrong_array_is_refused(tmp_path):
    path = tmp_path / "f.npy"
    broken = np.array(list(VALUES.values()))
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


@settings(max_examples=30, deadline=None)
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
    found, constant = standardise(features, fitted)
    is_constant = deviation <= 2.0**-23 * np.abs(mean)
    assert constant == is_constant.sum()
    scaled = (rows - mean) / np.where(is_constant, np.inf, deviation)
    np.testing.assert_allclose(found, scaled, rtol=1e-4, atol=1e-4)


def test_large_numbers_keep_their_differences(tmp_path):
    """Seconds since 1970 are the same to float32, where they differ by a minute."""
    seconds = np.array([1_570_000_000 + 20 * n for n in (3, 1, 2, 0)])
    np.save(tmp_path / "f.npy", seconds[:, None])
    dataset, said = prepare(tmp_path, item_features=tmp_path / "f.npy", test_fraction=0.0)
    assert dataset.item_features is not None
    expected = seconds[:3] - np.mean(seconds[:3])
    np.testing.assert_allclose(dataset.item_features[:, 0], expected / expected.std(), rtol=1e-6)
    assert not any("are the same" in line for line in said)


@given(
    st.sampled_from([np.float16, np.float32]),
    st.floats(1, 6e4),
    st.integers(0, 40),
    st.integers(2, 30),
)
def test_features_that_differ_are_not_constant(kind, mean, steps, n_rows):
    """Two numbers of a type that are some steps of its apart, in turn, become -1 and 1."""
    low = kind(mean)
    high = kind(low + steps * np.spacing(low))
    features = np.resize(np.array([[low], [high]], kind), (2 * n_rows, 1))
    found, constant = standardise(features, np.ones(len(features), bool))
    assert constant == (low == high) or steps <= 4
    if constant:
        assert not found.any()
    else:
        np.testing.assert_allclose(found[:, 0], np.resize([-1.0, 1.0], 2 * n_rows), rtol=0.05)


def test_constant_columns_of_many_rows_are_constant():
    """Sums of 1.6e9 over many rows are rounded; their mean must not be."""
    features = np.full((100_000, 2), 1_600_000_000.1)
    features[:, 1] += np.arange(100_000) % 2
    found, constant = standardise(features, np.arange(100_000) % 3 > 0)
    assert constant == 1
    assert not found[:, 0].any()
    np.testing.assert_allclose(np.abs(found[:, 1]), 1.0, rtol=1e-4)
