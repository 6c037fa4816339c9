"""What floors read of the items: TF-IDF of their texts, and features that LSA has not made."""

from __future__ import annotations

import math
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from prepared import quiet

from ncfbench.data.lsa import tfidf
from ncfbench.data.store import Dataset
from ncfbench.floors import kept, measure
from ncfbench.floors.pipeline import floor
from ncfbench.floors.task import content_of, content_title
from ncfbench.reporting.views.floors import floors_table
from ncfbench.storage import tables
from ncfbench.storage.schemas import FLOOR


def cosine(left: list[float], right: list[float]) -> float:
    product = math.fsum(a * b for a, b in zip(left, right, strict=True))
    lengths = math.hypot(*left) * math.hypot(*right)
    return product / lengths if lengths else 0.0


def without_features(dataset: Dataset) -> Dataset:
    return replace(dataset, item_features=None)


def without_texts(dataset: Dataset) -> Dataset:
    return replace(dataset, vocabulary=replace(dataset.vocabulary, words=(), counts=()))


def test_features_stand_beside_texts(featured: Dataset) -> None:
    """A product of two items adds those of their words and of their features."""
    content, seconds = content_of(featured)
    words = tfidf(featured.texts, featured.n_words, featured.items_of("train")).toarray()
    assert content is not None
    assert featured.item_features is not None
    features = featured.item_features.tolist()
    for one, other in ((0, 0), (0, 7), (12, 3), (30, 31)):
        expected = words[one] @ words[other] + cosine(features[one], features[other])
        found = (content[[one]] @ content[[other]].T).toarray()[0, 0]
        assert found == pytest.approx(expected, abs=1e-5)
    assert seconds == 0


def test_either_alone(featured: Dataset) -> None:
    words, _ = content_of(without_features(featured))
    features, _ = content_of(without_texts(featured))
    nothing, _ = content_of(without_features(without_texts(featured)))
    both, _ = content_of(featured)
    assert words is not None
    assert features is not None
    assert both is not None
    assert nothing is None
    assert words.shape[1] == featured.n_words
    np.testing.assert_array_equal(
        both.toarray(), np.concatenate([words.toarray(), features], axis=1)
    )
    titles = [content_title(without_features(featured)), content_title(without_texts(featured))]
    assert [*titles, content_title(featured)] == ["TF-IDF", "features", "TF-IDF and features"]


def derived(dataset: Dataset, **columns: int) -> Dataset:
    """Return a data set whose features after its own are said to be derived, the last ones last."""
    facts = {name: {"columns": n, "seconds": 100.0 + n} for name, n in columns.items()}
    return replace(dataset, manifest={**dataset.manifest, "derived_features": facts})


def test_features_by_lsa_are_left_out(featured: Dataset) -> None:
    """Of six columns those of LSA stand before the checkpoint's, whose seconds count."""
    own = featured.item_features
    assert own is not None
    by_embed = derived(without_texts(featured), lsa=2, embed=3)
    found, seconds = content_of(by_embed)
    expected, _ = content_of(replace(without_texts(featured), item_features=own[:, [0, 3, 4, 5]]))
    np.testing.assert_array_equal(found, expected)
    assert seconds == 103
    only_lsa = derived(featured, lsa=6)
    words, seconds = content_of(only_lsa)
    assert words is not None
    assert (words.shape[1], seconds) == (featured.n_words, 0)
    assert content_title(only_lsa) == "TF-IDF"
    assert content_title(derived(featured, lsa=5)) == "TF-IDF and features"
    assert content_title(by_embed) == "features"


def test_seconds_of_derived_features_count(featured: Dataset) -> None:
    case = measure.Case.of(derived(featured, embed=6), np.inf, needs_content=True)
    assert case.content_seconds > 106


def test_a_floor_of_other_content_is_fitted_again(featured_dir: Path, tmp_path: Path) -> None:
    """Such as one that an earlier version fitted to texts alone."""
    folder = shutil.copytree(featured_dir / "tiny", tmp_path / "tiny")
    first = floor("tiny", floors=["profile"], data_dir=tmp_path, say=quiet)
    (row,) = first.rows
    assert row["content"] == "TF-IDF and features"
    assert "Content of profile: TF-IDF and dense features." in floors_table("tiny", [row]).notes
    older = {**row, "content": "TF-IDF", "test_recall_at_50": 0.0}
    tables.write_rows(folder / kept.FILE, [older], FLOOR)
    assert floor("tiny", floors=["profile"], data_dir=tmp_path, say=quiet).rows[0] != older
    (again,) = kept.read(folder, first.fingerprint)
    assert again["test_recall_at_50"] == row["test_recall_at_50"]
