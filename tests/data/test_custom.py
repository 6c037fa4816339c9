"""Users' own data: every format gives the same data set, the one that plain Python makes of the
same rows; ids mean the same in every format, and what is no id is left out and counted.
"""

import gzip
import json
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import pyarrow as pa
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
from ncfbench.data.columns import Column, Table
from ncfbench.data.ids import MISSING, encode, natural_order
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
ANY = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0\r"))


@given(
    st.lists(IDS, min_size=1, max_size=8, unique_by=str.strip),
    st.lists(ANY, min_size=8, max_size=8),
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


# --- ids


TITLES = [{"id": 1, "title": "None"}, {"id": 2, "title": "NA"}, {"id": 3, "title": "t3"}]


def users_of(folder, links):
    """The ids of users, in their order, and the messages."""
    dataset, said = prepare(folder, links, TITLES, test_fraction=0.0)
    assert dataset.lengths.all(), "a text may be called like a missing id"
    return ids_of(dataset.user_ids), said


SPELLED = {
    "whole numbers": (["5", "5.0", "5.00", " 5 ", "12"], ["5", "12"]),
    "leading zeros": (["7", "007", "07"], ["7", "07", "007"]),
    "versions": (["1.0", "1.1", "1.10", "2.0"], ["1.0", "1.1", "1.10", "2.0"]),
    "zeros and a point": (["007", "7.0"], ["7.0", "007"]),
    "written by pandas": (["1e+15", "1000000000000000", "3.0"], ["3", "1" + "0" * 15]),
    "below 2^53": (["9007199254740993", "9007199254740991.0"], [str(2**53 - 1), str(2**53 + 1)]),
    "beyond 2^64": ([str(2**64 + 1), str(2**64)], [str(2**64), str(2**64 + 1)]),
    "written by Java": (["1.0E7", "10000000", "2.0"], ["2", "10000000"]),
    "composed and not": (["\u00e9", "e\u0301", "f"], ["f", "\u00e9", "e\u0301"]),
    "spaces around": (["\ufeff5", "5", "\u2003 5\x1b", "5\u3000"], ["5"]),
    "marks within": (["a\u200cb", "ab"], ["ab", "a\u200cb"]),
    "long decimals": (["1.10", "12345678901234567.5"], ["1.10", "12345678901234567.5"]),
    "hexadecimal": (["1e5", "2e7"], ["1e5", "2e7"]),
}  # fmt: skip


@pytest.mark.parametrize("form", ["csv", "jsonl", "parquet"])
@pytest.mark.parametrize("name", SPELLED)
def test_ids_that_are_text(tmp_path, name, form):
    given, expected = SPELLED[name]
    rows = [{"user": user, "item": 1} for user in given]
    links = FORMATS[form](tmp_path / f"r.{form}", rows)
    ids, said = users_of(tmp_path, links)
    assert sorted(ids) == sorted(expected)
    numbers = ("whole numbers", "written by pandas", "written by Java", "below 2^53")
    assert any("are whole numbers" in line for line in said) == (name in numbers)


SPELLINGS = ("{}.0", "{:.1f}", "{:e}", "{:.17E}", "{!r}", "+{:.17E}", " {:.17E} ", "{:.0f}.")


@given(st.integers(1, 2**70), st.booleans(), st.sampled_from(SPELLINGS))
def test_floats_are_ids_below_two_to_the_53(number, is_negative, spelling):
    """The value that is written decides, whatever number it was made of."""
    number = -number if is_negative and "+" not in spelling else number
    text = spelling.format(number if spelling == "{}.0" else float(number))
    value = Fraction(text)
    table = Table(Path("r"), "", ("user",), None, lambda row: f"row {row}")
    column = Column(table, "user", pa.chunked_array([["Ann", text]]))
    if value.denominator == 1 and abs(value) >= 2**53:
        with pytest.raises(DataError, match="row 1: user "):
            encode(column)
    else:
        assert encode(column).names.to_pylist() == ["Ann", text.strip()]


TYPED = [
    (pa.array([5, 12]), ["5", "12"]),
    (pa.array([5.0, None, 12.0, float("nan")]), ["5", "12"]),
    (pa.array([5.0, 12.0], pa.float32()), ["5", "12"]),
    (pa.array([Decimal("5.00"), Decimal("12.00")]), ["5", "12"]),
    (pa.array([2**64 - 1, 5], pa.uint64()), ["5", str(2**64 - 1)]),
    (pa.array([5, 12], pa.int8()).dictionary_encode(), ["5", "12"]),
    (pa.array(["5", "5.0", "12"]).dictionary_encode(), ["5", "12"]),
    (pa.array(["5", "12"], pa.large_string()), ["5", "12"]),
    (pa.array([True, False]), "type bool"),
    (pa.array([1.5]), "row 1: user 1.5 is not a whole number"),
    (pa.array([5.0, 2.0**53]), "row 2: user 9007199254740992.0 is not a whole number below"),
    (pa.array([5.0, 2.0**11], pa.float16()), "row 2: user 2048.0 is not .* below 2.11"),
    (pa.array([Decimal("5.00"), Decimal("1.50")]), "row 2: user 1.50 is not a whole number"),
    (["5", "5.0", '"5"', "5e0"], ["5"]),
    (["1e15", "1000000000000000"], ["1000000000000000"]),
    (["12345678901234567890", "9"], ["9", "12345678901234567890"]),
    (["9007199254740993", "1"], ["1", "9007199254740993"]),
    (["NaN", "null", '"NULL"', "3"], ["3"]),
    (["5.0", '"x"'], ["5", "x"]),
    (["1582920000000000001", "1.58292E18"], "line 2: user .* Export the ids as text"),
    (["1", "1582920000000000001.0"], "line 2: user .* Export the ids as text"),
    (["1", r'"a\nb"'], "line 2: user has more than one line"),
]
"""Columns of Parquet, and values of JSON as they stand; a text refuses them."""


@pytest.mark.parametrize(("users", "expected"), TYPED)
def test_ids_of_a_type(tmp_path, users, expected):
    if isinstance(users, list):
        path = tmp_path / "r.jsonl"
        path.write_text("".join(f'{{"user": {user}, "item": 1}}\n' for user in users))
    else:
        table = pa.table({"user": users, "item": [1] * len(users)})
        path = as_parquet(tmp_path / "r.parquet", table)
    if isinstance(expected, list):
        assert users_of(tmp_path, path)[0] == expected
    else:
        with pytest.raises(DataError, match=expected):
            users_of(tmp_path, path)


def test_links_and_items_are_read_by_one_rule(tmp_path):
    """A column of versions keeps its points, though the other file's alone would be numbers."""
    items = [{"id": id_, "title": "t"} for id_ in ("1.0", "1.10", "2")]
    links = [{"user": 1, "item": item} for item in ("1.0", "2")]
    dataset, _ = prepare(tmp_path, links, items, test_fraction=0.0)
    assert named_links(dataset) == [("1", "1.0"), ("1", "2")]
    floats = as_parquet(tmp_path / "r.parquet", [{"user": 1, "item": n} for n in (1.0, 2.0)])
    items = [{"id": id_, "title": "t"} for id_ in ("1", "2", "x")]
    dataset, _ = prepare(tmp_path, floats, items, test_fraction=0.0)
    assert named_links(dataset) == [("1", "1"), ("1", "2")]


def test_two_spellings_among_names_are_told(tmp_path):
    ids, said = users_of(tmp_path, [{"user": user, "item": 1} for user in ("5", "5.0", "Ann")])
    assert sorted(ids) == ["5", "5.0", "Ann"]
    (warning,) = (line for line in said if "spelled in two ways" in line)
    assert "1 ids of user" in warning
    assert "'Ann'" in warning


@pytest.mark.parametrize("form", ["csv", "jsonl", "parquet"])
def test_missing_ids_are_left_out_and_counted(tmp_path, form):
    spellings = ["NA", "NULL", "null", "nan", "NaN", "None", "\\N", "<NA>", "", "  "]
    # A file of text with zero bytes is refused: it is mostly UTF-16.
    spellings += ["\t" if form == "csv" else "\0\0"]
    rows = [{"user": user, "item": 1} for user in (*spellings, "NA", "Nan", "Ann")]
    ids, said = users_of(tmp_path, FORMATS[form](tmp_path / f"r.{form}", rows))
    assert ids == ["Ann", "Nan"]
    (warning,) = (line for line in said if "without a user or an item: 12." in line)
    assert "NA (2 rows)" in warning
    assert "\\N (1 rows)" in warning


def test_ids_are_in_natural_order():
    ids = ["N10", "N9", "M100", "N010", "x", "N", "N10b", "10", "9"]
    order = natural_order(pa.array(ids))
    assert " ".join(ids[index] for index in order) == "9 10 M100 N N9 N010 N10 N10b x"
