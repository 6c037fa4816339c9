"""Columns of users' files, their names and values: guesses, numbers, times, odd values."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tables_of import LINKS, as_csv, as_jsonl, prepare

from ncfbench.data.sources import prepare_command
from ncfbench.data.table import read_table
from ncfbench.data.values import times
from ncfbench.errors import DataError, UsageError


def test_times_and_ratings_of_any_type(tmp_path: Path) -> None:
    """Nanoseconds beyond 2^53, zones, decimals; a list is refused by name."""
    ids = {"user": [1, 2, 3], "item": [1, 2, 3]}
    items = [{"id": n, "title": "w"} for n in (1, 2, 3)]
    newest = []
    for moments in (
        pa.array([2**61, 2**60, 2**59]),
        pa.array([3, 2, 1], pa.timestamp("ns", "Asia/Tokyo")),
        pa.array([3, 2, 1]).cast(pa.decimal128(30, 2)),
    ):
        pq.write_table(pa.table({**ids, "timestamp": moments}), tmp_path / "r.parquet")
        dataset, _ = prepare(tmp_path, tmp_path / "r.parquet", items, hold_out="newest-items")
        newest.append(dataset.split.tolist())
    assert newest == [[2, 0, 0]] * 3
    pq.write_table(pa.table({**ids, "timestamp": pa.array([1, None, 3])}), tmp_path / "r.parquet")
    with pytest.raises(DataError, match=r"row 2: timestamp is missing\."):
        prepare(tmp_path, tmp_path / "r.parquet", items, hold_out="newest-items")
    for name in ("timestamp", "rating", "title"):
        table = {**ids, "timestamp": [1, 2, 3], "rating": [1, 2, 3]} | {name: [{"a": 1}] * 3}
        pq.write_table(pa.table(table), tmp_path / "r.parquet")
        pq.write_table(
            pa.table({"id": [1, 2, 3], "title": ["w"] * 3} | {name: [{"a": 1}] * 3}),
            tmp_path / "m.parquet",
        )
        with pytest.raises(DataError, match=f"row 1: {name} is of type struct"):
            prepare(
                tmp_path,
                tmp_path / "r.parquet",
                tmp_path / "m.parquet",
                hold_out="newest-items",
                rating_threshold=1,
            )


def test_items_without_a_link_are_not_the_newest(tmp_path: Path) -> None:
    links = [{"user": n, "item": n, "time": n} for n in range(6)]
    items = [{"id": n, "title": "w"} for n in range(10)]
    dataset, _ = prepare(
        tmp_path, links, items, hold_out="newest-items", min_item_links=0, test_fraction=0.2
    )
    assert dataset.split.tolist() == [0, 0, 0, 0, 2, 2, 0, 0, 0, 0]


def test_each_file_has_its_own_delimiter(tmp_path: Path) -> None:
    one, _ = prepare(tmp_path, as_csv(tmp_path / "r.csv", LINKS, " "), delimiter=" ")
    other, _ = prepare(tmp_path)
    assert one.fingerprint == other.fingerprint
    assert prepare_command("x", one.manifest).endswith(
        "--links r.csv --items m.csv --delimiter ' '"
    )


def test_a_column_that_only_a_late_row_has(tmp_path: Path) -> None:
    links = as_jsonl(
        tmp_path / "r.jsonl",
        [{"user": n, "item": 1} for n in range(150)] + [{"user": 1, "item": 1, "grade": 5}],
    )
    items = as_jsonl(tmp_path / "m.jsonl", [{"id": 1, "title": "w"}])
    with pytest.raises(DataError, match=r"line 1: grade is missing"):
        prepare(
            tmp_path, links, items, rating_column="grade", rating_threshold=4, test_fraction=0.0
        )
    with pytest.raises(UsageError, match="no such column"):
        prepare(tmp_path, links, items, rating_column="grad", rating_threshold=4)


@pytest.mark.parametrize(("id_", "message"), [("true", "line 1: id is true"), ("NaN", "")])
def test_json_of_which_no_id_can_be_made(tmp_path: Path, id_: str, message: str) -> None:
    items = tmp_path / "m.jsonl"
    items.write_text(f'{{"id": {id_}, "title": "w"}}\n{{"id": 2, "title": "x"}}\n')
    links = [{"user": 1, "item": 2}]
    if message:
        with pytest.raises(DataError, match=message):
            prepare(tmp_path, links, items)
    else:
        _, said = prepare(tmp_path, links, items, test_fraction=0.0)
        assert any("rows of m.jsonl without id: 1." in line for line in said)


def test_tables_that_parquet_can_hold(tmp_path: Path) -> None:
    links = [{"user": 1, "item": 1}]
    path = tmp_path / "m.parquet"
    invalid = pa.StringArray.from_buffers(
        1, pa.py_buffer(np.array([0, 1], np.int32)), pa.py_buffer(b"\xff")
    )
    for table, message in (
        (pa.table({"id": [1], "title": invalid}), "m.parquet: title is damaged: .*UTF"),
        (
            pa.table([[1], [1], ["w"]], names=["id", "id", "title"]),
            "the column 'id' is named twice",
        ),
        (pa.table({"id": pa.array([None], pa.string()), "title": ["w"]}), "holds no item with id"),
    ):
        pq.write_table(table, path)
        with pytest.raises(DataError, match=message):
            prepare(tmp_path, links, path)


def test_a_pipe_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "r.csv")
    with pytest.raises(DataError, match="is a pipe or a device"):
        prepare(tmp_path, tmp_path / "r.csv", tmp_path / "m.csv")


@pytest.mark.parametrize(("threshold", "links"), [(0.7, 3), (0.9, 1), (0.3, 4), (0.1, 5)])
@pytest.mark.parametrize("kind", ["float16", "float32", "float64", "decimal", "text"])
def test_a_threshold_has_the_type_of_the_ratings(
    tmp_path: Path, kind: str, threshold: float, links: int
) -> None:
    scores = pa.array([0.1, 0.3, 0.7, 0.7, 0.9])
    types = {"float16": pa.float16(), "float32": pa.float32(), "text": pa.string()}
    if kind == "decimal":
        scores = scores.cast(pa.string()).cast(pa.decimal128(12, 3))
    else:
        scores = scores.cast(types.get(kind, pa.float64()))
    table = {"user": [1, 2, 3, 4, 5], "item": [1] * 5, "score": scores}
    pq.write_table(pa.table(table), tmp_path / "r.parquet")
    items = [{"id": n, "title": "w"} for n in (1, 2)]
    dataset, _ = prepare(
        tmp_path, tmp_path / "r.parquet", items, rating_threshold=threshold, test_fraction=0.0
    )
    assert len(dataset.users) == links


def times_of(folder: Path, *values: object) -> np.ndarray:
    path = as_csv(folder / "t.csv", [{"time": value} for value in values])
    return times(read_table(path)["time"])


@pytest.mark.parametrize(
    ("values", "order"),
    [
        (["20240131"] * 66_000 + ["2019-05-01"], [66_000, 0]),
        (["2024-01-31T10:00:00+02:00", "2024-01-31 09:00:00 UTC", "2024-01-31"], [2, 0, 1]),
        (["1.7e9", "1600000000"], [1, 0]),
        (["20240131", "20190501"], [1, 0]),
        ([" 1600000002 ", "1600000001", " 1600000000"], [2, 1, 0]),
        (["3", "700000000", "1", "5000000000000"], [2, 0, 1, 3]),
    ],
)
def test_times_are_of_one_form(tmp_path: Path, values: list[str], order: list[int]) -> None:
    found = times_of(tmp_path, *values)
    assert np.argsort(found[order], kind="stable").tolist() == list(range(len(order)))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([1600000000] * 70_000 + [1600000000000], "line 70002: .*milliseconds.* on line 2 seconds"),
        ([1600000000, "2019-05-01"], "line 3: .* is a date, and '1600000000' on line 2 a number"),
        (["1999", "2001-05-01"], "line 3: .* is a date, and '1999' on line 2 a number"),
        ([20240131, 1600000000], "line 3: time '1600000000' is seconds, and '20240131' on line 2"),
        ([0, 1600000000, 1.6e15] * 9, "line 4: .*microseconds"),
        ([20240131, 20240131120000], "line 3: .*a date with seconds"),
        (["31/01/2024"], "line 2: time '31/01/2024' is not a time"),
        ([1, "inf"], "line 3: time 'inf' is not a time"),
        (["1_600", 3], "line 2: time '1_600' is not a time"),
        ([" 1600000000", 1600000000000], "line 3: .*milliseconds"),
    ],
)
def test_times_of_two_forms_name_both_rows(
    tmp_path: Path, values: list[object], message: str
) -> None:
    with pytest.raises(DataError, match=message):
        times_of(tmp_path, *values)


def test_equal_times_are_told(tmp_path: Path) -> None:
    links = [row | {"timestamp": 5} for row in LINKS]
    _, said = prepare(tmp_path, links, hold_out="newest-items")
    assert any("all times timestamp of r.csv are equal" in line for line in said)


def test_values_decide_between_columns(tmp_path: Path) -> None:
    """Names alone would give three users, and other items' texts."""
    links = [{"user": "AB"[n % 2], "user_id": n % 5, "item_id": n} for n in range(1, 21)]
    items = [{"id": n, "docid": n + 5, "title": f"t{n}"} for n in range(1, 21)]
    dataset, said = prepare(tmp_path, links, items, test_fraction=0.0)
    assert dataset.manifest["statistics"]["users"] == 5
    assert dataset.manifest["options"]["id_column"] == "id"
    assert dataset.manifest["removed"] == {}
    assert "Not used of r.csv: user." in said
    assert "Not used of m.csv: docid." in said


