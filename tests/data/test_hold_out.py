"""Hold-outs and samples of users against rules written again in plain Python, for every source."""

import json
from collections import Counter, defaultdict

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from support.tables import (
    ITEMS,
    LINKS,
    ids_of,
    named,
    named_links,
    prepare,
)
from support.training import quiet

from ncfbench.data.content import SPLITS, cautions
from ncfbench.data.hold_out import Links, draw_users, hold_out, split_items
from ncfbench.data.options import NEED_TIMES, SourceOptions
from ncfbench.data.sources import prepare_command
from ncfbench.data.store import prepare_dataset
from ncfbench.errors import DataError, NcfbenchError, UsageError
from ncfbench.floors.floor import floor
from ncfbench.runs.quality import require_validation_links

ROWS = st.lists(
    st.tuples(st.integers(0, 5), st.integers(0, 6), st.integers(0, 9)), min_size=1, max_size=40
)
"""User, item and time."""
FRACTIONS = st.sampled_from([0.0, 0.1, 0.2, 0.5, 0.9])


def held_out_of(rows, **options):
    users, items, times = np.array(rows, np.int32).T
    links = Links(users, items, times.astype(float), np.arange(len(rows)))
    return hold_out(SourceOptions(**options), links.distinct()[0], (6, 7))


def by_split(result):
    splits, links = {name: set() for name in SPLITS}, (result.users, result.items, result.held_out)
    for user, item, number in zip(*map(np.ndarray.tolist, links), strict=True):
        splits[SPLITS[number]].add((user, item))
    return splits


def first_times(rows):
    """The first time of each link, and its row."""
    result = {}
    for row, (user, item, time) in enumerate(rows):
        result[user, item] = min(result.get((user, item), (time, row)), (time, row))
    return result


@given(ROWS, FRACTIONS, FRACTIONS)
def test_a_share_of_each_users_links(rows, test, validation):
    options = {"hold_out": "links", "test_fraction": test, "validation_fraction": validation}
    result = by_split(held_out_of(rows, **options))
    again = by_split(held_out_of(rows[::-1], **options))
    assert result == again, "the order of rows does not matter"
    assert set.union(*result.values()) == set(first_times(rows))
    sizes = {name: Counter(user for user, _ in pairs) for name, pairs in result.items()}
    for user in {user for user, *_ in rows}:
        n_validation, n_test = sizes["validation"][user], sizes["test"][user]
        n = sizes["train"][user] + n_validation + n_test
        assert n_test == min(round(n * test), n - 1)
        assert n_validation == min(round((n - n_test) * validation), n - n_test - 1)


@given(ROWS, st.booleans())
def test_the_newest_link_of_each_user(rows, has_validation):
    """The order of a user's links is that of time, then of rows."""
    options = {"hold_out": "last", "validation_fraction": 0.1 * has_validation}
    times = first_times(rows)
    links = defaultdict(list)
    for pair in sorted(times, key=times.__getitem__):
        links[pair[0]].append(pair)
    expected = {name: set() for name in SPLITS}
    tied, newest_splits = 0, ["validation", "test"][1 - has_validation :]
    for pairs in links.values():
        newest = [times[pair][0] for pair in pairs[-len(newest_splits) - 1 :]]
        if len(pairs) > len(newest_splits):
            tied += len(set(newest)) < len(newest)
            for name in reversed(newest_splits):
                expected[name].add(pairs.pop())
        expected["train"] |= set(pairs)
    result = held_out_of(rows, **options)
    assert by_split(result) == expected
    assert result.facts == {"users_with_tied_times": tied}
    if not tied and len({time for *_, time in rows}) == len(rows):
        assert by_split(held_out_of(rows[::-1], **options)) == expected


