"""Columns of users' files, their names and values: guesses, numbers, odd values."""

import os
from math import nan

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tables_of import FORMATS, LINKS, as_csv, as_jsonl, prepare

from ncfbench.errors import DataError, UsageError


def parquet(path, columns):
    table = columns if isinstance(columns, pa.Table) else pa.table(columns)
    pq.write_table(table, path)
    return path


def test_times_and_ratings_of_any_type(tmp_path):
    """Nanoseconds beyond 2^53, zones, decimals; a list is refused by name."""
    ids = {"user": [1, 2, 3], "item": [1, 2, 3]}
    items = [{"id": n, "title": "w"} for n in (1, 2, 3)]
    links, named = tmp_path / "r.parquet", {"hold_out": "newest-items", "time_column": "timestamp"}
    for moments in (
        pa.array([2**61, 2**60, 2**59]),
        pa.array([3, 2, 1], pa.timestamp("ns", "Asia/Tokyo")),
        pa.array([3, 2, 1]).cast(pa.decimal128(30, 2)),
    ):
        parquet(links, {**ids, "timestamp": moments})
        assert prepare(tmp_path, links, items, **named)[0].split.tolist() == [2, 0, 0]
    parquet(links, {**ids, "timestamp": pa.array([1, None, 3])})
    with pytest.raises(DataError, match=r"row 2: timestamp is missing\."):
        prepare(tmp_path, links, items, hold_out="newest-items")
    for name in ("timestamp", "rating", "title"):
        bad = {name: [{"a": 1}] * 3}
        parquet(links, {**ids, "timestamp": [1, 2, 3], "rating": [1, 2, 3], **bad})
        titles = parquet(tmp_path / "m.parquet", {"id": [1, 2, 3], "title": ["w"] * 3, **bad})
        with pytest.raises(DataError, match=f"row 1: {name} is of type struct"):
            prepare(tmp_path, links, titles, rating_threshold=1, **named)


def test_a_column_that_only_a_late_row_has(tmp_path):
    links = as_jsonl(
        tmp_path / "r.jsonl",
        [{"user": n, "item": 1} for n in range(150)] + [{"user": 1, "item": 1, "grade": 5}],
    )
    items = as_jsonl(tmp_path / "m.jsonl", [{"id": 1, "title": "w"}])
    with pytest.raises(DataError, match=r"line 1: grade is missing"):
        prepare(tmp_path, links, items, rating_column="grade", rating_threshold=4)
    with pytest.raises(UsageError, match="no such column"):
        prepare(tmp_path, links, items, rating_column="grad", rating_threshold=4)


def test_json_of_which_no_id_can_be_made(tmp_path):
    def prepared(id_):
        items = tmp_path / "m.jsonl"
        items.write_text(f'{{"id": {id_}, "title": "w"}}\n{{"id": 2, "title": "x"}}\n')
        return prepare(tmp_path, [{"user": 1, "item": 2}], items, test_fraction=0.0)

    with pytest.raises(DataError, match="line 1: id is true"):
        prepared("true")
    assert any("rows of m.jsonl without id: 1." in line for line in prepared("NaN")[1])


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
        path = parquet(tmp_path / "m.parquet", table)
        with pytest.raises(DataError, match=message):
            prepare(tmp_path, links, path)


def test_a_pipe_is_refused(tmp_path):
    os.mkfifo(tmp_path / "r.csv")
    with pytest.raises(DataError, match="is a pipe or a device"):
        prepare(tmp_path, tmp_path / "r.csv", tmp_path / "m.csv")


@pytest.mark.parametrize(("threshold", "links"), [(0.7, 3), (0.9, 1), (0.3, 4), (0.1, 5)])
@pytest.mark.parametrize("kind", ["float16", "float32", "float64", "decimal", "text"])
def test_a_threshold_has_the_type_of_the_ratings(tmp_path, kind, threshold, links):
    types = {"float16": pa.float16(), "float32": pa.float32(), "text": pa.string()}
    scores = pa.array([0.1, 0.3, 0.7, 0.7, 0.9]).cast(types.get(kind, pa.float64()))
    if kind == "decimal":
        scores = scores.cast(pa.string()).cast(pa.decimal128(12, 3))
    table = {"user": [1, 2, 3, 4, 5], "item": [1] * 5, "score": scores}
    items = [{"id": n, "title": "w"} for n in (1, 2)]
    options = {"rating_threshold": threshold, "test_fraction": 0.0}
    dataset, _ = prepare(tmp_path, parquet(tmp_path / "r.parquet", table), items, **options)
    assert len(dataset.users) == links


def test_names_decide_between_columns(tmp_path):
    """However many rows fit: most brands are known, and few items; most links fit an ISBN."""
    links = [
        {"user": "AB"[n % 2], "user_id": n % 5, "item_id": n, "product": f"b{n % 5}"}
        for n in range(1, 21)
    ]
    items = [{"item_id": n, "product": f"b{n}", "title": f"t{n}"} for n in range(9)]
    dataset, said = prepare(tmp_path, links, items, test_fraction=0.0)
    assert dataset.manifest["statistics"]["users"] == 5
    assert dataset.manifest["options"]["item_column"] == "item_id"
    assert dataset.manifest["removed"]["links_to_unknown_items"] == 12
    assert "Not used of r.csv: user, product." in said
    assert "Not used of m.csv: product." in said
    items = [{"id": n + 15, "isbn": n, "title": f"t{n}"} for n in range(1, 21)]
    with pytest.raises(DataError, match="several .* item's id: isbn; id.*--id-column NAME"):
        prepare(tmp_path, links, items)


