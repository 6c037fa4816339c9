"""Columns of users' files, their names and values: guesses, numbers, times, odd values."""

import os
from math import nan

import numpy as np
import pyarrow as pa
import pytest
from support.tables import FORMATS, LINKS, as_csv, as_jsonl, as_parquet, ids_of, prepare

from ncfbench.data.table import read_table
from ncfbench.errors import DataError, NcfbenchError


def column_of(folder, values):
    return read_table(as_parquet(folder / "r.parquet", pa.table({"x": values})))["x"]


def test_times_and_ratings_of_any_type(tmp_path):
    """Nanoseconds beyond 2^53, zones, decimals; a structure is refused."""
    for times in (
        pa.array([2**61, 2**60, 2**59]),
        pa.array([3, 2, 1], pa.timestamp("ns", "Asia/Tokyo")),
        pa.array([3, 2, 1]).cast(pa.decimal128(30, 2)),
    ):
        column = column_of(tmp_path, times)
        assert np.argsort(column.times(is_named=True)).tolist() == [2, 1, 0]
    with pytest.raises(DataError, match=r"row 2: x is missing\."):
        column_of(tmp_path, [1, None, 3]).times()
    column = column_of(tmp_path, [{"a": 1}] * 3)
    for read in (column.times, column.numbers, lambda: list(column.texts(np.arange(3)))):
        with pytest.raises(DataError, match="row 1: x is of type struct"):
            read()


def test_atomic_files_of_recbole(tmp_path):
    """Tabs, and a type behind the name of each column."""
    links, items = tmp_path / "x.inter", tmp_path / "x.item"
    links.write_text("user_id:token\titem_id:token\trating:float\n1\ta\t5\n2\tb\t3\n")
    items.write_text("item_id:token\tmovie_title:token_seq\na\tone\nb\ttwo words\n")
    options = {"rating_threshold": 4, "text_columns": ("movie_title",)}
    dataset, _ = prepare(tmp_path, links, items, **options)
    assert (ids_of(dataset.user_ids), ids_of(dataset.item_ids)) == (["1"], ["a"])
    links.write_text("user:name\tuser:id\titem_id\nx\t1\ta\nx\t2\tb\n")
    dataset, _ = prepare(tmp_path, links, items)
    assert ids_of(dataset.user_ids) == ["1", "2"], "other colons are part of a name"


def test_a_column_that_only_a_late_row_has(tmp_path):
    rows = [{"user": n, "item": 1} for n in range(150)]
    links = as_jsonl(tmp_path / "r.jsonl", [*rows, {"user": 1, "item": 1, "grade": 5}])
    items = as_jsonl(tmp_path / "m.jsonl", [{"id": 1, "title": "w"}])
    with pytest.raises(DataError, match=r"line 1: grade is missing"):
        prepare(tmp_path, links, items, rating_column="grade", rating_threshold=4)


def test_tables_that_parquet_can_hold(tmp_path):
    links = [{"user": 1, "item": 1}]
    invalid = pa.StringArray.from_buffers(
        1, pa.py_buffer(np.array([0, 1], np.int32)), pa.py_buffer(b"\xff")
    )
    for table, message in (
        (pa.table({"id": [1], "title": invalid}), "m.parquet: title is damaged: .*UTF"),
        (pa.table([[1], [1], ["w"]], names=["id", "id", "title"]), "column 'id' is named twice"),
        (pa.table({"id": pa.array([None], pa.string()), "title": ["w"]}), "holds no item with id"),
    ):
        path = as_parquet(tmp_path / "m.parquet", table)
        with pytest.raises(DataError, match=message):
            prepare(tmp_path, links, path)


def test_a_pipe_is_refused(tmp_path):
    os.mkfifo(tmp_path / "r.csv")
    with pytest.raises(DataError, match="is a pipe or a device"):
        prepare(tmp_path, tmp_path / "r.csv", tmp_path / "m.csv")


@pytest.mark.parametrize(("threshold", "count"), [(0.7, 3), (0.9, 1), (0.3, 4), (0.1, 5)])
@pytest.mark.parametrize("kind", ["float16", "float32", "float64", "decimal128", "string"])
def test_a_threshold_has_the_type_of_the_ratings(tmp_path, kind, threshold, count):
    scores = pa.array([0.1, 0.3, 0.7, 0.7, 0.9])
    if kind == "decimal128":
        scores = scores.cast(pa.string()).cast(pa.decimal128(12, 3))
    else:
        scores = scores.cast(getattr(pa, kind)())
    assert column_of(tmp_path, scores).at_least(threshold).sum() == count


