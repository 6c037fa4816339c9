"""Columns of users' files, their names and values: guesses, numbers, times, odd values."""

import os
from datetime import UTC, datetime
from itertools import product
from math import nan

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tables_of import FORMATS, LINKS, as_csv, as_jsonl, as_parquet, ids_of, prepare

from ncfbench.data.sources import prepare_command
from ncfbench.data.table import read_table
from ncfbench.data.values import times
from ncfbench.errors import DataError, NcfbenchError, UsageError


def test_times_and_ratings_of_any_type(tmp_path):
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
        named = {"hold_out": "newest-items", "time_column": "timestamp"}
        dataset, _ = prepare(tmp_path, tmp_path / "r.parquet", items, **named)
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
                time_column="timestamp",
                rating_threshold=1,
            )


def test_a_column_that_only_a_late_row_has(tmp_path):
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
def test_json_of_which_no_id_can_be_made(tmp_path, id_, message):
    items = tmp_path / "m.jsonl"
    items.write_text(f'{{"id": {id_}, "title": "w"}}\n{{"id": 2, "title": "x"}}\n')
    links = [{"user": 1, "item": 2}]
    if message:
        with pytest.raises(DataError, match=message):
            prepare(tmp_path, links, items)
    else:
        _, said = prepare(tmp_path, links, items, test_fraction=0.0)
        assert any("rows of m.jsonl without id: 1." in line for line in said)


def test_tables_that_parquet_can_hold(tmp_path):
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


def test_a_pipe_is_refused(tmp_path):
    os.mkfifo(tmp_path / "r.csv")
    with pytest.raises(DataError, match="is a pipe or a device"):
        prepare(tmp_path, tmp_path / "r.csv", tmp_path / "m.csv")


@pytest.mark.parametrize(("threshold", "links"), [(0.7, 3), (0.9, 1), (0.3, 4), (0.1, 5)])
@pytest.mark.parametrize("kind", ["float16", "float32", "float64", "decimal", "text"])
def test_a_threshold_has_the_type_of_the_ratings(tmp_path, kind, threshold, links):
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


def times_of(folder, *values):
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
        (["43846.8", "43840", "43850.25"], [1, 0, 2]),
        (["2019", "1999", "2003"], [1, 2, 0]),
    ],
)
def test_times_are_of_one_form(tmp_path, values, order):
    found = times_of(tmp_path, *values)
    assert np.argsort(found[order], kind="stable").tolist() == list(range(len(order)))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([1600000000] * 70_000 + [1600000000000], "line 70002: .*milliseconds.* on line 2 seconds"),
        ([1600000000, "2019-05-01"], "line 3: .* is a date, and '1600000000' on line 2 a number"),
        (["1999", "2001-05-01"], "line 3: .* is a date, and '1999' on line 2 a number"),
        ([20240131, 1600000000], "line 3: time '1600000000' is seconds, and '20240131' on line 2"),
        (
            [1600000000, 0, 1.6e15] * 9,
            "line 3: time '0' is of no known form, and .* line 2 seconds",
        ),
        ([*[1600000000] * 99, -1], "line 101: time '-1' is of no known form"),
        ([*[1600000000] * 99, 43846.8], "line 101: .*'43846.8' is a spreadsheet's days"),
        ([43846.8, *[1600000000] * 99], "line 3: .*is seconds, .* on line 2 a spreadsheet's days"),
        (["2020-01-16", "43846.8"], "line 3: .*'43846.8' is a number, and '2020-01-16' on line 2"),
        ([43846, 2019], "line 3: time '2019' is a year, and '43846' on line 2 a spreadsheet's"),
        ([1600000000, 12], "line 3: time '12' is of no known form"),
        ([12, 2000, 300], "line 2: time '12' has no known form.* --time-column time"),
        ([1, 0], "line 2: time '1' has no known form"),
        (["true", "false"], "line 2: time 'true' has no known form"),
        ([1.3e17] * 3, "line 2: time '1.3e.17' has no known form"),
        (["19:34:49", "05:08"], "t.csv: time is a time of day, which does not say when"),
        (["9:30", "", "23:59:59.25"], "t.csv: time is a time of day"),
        (["19:34:49", "31:05"], "line 2: time '19:34:49' is not a time"),
        (["0 days 19:34:49"], "line 2: time '0 days 19:34:49' is not a time"),
        (["1 day, 2:03:04"], "line 2: time '1 day, 2:03:04' is not a time"),
        (["PT19H34M"], "line 2: time 'PT19H34M' is not a time"),
        ([20240131, 20240131120000], "line 3: .*a date with seconds"),
        (["31/01/2024"], "line 2: time '31/01/2024' is not a time"),
        ([1, "inf"], "line 3: time 'inf' is not a time"),
        (["1_600", 3], "line 2: time '1_600' is not a time"),
        ([" 1600000000", 1600000000000], "line 3: .*milliseconds"),
    ],
)
def test_times_of_two_forms_name_both_rows(tmp_path, values, message):
    with pytest.raises(DataError, match=message):
        times_of(tmp_path, *values)


