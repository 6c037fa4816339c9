"""Users' own data: every format gives the same data set, and it is the one that plain Python makes
of the same rows.
"""

import gzip
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.cli import check, invoke
from support.tables import (
    FORMATS,
    ITEMS,
    LINKS,
    as_parquet,
    ids_of,
    named_links,
    prepare,
    squeezed,
    words_of,
)

from ncfbench.data import store
from ncfbench.data.ids import MISSING
from ncfbench.data.words import tokenize
from ncfbench.errors import DataError


@pytest.mark.parametrize(("links", "items"), list(zip(FORMATS, reversed(FORMATS), strict=True)))
def test_every_format_gives_the_data_set_that_is_there(tmp_path, links, items):
    one = FORMATS[links](tmp_path / f"ratings.{links}", LINKS)
    two = FORMATS[items](tmp_path / f"movies.{items}", ITEMS)
    dataset, said = prepare(tmp_path, one, two)
    assert named_links(dataset) == [("10", "5"), ("7", "30"), ("7", "5"), ("9", "100"), ("9", "30")]
    assert ids_of(dataset.user_ids) == ["7", "9", "10"], "numbers are in the order of numbers"
    words = {"100": "the red fish drama war", "5": "blue fish war", "30": "dogs cats"}
    assert {id_: " ".join(text) for id_, text in words_of(dataset).items()} == words
    assert "user userId, item movieId, every row a link whatever its rating" in said[0]
    assert "id movieId, text title, genres" in said[1]
    assert any(f"links to items that {two.name} does not have: 1." in line for line in said)
    assert any("items without a link: 1." in line for line in said)
    reasons = ("links_to_unknown_items", "unknown_items", "items_without_links")
    assert dataset.manifest["removed"] == dict.fromkeys(reasons, 1)
    assert dataset.manifest["statistics"]["training_links"] < 5


def test_usual_names_and_string_ids_need_no_flags(tmp_path):
    """A Parquet file with string ids and a gzipped JSON Lines file, from the command line."""
    rows = [{"user_id": f"u {n % 3},x", "item_id": f"i-{n % 5}"} for n in range(15)]
    texts = [{"item_id": f"i-{n}", "description": [f"word{n}", "more"]} for n in range(5)]
    links = as_parquet(tmp_path / "events.parquet", rows)
    items = squeezed(tmp_path / "items.jsonl.gz", texts, gzip.compress)
    words = ["prepare", "custom", "--links", links, "--items", items, "--json"]
    result = invoke(*words, "--data-dir", tmp_path / "data")
    check(result, 0, "Items: items.jsonl.gz (JSON Lines, gzip): id item_id, text description.")
    statistics = json.loads(result.stdout)["statistics"]
    assert [statistics[what] for what in ("users", "items", "links")] == [3, 5, 15]
    dataset = store.load(tmp_path / "data", "custom")
    assert ids_of(dataset.user_ids) == ["u 0,x", "u 1,x", "u 2,x"]


def test_the_order_of_links_does_not_matter(tmp_path):
    first, _ = prepare(tmp_path)
    again, said = prepare(tmp_path)
    assert "Already prepared with these options and files" in said[-1]
    other, _ = prepare(tmp_path, LINKS[::-1] + LINKS[:2])
    assert first.fingerprint == again.fingerprint == other.fingerprint
    assert other.manifest["removed"]["duplicate_links"] == 2


def test_ratings_with_a_threshold(tmp_path):
    dataset, said = prepare(tmp_path, rating_threshold=4, test_fraction=0.0)
    assert named_links(dataset) == [("7", "30"), ("7", "5"), ("9", "30")]
    options = {"rating_threshold": 4, "rating_column": "rating"}
    assert dataset.manifest["options"].items() >= options.items()
    assert "of rating 4 and more" in said[0]
    assert any("below the threshold, which are not links: 3." in line for line in said)


def splits_of(dataset):
    return dict(zip(ids_of(dataset.item_ids), dataset.split.tolist(), strict=True))


def test_the_newest_items_are_held_out(tmp_path):
    """First links: item 5 at 10, item 100 at 30, item 30 at 45 (not 50)."""
    options = {"hold_out": "newest-items", "time_column": "timestamp"}
    for times in ([50, 10, 20, 30, 45, 99], [1.5, 1.1, 1.2, 1.3, 1.4, 9.0]):
        links = [row | {"timestamp": time} for row, time in zip(LINKS, times, strict=True)]
        dataset, _ = prepare(tmp_path, links, validation_fraction=0.5, **options)
        assert splits_of(dataset) == {"5": 0, "100": 1, "30": 2}