@pytest.mark.parametrize(
    ("links", "items", "options", "message"),
    [
        ("user_id,visitor_id,item", "item,title", {}, "user_id; visitor_id.*--user-column NAME"),
        ("user,item_id,ItemID", "id,title", {}, "item_id; ItemID.*--item-column NAME"),
        ("user,item_id", "id,docid,title", {}, "docid; id.*--id-column NAME"),
        ("user,item_id", "id,docid,title", {"id_column": "id"}, ""),
        ("user,category_id,item_id", "item_id,category_id,title", {}, ""),
        ("user,part_id,unit_id", "part_id,unit_id,title", {}, "id of an item.*--item-column NAME"),
        ("user,movie,item_id", "movie,id,title", {}, ""),
        ("user_id,user,product,item_id", "item_id,product,title", {}, ""),
        ("user,id", "id,docid,title", {"id_column": "id"}, "the id of an item"),
        ("user,id", "id,docid,title", {"item_column": "id"}, ""),
        ("user,docid,sku", "sku,docid,title", {"item_column": "sku"}, ""),
        ("user,title", "title,plot", {"item_column": "title"}, ""),
        ("user,title,item_id", "item_id,title", {}, ""),
        ("user,movie,movieId", "movie,movieId,title", {}, ""),
        ("user_id,asin,parent_asin", "parent_asin,title", {}, "asin; parent_asin"),
        ("userId,movieId", "movieId,title,words", {}, ""),
    ],
)
def test_columns_without_one_usual_name_are_asked_for(tmp_path, links, items, options, message):
    """Every column holds the same numbers, in another order."""
    one, two = (
        [{name: (n * (3 + k)) % 7 for k, name in enumerate(header.split(","))} for n in range(7)]
        for header in (links, items)
    )
    if message:
        with pytest.raises(DataError, match=message):
            prepare(tmp_path, one, two, **options)
    else:
        dataset, said = prepare(tmp_path, one, two, **options)
        assert ", text" in said[1]
        chosen, columns = dataset.manifest["options"], links.split(",")
        assert chosen["user_column"] == columns[0]
        assert chosen["item_column"] == options.get("item_column", columns[-1])


MARKS = {
    (3, ""): ([0, 1], [-1, 1], ["true", "False"], ["N", "yes"], [True, False], [0.0, 1.0]),
    (3, " or missing"): ([1, None],),
    (4, ""): ([1, 0, -1],),
    (4, " or missing"): (
        *([0, 1, None], [0.0, 1.0, nan], [True, False, None], [1, -1, None]),
        *(["1", "0", ""], ["1", "0", " null "], ["TRUE", "FALSE", "NA"], ["1", "0", "-"]),
    ),
    (0, ""): (
        [0, 2],
        [1, 1],
        [0, None],
        [None, None],
        ["a", "b"],
        [1, 0.5],
        [["1"], ["0"]],
        [{"a": 1}],
    ),
}
"""Values in turn, by the rows of six that the advice leaves out, and whether some are missing."""


@pytest.mark.parametrize(("count", "missing"), MARKS)
@pytest.mark.parametrize("form", ["csv", "jsonl", "parquet"])
def test_columns_that_mark_links_are_pointed_at(tmp_path, count, missing, form):
    """The advice does what it says, after the gaps are filled as it says."""
    options = {"rating_column": "clicked", "rating_threshold": 1, "test_fraction": 0.0}
    for values in MARKS[count, missing]:
        marks = [values[n % len(values)] for n in range(len(LINKS))]
        rows = [row | {"clicked": mark} for row, mark in zip(LINKS, marks, strict=True)]
        _, said = prepare(tmp_path, FORMATS[form](tmp_path / f"r.{form}", rows))
        assert f"Not used of r.{form}: rating, timestamp, clicked." in said
        warnings = [line for line in said if "--rating-column clicked --rating-threshold 1" in line]
        assert len(warnings) == (count > 0), values
        if not warnings:
            continue
        assert f"{count} rows where it is less{missing} count" in warnings[0]
        assert ("write 0 where it is missing, and use" in warnings[0]) == bool(missing)
        gaps = {None, "", " null ", "NA", "-"}
        filled = [
            row | {"clicked": 0 if mark != mark or mark in gaps else mark}
            for row, mark in zip(rows, marks, strict=True)
        ]
        dataset, said = prepare(tmp_path, filled, **options)
        assert dataset.manifest["removed"]["links_below_threshold"] == count
        assert not any("clicked of" in line for line in said)


# --- times: their forms, and which column orders links