def test_the_id_of_a_row_is_no_item(tmp_path: Path) -> None:
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
        ("user,item_id,ItemID", "id,title", {}, "item_id and id; ItemID and id"),
        ("user,item_id", "id,docid,title", {}, "item_id and docid.*--item-column item_id"),
        ("user,item_id", "id,docid,title", {"id_column": "id"}, ""),
        ("id,user,item_id", "id,title", {"id_column": "id"}, "item_id and id; id and id"),
        ("user,id", "id,docid,title", {"id_column": "id"}, ""),
        ("user,docid,sku", "sku,docid,title", {"id_column": "sku"}, ""),
        ("user,item_id,post_id", "id,title", {}, "item_id and id; post_id and id"),
        ("user,item_id,post_id", "id,title", {"item_column": "post_id"}, ""),
        ("user,package", "package,title", {}, ""),
        ("user,title", "title,plot", {}, ""),
        ("user,title,item_id", "item_id,title", {}, ""),
        ("user,title,item_id", "id,title", {}, ""),
        ("user,movie,movieId", "movie,movieId,title", {}, ""),
        ("user,item_id,key", "key,item_id,title", {"item_column": "key"}, ""),
        ("user,sku", "sku,title", {"item_column": "sku"}, ""),
        ("user_id,asin,parent_asin", "parent_asin,title", {}, ""),
        ("userId,movieId", "movieId,title,words", {}, ""),
    ],
)
def test_columns_that_fit_as_well_are_asked_for(
    tmp_path: Path, links: str, items: str, options: dict[str, str], message: str
) -> None:
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
    ("values", "count"),
    [
        ([0, 1], 3),
        ([-1, 1], 3),
        (["true", "False"], 3),
        (["N", "yes"], 3),
        ([0, 2], 0),
        ([1, 1], 0),
        (["a", "b"], 0),
    ],
)
def test_columns_that_mark_links_are_pointed_at(
    tmp_path: Path, values: list[object], count: int
) -> None:
    links = [row | {"clicked": values[n % 2]} for n, row in enumerate(LINKS)]
    _, said = prepare(tmp_path, links)
    assert "Not used of r.csv: rating, timestamp, clicked." in said
    warnings = [line for line in said if "--rating-column clicked --rating-threshold 1" in line]
    assert len(warnings) == (count > 0)
    if count:
        assert f"{count} rows" in warnings[0]
        options = {"rating_column": "clicked", "rating_threshold": 1, "test_fraction": 0.0}
        dataset, said = prepare(tmp_path, links, **options)
        assert dataset.manifest["removed"]["links_below_threshold"] == count
        assert not any("clicked of" in line for line in said)