def test_the_id_of_a_row_is_no_item(tmp_path):
    """Though the items' column is given, and has its name."""
    links = [{"id": n, "user_id": n % 5, "item_id": n % 3} for n in range(20)]
    items = [{"id": n, "title": f"t{n}"} for n in range(12)]
    dataset, _ = prepare(tmp_path, links, items, id_column="id", test_fraction=0.0)
    assert dataset.manifest["options"]["item_column"] == "item_id"


@pytest.mark.parametrize(
    ("links", "items", "options", "message"),
    [
        ("user_id,visitor_id,item", "item,title", {}, "user_id; visitor_id.*--user-column NAME"),
        ("user_id,User_ID,item", "item,title", {}, "user_id; User_ID"),
        ("user,item_id,ItemID", "id,title", {}, "item_id; ItemID.*--item-column NAME"),
        ("user,item_id", "id,docid,title", {}, "docid; id.*--id-column NAME"),
        ("user,item_id", "id,docid,title", {"id_column": "id"}, ""),
        ("id,user,item_id", "id,title", {"id_column": "id"}, ""),
        ("user,category_id,item_id", "item_id,category_id,title", {}, ""),
        ("user,category,item_id", "id,category,title", {}, ""),
        ("user,part_id,unit_id", "part_id,unit_id,title", {}, "id of an item.*--item-column NAME"),
        ("user,movie,item_id", "movie,id,title", {}, ""),
        ("user,id", "id,docid,title", {"id_column": "id"}, "the id of an item"),
        ("user,id", "id,docid,title", {"item_column": "id"}, ""),
        ("user,docid,sku", "sku,docid,title", {"item_column": "sku"}, ""),
        ("user,item_id,post_id", "id,title", {}, "item_id; post_id"),
        ("user,item_id,post_id", "id,title", {"item_column": "post_id"}, ""),
        ("user,package", "package,title", {"item_column": "package"}, ""),
        ("user,title", "title,plot", {"item_column": "title"}, ""),
        ("user,title,item_id", "item_id,title", {}, ""),
        ("user,title,item_id", "id,title", {}, ""),
        ("user,movie,movieId", "movie,movieId,title", {}, ""),
        ("user,item_id,key", "key,item_id,title", {"item_column": "key"}, ""),
        ("user,sku", "sku,title", {"item_column": "sku"}, ""),
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
        chosen = dataset.manifest["options"]["item_column"]
        assert chosen == options.get("item_column", links.split(",")[-1])


@pytest.mark.parametrize(
    ("values", "count", "missing"),
    [
        ([0, 1], 3, False),
        ([-1, 1], 3, False),
        (["true", "False"], 3, False),
        (["N", "yes"], 3, False),
        ([True, False], 3, False),
        ([0.0, 1.0], 3, False),
        ([0, 1, None], 4, True),
        ([0.0, 1.0, nan], 4, True),
        ([True, False, None], 4, True),
        (["1", "0", ""], 4, True),
        (["1", "0", " null "], 4, True),
        (["TRUE", "FALSE", "NA"], 4, True),
        (["1", "0", "-"], 4, True),
        ([1, -1, None], 4, True),
        ([1, None], 3, True),
        ([1, 0, -1], 4, False),
        ([0, 2], 0, False),
        ([1, 1], 0, False),
        ([0, None], 0, False),
        ([None, None], 0, False),
        (["a", "b"], 0, False),
        ([1, 0.5], 0, False),
        ([["1"], ["0"]], 0, False),
    ],
)
@pytest.mark.parametrize("form", ["csv", "jsonl", "parquet"])
def test_columns_that_mark_links_are_pointed_at(tmp_path, values, count, missing, form):
    """The advice does what it says, after the gaps are filled as it says."""
    marks = [values[n % len(values)] for n in range(len(LINKS))]
    rows = [row | {"clicked": mark} for row, mark in zip(LINKS, marks, strict=True)]
    _, said = prepare(tmp_path, FORMATS[form](tmp_path / f"r.{form}", rows))
    assert f"Not used of r.{form}: rating, timestamp, clicked." in said
    warnings = [line for line in said if "--rating-column clicked --rating-threshold 1" in line]
    assert len(warnings) == (count > 0)
    if count:
        assert f"{count} rows where it is less{' or missing' * missing} count" in warnings[0]
        assert ("write 0 where it is missing, and use" in warnings[0]) == missing
        gaps = {None, "", " null ", "NA", "-"}
        for row, mark in zip(rows, marks, strict=True):
            row["clicked"] = 0 if mark != mark or mark in gaps else mark
        options = {"rating_column": "clicked", "rating_threshold": 1, "test_fraction": 0.0}
        dataset, said = prepare(tmp_path, as_csv(tmp_path / "r.csv", rows), **options)
        assert dataset.manifest["removed"]["links_below_threshold"] == count
        assert not any("clicked of" in line for line in said)


def test_a_column_that_cannot_be_read_marks_nothing(tmp_path):
    """Unless it is used: here it holds objects."""
    links = as_jsonl(tmp_path / "r.jsonl", [row | {"more": {"a": 1}} for row in LINKS])
    _, said = prepare(tmp_path, links)
    assert "Not used of r.jsonl: rating, timestamp, more." in said
