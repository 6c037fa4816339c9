"""Columns of users' files, their names and values: guesses, numbers, times, odd values."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tables_of import ITEMS, LINKS, as_csv, as_jsonl, prepare

from ncfbench.data.sources import prepare_command
from ncfbench.errors import DataError, UsageError


@pytest.mark.parametrize(
    ("columns_of_links", "columns_of_items", "expected"),
    [
        (["user", "sku"], ["sku", "title"], {"item_column": "sku"}),
        (["user_id", "asin", "parent_asin"], ["parent_asin", "title"], {}),
        (["user", "item"], ["id", "movie", "genres"], {}),
        (["userId", "movieId"], ["movieId", "title", "words"], {}),
    ],
)
def test_the_right_columns_are_guessed(
    tmp_path: Path,
    columns_of_links: list[str],
    columns_of_items: list[str],
    expected: dict[str, str],
) -> None:
    shared = columns_of_items[0]
    rows = [
        {
            name: f"{'x' if name == shared or name in ('sku', 'item') else 'w'}{n}"
            for name in columns_of_links
        }
        for n in range(5)
    ]
    items = [
        {name: f"x{n}" if name == shared else f"text{n}" for name in columns_of_items}
        for n in range(5)
    ]
    dataset, said = prepare(
        tmp_path,
        as_csv(tmp_path / "r.csv", rows),
        as_csv(tmp_path / "m.csv", items),
        test_fraction=0.2,
        **expected,
    )
    assert dataset.manifest["statistics"]["links"] == 5
    assert f"id {shared}, text" in said[1]


def test_times_and_ratings_of_any_type(tmp_path: Path) -> None:
    """Nanoseconds beyond 2^53, zones, decimals; a list is refused by name."""
    ids = {"user": [1, 2, 3], "item": [1, 2, 3]}
    items = as_csv(tmp_path / "m.csv", [{"id": n, "title": "w"} for n in (1, 2, 3)])
    newest = []
    for times in (
        pa.array([2**61, 2**60, 2**59]),
        pa.array([3, 2, 1], pa.timestamp("ns", "Asia/Tokyo")),
        pa.array([3, 2, 1]).cast(pa.decimal128(30, 2)),
    ):
        pq.write_table(pa.table({**ids, "timestamp": times}), tmp_path / "r.parquet")
        dataset, _ = prepare(tmp_path, tmp_path / "r.parquet", items, split="time")
        newest.append(dataset.split.tolist())
    assert newest == [[2, 0, 0]] * 3
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
                split="time",
                rating_threshold=1,
            )


def test_dates_and_numbers_in_one_column_are_refused(tmp_path: Path) -> None:
    links = as_csv(
        tmp_path / "r.csv",
        [{"user": 1, "item": 1, "time": "1999"}, {"user": 1, "item": 2, "time": "2001-05-01"}],
    )
    items = as_csv(tmp_path / "m.csv", [{"id": n, "title": "w"} for n in (1, 2)])
    with pytest.raises(DataError, match=r"r.csv, line 2: time '1999' is not a time"):
        prepare(tmp_path, links, items, split="time")


def test_items_without_a_link_are_not_the_newest(tmp_path: Path) -> None:
    links = as_csv(tmp_path / "r.csv", [{"user": n, "item": n, "time": n} for n in range(6)])
    items = as_csv(tmp_path / "m.csv", [{"id": n, "title": "w"} for n in range(10)])
    dataset, _ = prepare(tmp_path, links, items, split="time", min_item_links=0, test_fraction=0.2)
    assert dataset.split.tolist() == [0, 0, 0, 0, 2, 2, 0, 0, 0, 0]


def test_each_file_has_its_own_delimiter(tmp_path: Path) -> None:
    links, items = as_csv(tmp_path / "r.csv", LINKS, " "), as_csv(tmp_path / "m.csv", ITEMS)
    one, _ = prepare(tmp_path, links, items, delimiter=" ")
    other, _ = prepare(tmp_path, as_csv(tmp_path / "r.csv", LINKS), items)
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
    with pytest.raises(DataError, match=r"line 1: grade '' is not a number"):
        prepare(
            tmp_path, links, items, rating_column="grade", rating_threshold=4, test_fraction=0.0
        )
    with pytest.raises(UsageError, match="no such column"):
        prepare(tmp_path, links, items, rating_column="grad", rating_threshold=4)


NASTY_JSON = {
    "half a pair": (b'{"id": 1, "title": "cut \\ud83d"}', ""),
    "not a number": (b'{"id": NaN, "title": "w"}', "without id"),
    "nested": (
        b'{"id": 1, "title": ' + b"[" * 900 + b"]" * 900 + b"}",
        "line 1: title has lists in lists",
    ),
    "true": (b'{"id": true, "title": "w"}', "line 1: id is true"),
}


@pytest.mark.parametrize("name", NASTY_JSON)
def test_values_that_json_can_have(tmp_path: Path, name: str) -> None:
    text, message = NASTY_JSON[name]
    (tmp_path / "m.jsonl").write_bytes(text + b'\n{"id": 2, "title": "x"}\n')
    links = as_csv(tmp_path / "r.csv", [{"user": 1, "item": 1}, {"user": 1, "item": 2}])
    if message.startswith("line"):
        with pytest.raises(DataError, match=message):
            prepare(tmp_path, links, tmp_path / "m.jsonl")
    else:
        _, said = prepare(tmp_path, links, tmp_path / "m.jsonl", test_fraction=0.0)
        assert message in " ".join(said)


def test_tables_that_parquet_can_hold(tmp_path: Path) -> None:
    links = as_csv(tmp_path / "r.csv", [{"user": 1, "item": 1}])
    path = tmp_path / "m.parquet"
    invalid = pa.StringArray.from_buffers(
        1, pa.py_buffer(np.array([0, 1], np.int32)), pa.py_buffer(b"\xff")
    )
    for table, message in (
        (pa.table({"id": [1], "title": invalid}), "m.parquet, after row 0: .*UTF"),
        (
            pa.table([[1], [1], ["w"]], names=["id", "id", "title"]),
            "the column 'id' is named twice",
        ),
        (pa.table({"id": pa.array([None], pa.string()), "title": ["w"]}), "holds no item with id"),
        (pa.table({"id": ["x" * (2**24 + 1)], "title": ["w"]}), "row 1: longer than 16 MiB"),
    ):
        pq.write_table(table, path)
        with pytest.raises(DataError, match=message):
            prepare(tmp_path, links, path)


def test_a_pipe_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "r.csv")
    with pytest.raises(DataError, match="is a pipe or a device"):
        prepare(tmp_path, tmp_path / "r.csv", tmp_path / "m.csv")


def test_an_encoding_without_all_characters(tmp_path: Path) -> None:
    items = as_csv(tmp_path / "m.csv", ITEMS)
    (tmp_path / "r.csv").write_bytes(b"user,item\n1,5\n2,caf\x81\n")
    with pytest.raises(DataError, match=r"r.csv, line 3: byte 0x81 is not valid cp1252"):
        prepare(tmp_path, tmp_path / "r.csv", items, encoding="cp1252")
