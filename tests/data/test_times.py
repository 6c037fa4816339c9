"""Times in users' files: their forms, and which column orders links."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tables_of import as_csv, prepare

from ncfbench.data.table import read_table
from ncfbench.errors import DataError, NcfbenchError


def times_of(folder, *values):
    path = as_csv(folder / "t.csv", [{"time": value} for value in values])
    return read_table(path)["time"].times()


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
        ([10**12 + 50, 10**12 + 10, 10**12 + 20], [1, 2, 0]),
        (["2019-11-25", "2019-11-01", "2019-11-25 05:53:12"], [1, 0, 2]),
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
        (["19:34:49", "05:08"], "line 2: time '19:34:49' is not a time"),
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
    assert read_table(path)["n"].times(is_named=True).tolist() == [3, 2000, 5e12, 0]
    path = as_csv(tmp_path / "t.csv", [{"n": n} for n in (43846.5, 1.6e9)])
    with pytest.raises(DataError, match="line 3: .*is seconds, .* a spreadsheet's days"):
        read_table(path)["n"].times(is_named=True)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (pa.array([3, 2, 1], pa.time32("s")), r"of type time32\[ms\], which does not say when"),
        (pa.array([3, 2, None], pa.time64("ns")), r"of type time64\[ns\], which does not say when"),
        (pa.array([3, 2, 1], pa.duration("s")), r"of type duration\[s\], which does not say when"),
        (pa.array(["19:34", "05:08", None]), "'19:34' is not a time"),
    ],
)
@pytest.mark.parametrize("kind", ["last", "time", "newest-items"])
def test_times_of_day_and_durations_are_no_times(tmp_path, values, message, kind):
    """Though a column of dates stands beside them."""
    table = {"user": [1, 2, 3], "item": [1, 2, 3], "time": values, "date": ["2020-01-16"] * 3}
    pq.write_table(pa.table(table), tmp_path / "r.parquet")
    items = [{"id": n, "title": "w"} for n in (1, 2, 3)]
    for options in ({}, {"time_column": "time"}):
        with pytest.raises(DataError, match=f"row 1: time (is )?{message}"):
            prepare(tmp_path, tmp_path / "r.parquet", items, hold_out=kind, **options)


@pytest.mark.parametrize(
    ("columns", "chosen"),
    [
        ({"hour": "09:30", "timestamp": 1600000000}, "timestamp"),
        ({"date": "2020-01-16", "timestamp": 1600000000}, "timestamp"),
        ({"date": "2020-01-16"}, "date"),
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
