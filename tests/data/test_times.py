"""Times in users' files: their forms, days and times of day, and which column orders links."""

from datetime import UTC, datetime
from itertools import product

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tables_of import FORMATS, as_csv, as_parquet, ids_of, prepare

from ncfbench.data.sources import prepare_command
from ncfbench.data.table import read_table
from ncfbench.data.values import times
from ncfbench.errors import DataError, NcfbenchError


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