def times_of(folder, *values, **more):
    path = as_csv(folder / "t.csv", [{"time": value} for value in values])
    return read_table(path)["time"].times(**more)


@pytest.mark.parametrize(
    ("values", "order"),
    [
        (["20240131"] * 66_000 + ["2019-05-01"], [66_000, 0]),
        (["2024-01-31T10:00:00+02:00", "2024-01-31 09:00:00 UTC", "2024-01-31"], [2, 0, 1]),
        (["1.7e9", "1600000000"], [1, 0]),
        ([" 1600000002 ", "1600000001", " 1600000000"], [2, 1, 0]),
        (["43846.8", "43840", "43850.25"], [1, 0, 2]),
        (["2019", "1999", "2003"], [1, 2, 0]),
        ([10**12 + 50, 10**12 + 10, 10**12 + 20], [1, 2, 0]),
    ],
)
def test_times_are_of_one_form(tmp_path, values, order):
    result = times_of(tmp_path, *values)
    assert np.argsort(result[order], kind="stable").tolist() == list(range(len(order)))


NO_TIMES = "19:34:49", "0 days 19:34:49", "1 day, 2:03:04", "PT19H34M", "31/01/2024", "1_600"


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([1600000000] * 70_000 + [1600000000000], "line 70002: .*milliseconds.* on line 2 seconds"),
        ([1600000000, "2019-05-01"], "line 3: .* is a date, and '1600000000' on line 2 a number"),
        ([20240131, 1600000000], "line 3: time '1600000000' is seconds, and '20240131' on line 2"),
        ([1600000000, 0, 1.6e15] * 9, "line 3: time '0' is of no known form, .* line 2 seconds"),
        ([*[1600000000] * 99, 43846.8], "line 101: .*'43846.8' is a spreadsheet's days"),
        (["2020-01-16", "43846.8"], "line 3: .*'43846.8' is a number, and '2020-01-16' on line 2"),
        ([43846, 2019], "line 3: time '2019' is a year, and '43846' on line 2 a spreadsheet's"),
        ([12, 2000, 300], "line 2: time '12' has no known form.* --time-column time"),
        (["true", "false"], "line 2: time 'true' has no known form"),
        ([1.3e17] * 3, "line 2: time '1.3e.17' has no known form"),
        ([20240131, 20240131120000], "line 3: .*a date with seconds"),
        ([1, "inf"], "line 3: time 'inf' is not a time"),
        ([1600000000, " "], "line 3: time ' ' is not a time"),
        *(([text, "05:08"], f"line 2: time '{text}' is not a time") for text in NO_TIMES),
    ],
)
def test_times_of_two_forms_name_both_rows(tmp_path, values, message):
    with pytest.raises(DataError, match=message):
        times_of(tmp_path, *values)


def test_numbers_of_a_named_column_may_have_any_form(tmp_path):
    """Sequence numbers, or milliseconds since some start; but two known forms are refused."""
    numbers = [3, 2000, 5 * 10**12, 0]
    assert times_of(tmp_path, *numbers, is_named=True).tolist() == numbers
    with pytest.raises(DataError, match="line 3: .*is seconds, .* a spreadsheet's days"):
        times_of(tmp_path, 43846.5, 1.6e9, is_named=True)


@pytest.mark.parametrize("kind", [pa.time32("s"), pa.time64("ns"), pa.duration("s")])
def test_times_of_day_and_durations_are_no_times(tmp_path, kind):
    with pytest.raises(DataError, match=r"row 1: x is of type .*\[.*which does not say when"):
        column_of(tmp_path, pa.array([3, None], kind)).times()


@pytest.mark.parametrize(
    ("columns", "chosen"),
    [
        ({"hour": "09:30", "date": "2020-01-16", "timestamp": 1600000000}, "timestamp"),
        ({"date": "2020-01-16", "created_at": "2020-01-16 09:30"}, "created_at"),
        ({"date": "2020-01-16", "time": 12}, "time '12' has no known form"),
        ({"date": "2020-01-16", "time": "09:30"}, "time '09:30' is not a time"),
        ({"hour": "09:30"}, "needs a column of times"),
    ],
)
def test_what_orders_links_is_chosen_by_what_it_says(tmp_path, columns, chosen):
    links = [{"user": n, "item": n, **columns} for n in range(4)]
    items = [{"id": n, "title": "w"} for n in range(4)]
    if " " in chosen:
        with pytest.raises(NcfbenchError, match=chosen):
            prepare(tmp_path, links, items, hold_out="newest-items")
    else:
        _, said = prepare(tmp_path, links, items, hold_out="newest-items")
        assert f"times {chosen}, every" in said[0]
