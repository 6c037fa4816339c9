"""Ids mean the same in every format, and what is no id is left out and counted."""

import re
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.tables import FORMATS, as_parquet, ids_of, named_links, prepare

from ncfbench.data.columns import Column, Table
from ncfbench.data.ids import encode, natural_order
from ncfbench.errors import DataError

ITEMS = [{"id": 1, "title": "None"}, {"id": 2, "title": "NA"}, {"id": 3, "title": "t3"}]


def users_of(folder, links):
    """The ids of users, in their order, and the messages."""
    dataset, said = prepare(folder, links, ITEMS, test_fraction=0.0)
    assert dataset.lengths.all(), "a text may be called like a missing id"
    return ids_of(dataset.user_ids), said


TEXTS = {
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
@pytest.mark.parametrize("name", TEXTS)
def test_ids_that_are_text(tmp_path, name, form):
    given, expected = TEXTS[name]
    rows = [{"user": user, "item": 1} for user in given]
    links = FORMATS[form](tmp_path / f"r.{form}", rows)
    ids, said = users_of(tmp_path, links)
    assert sorted(ids) == sorted(expected)
    numbers = ("whole numbers", "written by pandas", "written by Java", "below 2^53")
    assert any("are whole numbers" in line for line in said) == (name in numbers)


@pytest.mark.parametrize(("form", "row"), [("csv", "line 4"), ("parquet", "row 3")])
@pytest.mark.parametrize(
    "spelled", ["1.58292E+18", " -1.58292E18 ", "9007199254740992.0", "1582917533873852400."]
)
def test_long_floats_are_no_ids(tmp_path, spelled, form, row):
    """Of users and of items, among ids of any kind; the row is named, and what to do."""
    for pairs in ([("5", 1), ("Ann", 2), (spelled, 3)], [(5, "1"), (6, "x"), (7, spelled)]):
        rows = [{"user": user, "item": item} for user, item in pairs]
        links = FORMATS[form](tmp_path / f"r.{form}", rows)
        message = f"r.{form}, {row}: .*{re.escape(spelled.strip()[:9])}.* Export the ids as text"
        with pytest.raises(DataError, match=message):
            prepare(tmp_path, links, ITEMS)


@given(st.integers(1, 2**70), st.sampled_from(["{}.0", "{:.1f}", "{:e}", "{:.17E}", "{!r}"]))
def test_floats_are_ids_below_two_to_the_53(number, spelling):
    """The value that is written decides, whatever number it was made of."""
    text = spelling.format(float(number) if spelling != "{}.0" else number)
    value = Fraction(text)
    table = Table(Path("r"), "", ("user",), None, lambda row: f"row {row}")
    column = Column(table, "user", pa.chunked_array([[text]]))
    if value.denominator == 1 and value >= 2**53:
        with pytest.raises(DataError, match="row 0: user "):
            encode(column)
    else:
        assert encode(column).names.to_pylist() == [text]


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