@given(ROWS, FRACTIONS, FRACTIONS)
def test_all_links_from_a_time_on(rows, test, validation):
    times = {pair: time for pair, (time, _) in first_times(rows).items()}
    options = {"hold_out": "time", "test_fraction": test, "validation_fraction": validation}
    try:
        result = held_out_of(rows, **options)
    except UsageError as error:
        assert "have one time" in str(error)
        return
    assert by_split(result) == by_split(held_out_of(rows[::-1], **options))
    splits = by_split(result)
    moments = {name: [times[pair] for pair in pairs] for name, pairs in splits.items()}
    oldest = [min(moments[name], default=99) for name in SPLITS]
    newest = [max(moments[name], default=-1) for name in SPLITS]
    assert newest[0] < min(oldest[1:])
    assert newest[1] < oldest[2]
    with_links = {user for user, _ in splits["train"]}
    assert all(user in with_links for user, _ in splits["validation"] | splits["test"])
    n_removed = sum(result.removed.values())
    assert len(times) == n_removed + sum(map(len, splits.values()))
    if test and not n_removed:
        # No other time leaves nearer to the share after it.
        sizes = [sum(time >= cut for time in times.values()) for cut in set(times.values())]
        off = min(abs(size - test * len(times)) for size in sizes if size < len(times))
        assert abs(len(splits["test"]) - test * len(times)) == off


@given(ROWS, st.sampled_from(["links", "last", "time"]))
def test_new_items_have_no_training_link(rows, kind):
    try:
        result = held_out_of(rows, hold_out=kind)
    except UsageError:
        return
    splits = by_split(result)
    trained, validated, tested = ({item for _, item in splits[name]} for name in SPLITS)
    for item in range(7):
        is_new = item in (validated | tested) - trained
        expected = 0 if not is_new else 1 if item in validated else 2
        assert result.split[item] == expected


ONE = Links(np.zeros(1, np.int32), np.zeros(1, np.int32))
AT_ONCE = Links(np.array([0, 0]), np.array([0, 1]), np.array([3.0, 3.0]), np.arange(2))


@pytest.mark.parametrize(
    ("links", "options", "message"),
    [
        *((ONE, {"hold_out": kind}, f"--hold-out {kind} needs the times") for kind in NEED_TIMES),
        (AT_ONCE, {"hold_out": "time"}, "links that --test-fraction would divide have one time"),
        (ONE, {"test_fraction": 0.5}, "nothing to train on"),
        (ONE, {"test_fraction": 0.9}, "hold every item out"),
    ],
)
def test_what_leaves_nothing_is_refused(links, options, message):
    split = np.array([2, 0], np.uint8) if "nothing" in message else None
    with pytest.raises(NcfbenchError, match=message):
        hold_out(SourceOptions(**options), links, (1, 2), split=split)


def test_shares_of_the_items():
    split = split_items(1000, SourceOptions())
    assert np.bincount(split).tolist() == [720, 80, 200]
    assert (split == split_items(1000, SourceOptions())).all()
    without_validation = split_items(1000, SourceOptions(validation_fraction=0))
    assert np.bincount(without_validation).tolist() == [800, 0, 200]


# --- from files


MORE_ITEMS = [*ITEMS, {"movieId": 77, "title": "Newest", "genres": ""}]


@pytest.mark.parametrize("form", ["{}", "2019-11-24 05:{}Z"])
def test_times_of_any_form(tmp_path, form):
    times = map(form.format, (50, 10, 20, 30, 45, 59))
    rows = [row | {"timestamp": time} for row, time in zip(LINKS, times, strict=True)]
    more = {"time_column": "timestamp", "hold_out": "time", "test_fraction": 0.5}
    dataset, said = prepare(tmp_path, rows, MORE_ITEMS, **more)
    assert named(dataset, *dataset.links("test")) == [("10", "77"), ("7", "30"), ("9", "30")]
    assert named(dataset, *dataset.links("train")) == [("10", "5"), ("7", "5"), ("9", "100")]
    assert "split" not in dataset.manifest["options"]
    assert dataset.ranks_known_items
    assert dataset.candidates("test").tolist() == [0, 1, 2, 3]
    assert "Held out: all links from a time on." in said[1]
    counts = {"test_links": 3, "test_links_to_new_items": 3, "new_items": 2}
    assert dataset.manifest["statistics"].items() >= counts.items()
    assert "3 of 3 test links (100.0 %) are to new items" in cautions(dataset.manifest)[-1]