def test_numbers_of_a_named_column_may_have_any_form(tmp_path):
    """Sequence numbers, or milliseconds since some start; but two known forms are refused."""
    path = as_csv(tmp_path / "t.csv", [{"n": n} for n in (3, 2000, 5 * 10**12, 0)])
    assert times(read_table(path)["n"], is_named=True).tolist() == [3, 2000, 5e12, 0]
    path = as_csv(tmp_path / "t.csv", [{"n": n} for n in (43846.5, 1.6e9)])
    with pytest.raises(DataError, match="line 3: .*is seconds, .* a spreadsheet's days"):
        times(read_table(path)["n"], is_named=True)


@pytest.mark.parametrize(
    ("values", "what"),
    [
        (pa.array([3, 2, 1], pa.time32("s")), "a time of day"),
        (pa.array([3, 2, 1], pa.time32("ms")), "a time of day"),
        (pa.array([3, 2, 1], pa.time64("us")), "a time of day"),
        (pa.array([3, 2, None], pa.time64("ns")), "a time of day"),
        (pa.array([3, 2, 1], pa.duration("s")), "a duration"),
        (pa.array([10**18, 2, None], pa.duration("ns")), "a duration"),
        (pa.array(["19:34", "05:08", None]), "a time of day"),
    ],
)
@pytest.mark.parametrize("kind", ["last", "time", "newest-items"])
def test_times_of_day_and_durations_are_no_times(tmp_path, values, what, kind):
    table = pa.table({"user": [1, 2, 3], "item": [1, 2, 3], "timestamp": values})
    pq.write_table(table, tmp_path / "r.parquet")
    items = [{"id": n, "title": "w"} for n in (1, 2, 3)]
    message = f"timestamp is {what}, which does not say when.*DATE,TIME"
    for options in ({}, {"time_column": "timestamp"}):
        with pytest.raises(DataError, match=message):
            prepare(tmp_path, tmp_path / "r.parquet", items, hold_out=kind, **options)


MOMENTS = [86_400 * (n * 7 % 5) + 60 * (n * 601 % 1440) for n in range(12)]
"""Minutes of five days of 1970, all different."""
MOMENTS_UTC = [datetime.fromtimestamp(1_600_000_020 + n, UTC) for n in MOMENTS]
DAYS = {
    "dashes": lambda day: f"{day:%Y-%m-%d}",
    "midnight": lambda day: f"{day:%Y-%m-%d} 00:00:00",
    "midnight of a zone": lambda day: f"{day:%Y-%m-%d}T00:00:00.000Z",
    "digits": lambda day: f" {day:%Y%m%d} ",
    "number": lambda day: int(f"{day:%Y%m%d}"),
    "date": lambda day: day.date(),
    "timestamp": lambda day: datetime(day.year, day.month, day.day),
    "timestamp of a zone": lambda day: datetime(day.year, day.month, day.day, tzinfo=UTC),
}
CLOCKS = {
    "seconds": lambda day: f"{day:%H:%M:%S}",
    "minutes": lambda day: f"{day:%H:%M}",
    "without zero": lambda day: f"{day:%H:%M}".removeprefix("0"),
    "fractions": lambda day: f"{day:%H:%M:%S}.250",
    "zone": lambda day: f"{day:%H:%M:%S}Z",
    "time": lambda day: day.time(),
}