def test_a_given_split_is_used(tmp_path):
    marks = ["Train", " dev", "test", "train"]
    items = [row | {"split": mark} for row, mark in zip(ITEMS, marks, strict=True)]
    dataset, said = prepare(tmp_path, LINKS, items)
    assert splits_of(dataset) == {"100": 0, "5": 1, "30": 2}
    assert "Held out: as column split says" in said[1]
    random, _ = prepare(tmp_path, LINKS, items, hold_out="items")
    assert random.manifest["options"]["split_column"] is None


@pytest.mark.parametrize(
    ("name", "marks", "row"),
    [
        ("fold", ["train", "test", "train", "train"], 0),
        ("split", [0, 1, 2, 3], 2),
        ("split", ["train", "test", "tset", "train"], 5),
        ("Split", ["train", "test", "", "train"], 5),
    ],
)
def test_other_columns_are_no_split(tmp_path, name, marks, row):
    """Items are held out as without it; a column called split that is none is told, and refused by
    row where it is asked for.
    """
    plain, _ = prepare(tmp_path)
    items = [item | {name: mark} for item, mark in zip(ITEMS, marks, strict=True)]
    dataset, said = prepare(tmp_path, LINKS, items)
    assert dataset.fingerprint == plain.fingerprint
    was_told = any(line.startswith(f"Warning: {name} of m.csv is not used") for line in said)
    assert was_told == (row > 0)
    prepare(tmp_path, LINKS, items, hold_out="items")
    if row:
        with pytest.raises(DataError, match=rf"m.csv, line {row}: {name} .* is none of train, val"):
            prepare(tmp_path, LINKS, items, split_column=name)


@pytest.mark.parametrize("form", ["jsonl", "parquet"])
def test_tokens_that_are_already_made(tmp_path, form):
    """Those of a list are taken as they are; those of a text end at spaces."""

    def prepared(*tokens):
        rows = [{"id": i, "tokens": row} for i, row in zip((5, 30, 100), tokens, strict=True)]
        return prepare(tmp_path, LINKS, FORMATS[form](tmp_path / f"m.{form}", rows))[0]

    lists = prepared(["New York", "", " A.B", None], None, ["a"])
    assert words_of(lists) == {"5": ["New York", " A.B"], "30": [], "100": ["a"]}
    texts = prepared("New York  A.B", "", "a")
    assert words_of(texts) == {"5": ["New", "York", "A.B"], "30": [], "100": ["a"]}
    pieces = prepared("[CLS] New York [SEP]", "", "a")
    assert words_of(pieces)["5"] == ["[CLS]", "New", "York", "[SEP]"]
    for written in (str(["New York", "a"]), json.dumps(["New York", "a"])):
        with pytest.raises(DataError, match=r"(line|row) 3: tokens is a list written as text"):
            prepared("a", "", written)


IDS = st.text(st.characters(exclude_categories=["Cs", "Cc", "Cf"]), min_size=1).filter(
    lambda id_: id_.strip() not in MISSING
)
TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0\r"))


@given(
    st.lists(IDS, min_size=1, max_size=8, unique_by=str.strip),
    st.lists(TEXTS, min_size=8, max_size=8),
    st.sampled_from(["csv", "tsv", "jsonl", "parquet"]),
)
@settings(max_examples=25)
def test_any_ids_and_texts_come_back(tmp_path, ids, texts, form):
    texts = {id_: text + " w" for id_, text in zip(ids, texts, strict=False)}
    rows = [{"user": id_, "item": id_, "text": text} for id_, text in texts.items()]
    one, two = (FORMATS[form](tmp_path / f"{name}.{form}", rows) for name in "rm")
    more = {"user_column": "user", "text_columns": ("text",), "test_fraction": 0.0}
    dataset, _ = prepare(tmp_path, one, two, **more)
    assert named_links(dataset) == sorted((id_.strip(), id_.strip()) for id_ in ids)
    assert words_of(dataset) == {id_.strip(): tokenize(texts[id_])[:300] for id_ in ids}