@pytest.mark.parametrize(
    ("times", "tied"),
    [
        (pa.array([1.6e9 + 9 * n for n in range(6)], pa.float32()), {"last": 3, "newest-items": 4}),
        ([f"{1.57803e12 + 1e6 * n:.5E}" for n in range(6)], {"last": 2, "newest-items": 3}),
        ([1.6e9 + 9 * n for n in range(6)], {}),
    ],
)
def test_times_that_rounding_made_equal_are_told(tmp_path, times, tied):
    """Seconds of float32, and milliseconds as a spreadsheet shows them; and too few links."""
    columns = {name: [row[name] for row in LINKS] for name in ("userId", "movieId")}
    pq.write_table(pa.table(columns | {"timestamp": times}), tmp_path / "r.parquet")
    for kind, links in (("last", "newest links of {} users"), ("newest-items", "first links of")):
        shares = {"test_fraction": 0.4 if kind == "newest-items" else 0.2}
        dataset, _ = prepare(tmp_path, tmp_path / "r.parquet", MORE_ITEMS, hold_out=kind, **shares)
        said = cautions(dataset.manifest)
        (*warned,) = (text for text in said if "equal times" in text)
        assert [links.format(tied.get(kind)) in text for text in warned] == [True] * bool(tied)
    more = {"hold_out": "last", "validation_fraction": 0.1}
    dataset, _ = prepare(tmp_path, tmp_path / "r.parquet", MORE_ITEMS, **more)
    none, few = cautions(dataset.manifest)[:2]
    assert "no test links" in none
    assert "3 of 3 users have too few links" in few


FROZEN = {
    "items": "c13850534aabb2e1050efa0e39d7cbe23d8da12787378279f5202eb220bb4ac8",
    "newest-items": "37fa0883866fe626bbcc587a0375d921e19f2f8ff43d9c9aa5d81ca308a06d01",
    None: "36adb00f3c510d1cbe32c69571866aaf3c9690e02b70d138d8ad55cd063f43ba",
}
"""Fingerprints of 2026 by what was held out; None is a column of splits."""


@pytest.mark.parametrize("kind", FROZEN)
def test_data_prepared_before_keep_their_fingerprint(tmp_path, kind):
    marks = ["Train", "dev", "test", "train"]
    items = [row | {"split": mark} for row, mark in zip(ITEMS, marks, strict=True)]
    options = {"validation_fraction": 0.1, "time_column": "timestamp", "lsa": 0}
    dataset, _ = prepare(tmp_path, LINKS, ITEMS if kind else items, hold_out=kind, **options)
    assert dataset.fingerprint == FROZEN[kind]
    stored = {"items": "random", "newest-items": "time"}.get(kind, "column")
    assert dataset.manifest["options"]["split"] == stored
    assert "hold_out" not in json.dumps(dataset.manifest)
    assert dataset.held_out is None
    sizes = {"users": 50, "items": 80, "links": 500}
    synthetic = prepare_dataset("synthetic", data_dir=tmp_path, **sizes, say=quiet)
    assert synthetic.fingerprint.startswith("0abfb864e5fa6a6cbe2053af8e78c2ac")