@pytest.mark.parametrize(("day", "clock"), [*product(DAYS, CLOCKS)])
def test_a_date_and_a_time_of_day_are_a_time(tmp_path, day, clock):
    """In every format that can hold both, in any order of the columns."""
    turn = [*product(DAYS, CLOCKS)].index((day, clock))
    names = ["date,time", "time,date", "date,hour", "timestamp,created_at"][turn // 2 % 4]
    one, two = names.split(",")
    dates = two if two in ("date", "created_at") else one
    times_ = one if dates == two else two
    rows = [
        {"user": n % 3, "item": n, one: None, two: None}
        | {dates: DAYS[day](moment), times_: CLOCKS[clock](moment)}
        for n, moment in enumerate(MOMENTS_UTC)
    ]
    items = [{"item": n, "title": "w"} for n in range(len(rows))]
    newest = [max(range(user, 12, 3), key=MOMENTS.__getitem__) for user in range(3)]
    is_typed = day in ("date", "timestamp", "timestamp of a zone") or clock == "time"
    for form in ["parquet"] if is_typed else ["jsonl", ["csv", "tsv", "parquet"][turn % 3]]:
        links = FORMATS[form](tmp_path / f"r.{form}", rows)
        options = {"time_column": f"{dates},{times_}"} if turn % 2 else {}
        dataset, said = prepare(tmp_path, links, items, hold_out="last", **options)
        tested = dataset.links("test")[1].tolist()
        assert [ids_of(dataset.item_ids)[item] for item in tested] == list(map(str, newest))
        assert f"times {dates},{times_}," in said[0]
        assert not any("Not used of r" in line for line in said)
        words = prepare_command("x", dataset.manifest)
        assert f"--time-column {dates},{times_}" in words
    rows[4][times_] = rows[5][dates] = None
    links = as_parquet(tmp_path / "r.parquet", rows)
    with pytest.raises(DataError, match=rf"row 5: {dates},{times_} is missing\."):
        prepare(tmp_path, links, items, hold_out="last")


def test_durations_since_midnight_are_asked_for(tmp_path):
    """MySQL's TIME becomes one; beside dates alone it is not left out unsaid."""
    seconds = [moment.hour * 3600 + moment.minute * 60 for moment in MOMENTS_UTC]
    columns = {
        "user": [n % 3 for n in range(12)],
        "item": list(range(12)),
        "time": pa.array(seconds, pa.duration("s")).cast(pa.duration("us")),
        "date": [moment.date() for moment in MOMENTS_UTC],
    }
    links, items = tmp_path / "r.parquet", [{"item": n, "title": "w"} for n in range(12)]
    pq.write_table(pa.table(columns), links)
    with pytest.raises(DataError, match=r"time is a duration.*--time-column DATE,TIME"):
        prepare(tmp_path, links, items, hold_out="last")
    dataset, _ = prepare(tmp_path, links, items, hold_out="last", time_column="date,time")
    newest = [max(range(user, 12, 3), key=MOMENTS.__getitem__) for user in range(3)]
    tested = dataset.links("test")[1].tolist()
    assert [ids_of(dataset.item_ids)[item] for item in tested] == list(map(str, newest))
    for wrong in (86_400, -1):
        columns["time"] = pa.array([wrong] * 12, pa.duration("s"))
        pq.write_table(pa.table(columns), links)
        with pytest.raises(DataError, match="row 1: date,time .* is not a time"):
            prepare(tmp_path, links, items, hold_out="last", time_column="date,time")
    columns["time"] = [[1]] * 12
    pq.write_table(pa.table(columns), links)
    with pytest.raises(DataError, match="row 1: time is of type list.*, not a date or a time"):
        prepare(tmp_path, links, items, hold_out="last", time_column="date,time")


def test_hours_of_the_day_are_times_of_day(tmp_path):
    rows = [
        {"user": n % 3, "item": n, "hour": moment.hour, "date": f"{moment:%Y-%m-%d}"}
        for n, moment in enumerate(MOMENTS_UTC)
    ]
    items = [{"item": n, "title": "w"} for n in range(len(rows))]
    for links in (as_csv(tmp_path / "r.csv", rows), as_parquet(tmp_path / "r.parquet", rows)):
        dataset, said = prepare(tmp_path, links, items, hold_out="last")
        assert "times date,hour" in said[0]
        for user, item in zip(*dataset.links("test"), strict=True):
            row = rows[int(ids_of(dataset.item_ids)[item])]
            same = [other for other in rows if other["user"] == int(ids_of(dataset.user_ids)[user])]
            assert (row["date"], row["hour"]) == max((o["date"], o["hour"]) for o in same)


@pytest.mark.parametrize(
    ("columns", "chosen"),
    [
        ({"time": "09:30", "created_at": "2020-01-16 05:00"}, "created_at"),
        ({"time": "09:30", "date": "2020-01-16 05:00"}, "date"),
        ({"hour": "09:30", "timestamp": 1600000000}, "timestamp"),
        ({"date": "2020-01-16", "timestamp": 1600000000}, "timestamp"),
        ({"date": "2020-01-16"}, "date"),
        ({"date": "2020-01-16", "created_at": "2020-01-16 09:30"}, "created_at"),
        ({"created_at": "2020-01-16", "date": "2020-01-16"}, "date"),
        ({"date": "2020-01-16", "time": 12}, "time '12' has no known form"),
        ({"date": "2020-01-16", "hour": 25}, "date"),
        ({"date": "16/01/2020", "time": "09:30"}, "date '16/01/2020' is not a time"),
        ({"hour": "09:30"}, "needs a column of times"),
        ({"date,time": "2020-01-16"}, "date,time"),
        ({"day": "2020-01-16", "time": "09:30"}, "time is a time of day, which does not say when"),
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


def test_invisible_characters_of_a_name_need_not_be_typed(tmp_path):
    links = [{"\u200ecustomer\u00ad": row["userId"], "movieId": row["movieId"]} for row in LINKS]
    _, said = prepare(tmp_path, links, user_column="customer")
    assert "user \u200ecustomer\u00ad, item movieId" in said[0]
    twice = [{"\u200ewho": 1, "who\u200e": 1, "movieId": 5}]
    with pytest.raises(NcfbenchError, match="has no such column"):
        prepare(tmp_path, twice, user_column="who")


def test_a_name_with_a_comma_is_a_name(tmp_path):
    links = [{"user": n, "item": n, "date,time": 1600000000 + n} for n in range(4)]
    items = [{"id": n, "title": "w"} for n in range(4)]
    options = {"hold_out": "newest-items", "time_column": "date,time"}
    assert prepare(tmp_path, links, items, **options)[0].split.tolist() == [0, 0, 0, 2]
    with pytest.raises(UsageError, match=r"--time-column dat: r.csv has no such column"):
        prepare(tmp_path, links, items, hold_out="last", time_column="dat,time")


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
        (
            "user,part_id,unit_id",
            "part_id,unit_id,title",
            {},
            "the id of an item.*--item-column NAME",
        ),
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