def test_what_holds_out_nothing_is_told_how(tmp_path):
    """By those that rank the test, and those that choose by validation."""
    rows = [{"user": n % 20, "item": n} for n in range(40)]
    items = [{"id": n, "title": "w"} for n in range(40)]
    options = {"hold_out": "links", "validation_fraction": 0.1, "test_fraction": 0.1}
    dataset, _ = prepare(tmp_path, rows, items, **options)
    advice = r"Prepare it again with a larger --{}-fraction, or with --hold-out items"
    with pytest.raises(UsageError, match=advice.format("test")):
        floor(dataset, data_dir=tmp_path / "data")
    with pytest.raises(DataError, match=advice.format("validation")):
        require_validation_links(dataset, "advise")
    for kind, words in (
        ("items", "with a larger --test-fraction."),
        ("last", "with more links of a user, or with --hold-out items"),
    ):
        dataset.manifest["options"] = {"hold_out": kind}
        assert words in dataset.advise_hold_out("test")
    dataset.manifest["options"] = {"split": "column", "split_column": "part"}
    words = "with rows that are test in the column part, or with --hold-out items"
    assert words in dataset.advise_hold_out("test")
    dataset.manifest["source"] = "mind"
    assert dataset.advise_hold_out("test").endswith("give other shares from Python.")


# --- --sample-users

N_ITEMS = 7


@given(
    st.lists(st.tuples(st.integers(0, 5), st.integers(0, N_ITEMS - 1)), min_size=1, max_size=40),
    st.none() | st.integers(1, 7),
)
@example([(0, 0), (1, 1)], 2)
@settings(max_examples=50)
def test_a_sample_by_brute_force(tmp_path, pairs, size):
    """Users that are drawn keep all links, and decide the items that stay."""
    links = [{"user": user, "item": item} for user, item in pairs]
    titles = [{"id": item, "title": f"t{item}"} for item in range(N_ITEMS)]
    dataset, said = prepare(tmp_path, links, titles, sample_users=size, test_fraction=0.0)
    present = {user for user, _ in pairs}
    users = set(map(int, ids_of(dataset.user_ids)))
    assert users <= present
    assert len(users) == min(size or 9, len(present))
    left = {pair for pair in pairs if pair[0] in users}
    assert {(int(user), int(item)) for user, item in named_links(dataset)} == left
    assert set(map(int, ids_of(dataset.item_ids))) == {item for _, item in left}
    removed = dataset.manifest["removed"]
    rows = ("links_of_users_not_drawn", "duplicate_links")
    assert len(left) + sum(removed.get(reason, 0) for reason in rows) == len(pairs)
    assert removed.get("users_not_drawn", 0) == len(present) - len(users)
    everybody = f"--sample-users {size}: there are {len(present)} users; all are kept."
    assert (everybody in said) == (size is not None and size >= len(present))


def test_every_user_is_as_likely_as_any_other():
    """Over 3,000 seeds, 2 of 5 users: 1,200 each, give or take five standard deviations."""
    counts = Counter(user for seed in range(3000) for user in draw_users(5, 2, seed).tolist())
    assert sorted(counts) == list(range(5))
    assert all(abs(count - 1200) < 5 * (3000 * 0.4 * 0.6) ** 0.5 for count in counts.values())


def test_a_smaller_draw_is_part_of_a_larger_one():
    draws = [set(draw_users(100, size, seed=3).tolist()) for size in (1, 10, 50, 100)]
    assert [len(draw) for draw in draws] == [1, 10, 50, 100]
    assert draws[0] < draws[1] < draws[2] < draws[3]


def test_the_manifest_names_a_sample_and_nothing_else(tmp_path):
    """Without the option a data set has the options, and so the fingerprint, of before."""
    whole, _ = prepare(tmp_path)
    assert "sample_users" not in whole.manifest["options"]
    sample, said = prepare(tmp_path, sample_users=2, test_fraction=0.0)
    assert sample.manifest["options"]["sample_users"] == 2
    assert sample.fingerprint != whole.fingerprint
    assert any(line.startswith("A sample: 2 of 3 users; left out with") for line in said)
    assert "--sample-users 2" in prepare_command("x", sample.manifest)
