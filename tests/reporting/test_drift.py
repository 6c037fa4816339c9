"""Kept tables beside the runs, also those of the repository: what drifted is seen, and a second
computation gives the same.
"""

import json
import re
import shutil
from collections import Counter
from pathlib import Path

import pytest
from independent.records import compare_tables
from support.cli import check, invoke
from support.records import FOLDERS, REPOSITORY, TIMES, change, kept, read, write_run

from ncfbench.reporting.drift import verify
from ncfbench.reporting.results import collect
from ncfbench.storage import schemas, tables


@pytest.fixture(scope="module")
def reported(rich, tmp_path_factory):
    """The runs of one of the data sets, with their tables."""
    folder, left_out = tmp_path_factory.mktemp("runs") / "all", shutil.ignore_patterns("own-*")
    shutil.copytree(rich, folder, ignore=left_out)
    check(invoke("report", folder), 0)
    return folder


@pytest.fixture
def folder(reported, tmp_path):
    return Path(shutil.copytree(reported, tmp_path / "runs"))


def wrong(folder):
    _, mismatches = verify(collect(folder, folder))
    return {(one["table"], one["cell"].split("/")[-1], one["column"]) for one in mismatches}


def row_of(rows, sampler="ns"):
    return next(row for row in rows if row["sampler"] == sampler)


@pytest.mark.parametrize("table", ["speedup", "recall"])
def test_every_number_is_checked(folder, table):
    """By this program, and by the second computation; ns has ratios, and strat bounds of them."""
    assert wrong(folder) == set()
    assert compare_tables(folder)[1] == []
    schema = getattr(schemas, table.upper())
    numbers = [field.name for field in schema if str(field.type) in ("double", "int64")]
    changed = {(table, "strat" if of.endswith("_at_most") else "ns", of) for of in numbers}

    def edit(rows):
        for _, sampler, column in changed:
            row = row_of(rows, sampler)
            row[column] *= 1.001 if isinstance(row[column], float) else 2
        row_of(rows)["status"] = "no times"

    change(folder, table, edit)
    assert wrong(folder) == changed | {(table, "ns", "status")}
    assert {column for _, column in compare_tables(folder)[1]} == {*numbers} - {"seeds"}
    done = invoke("report", folder, "--verify")
    check(done, 6, "values recomputed", *numbers, "ncfbench report writes the tables again")
    done = invoke("report", folder, "--verify", "--json")
    assert (done.exit_code, len(json.loads(done.stdout)["mismatches"])) == (6, len(numbers) + 1)


@pytest.mark.parametrize("table", ["speedup", "recall"])
@pytest.mark.parametrize(
    ("edit", "cells"),
    [
        (lambda rows: rows.append(row_of(rows)), {"ns"}),
        (lambda rows: rows.remove(row_of(rows)), {"ns"}),
        (lambda rows: row_of(rows, "strat").update(variant="s=8"), {"strat", "s=8"}),
    ],
)
def test_rows_twice_lost_or_renamed_are_seen(folder, table, edit, cells):
    change(folder, table, edit)
    assert wrong(folder) == {(table, cell, "row") for cell in cells}


def test_changed_raw_samples_are_seen(folder):
    (run,) = folder.glob("citeulike-cnn-sg-ns-seed0-*")
    change(run, "timing", lambda rows: [row.update(seconds=1.1 * row["seconds"]) for row in rows])
    assert wrong(folder) == {("summary", run.name, name) for name in TIMES[:2]}


def test_runs_that_came_or_went_are_seen(folder):
    (gone,) = folder.glob("citeulike-cnn-sg-iid-seed1-*")
    shutil.rmtree(gone)
    write_run(folder, "ns", [9, 5, 3], 200, seed=7)
    assert wrong(folder) >= {("speedup", "ns", "baseline_runs"), ("recall", "ns", "runs")}
    assert_reports_agree(folder)


def assert_reports_agree(folder):
    check(invoke("report", folder), 0)
    assert wrong(folder) == set()
    assert compare_tables(folder)[1] == []


def test_every_kind_of_row_agrees(tmp_path):
    """Rows of one comparison, of several comparisons, and rows without a baseline."""
    for seed, (sampler, end, ms, more) in enumerate(
        [
            ("iid", 3, 200, {}),
            ("iid", 2, 300, {"negatives": 20}),
            ("neg", 2, 100, {"negatives": 20}),
            ("neg", 2, 100, {"negatives": 5}),
            ("strat-ns", 2, 10, {"stratum_size": 8}),
            ("strat-ns", 2, 10, {"strata": "user"}),
            ("mixed-ns", 2, 10, {"uniform_items": 64}),
        ]
        * 2
    ):
        write_run(tmp_path, sampler, [9, 4, end], ms, seed=seed // 7, **more)
    other = {"loss": "log", "encoder": "lstm"}
    write_run(tmp_path, "neg", [9, 4, 2], 30, negatives=3, **other)
    unusual = {"epochs": 7, "noise": "0.75", "mask": False}
    for more in ({"seed": 7}, other, unusual, {"fingerprint": "e" * 64}):
        write_run(tmp_path, "ns", [9, 4, 2], 30, **more)
    for epochs, status in ((8, "finished"), (9, "diverged")):
        write_run(tmp_path, "iid", [9, 4, 2], 30, epochs=epochs, status=status)
        untimed = write_run(tmp_path, "ns", [9, 4, 2], 30, epochs=epochs, status=status)
        change(untimed, "timing", lambda rows: rows.clear())
        change(untimed, "summary", lambda rows: rows[0].update(dict.fromkeys(TIMES)))
    assert_reports_agree(tmp_path)
    rows = tables.read_rows(tmp_path / "speedup.parquet", schemas.SPEEDUP)
    statuses = "no times", "diverged", "baseline", "reached", "no baseline"
    assert {row["status"] for row in rows} >= {*statuses, "no baseline of this seed"}


# --- results kept in the repository; their second computation is in tests/independent


@pytest.mark.long_cases("(citeulike-title-tags|movielens-plots|rivals)$")
@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_every_number_comes_out_again(folder):
    results = kept(folder.name)
    values, mismatches = verify(results)
    assert values >= 68  # the smallest, of one run
    assert (mismatches, results.problems) == ([], [])


def test_results_are_compact_and_name_no_machine():
    assert len(FOLDERS) == 9
    files = [path for path in (REPOSITORY / "results").rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) < 8e6
    assert len(files) <= 110, "no checkpoints"
    for record in (record for folder in FOLDERS for record in read(folder)[0]):
        commit = record.environment["commit"]
        assert commit["id"]
        assert not commit["dirty"], "measured with code that no commit holds"
        assert not re.search("/tmp|/home|/work|/root", json.dumps({**record.environment}))


def test_the_page_on_the_paper_says_what_the_reports_say():
    """Counts of verdicts, one for each data set, encoder and loss; the answer over losses."""
    page = (REPOSITORY / "docs/paper.md").read_text("utf-8")
    verdicts = {}
    for name in ("citeulike-title-tags", "movielens-plots"):
        folder = REPOSITORY / "results" / name
        for claim in collect(folder, profiles=folder).claims:
            if "plain" not in claim["settings"]:
                cell = claim["claim"], claim["dataset"], claim["encoder"], claim["loss"]
                verdicts[cell] = claim["verdict"]
    for begin, claim in (
        ("sharing needs fewer", "fewer-iterations"),
        ("`strat-ns` is soonest", "soonest"),
        ("recall is kept", "kept-recall"),
    ):
        counts = Counter(verdict for (of, *_), verdict in verdicts.items() if of == claim)
        (cells,) = re.findall(rf"^\| {begin}.*? \| (\d+) \| (\d+) \| (\d+) \|", page, re.M)
        names = ("reproduced", "not reproduced", "undecided")
        assert [int(cell) for cell in cells] == [counts[name] for name in names]
    (answer,) = (
        row for row in kept("citeulike-title-tags").answer_rows if row["dataset"] == "citeulike"
    )
    arms = {arm["name"]: arm for arm in answer["arms"]}
    seconds = arms["cnn mse strat-ns"]["seconds_to_level"]
    said = "a recall@50 of {:.3f} on validation links after {:.3g} s"
    assert said.format(-answer["level"], seconds) in page
    slower = [arms[f"cnn mse {name}"]["times_slower"] for name in ("ns", "iid", "neg")]
    said = "With MSE `ns` takes {:.2f} times as long, `iid` {:.2f}\nand `neg` {:.2f} times"
    assert said.format(*slower) in page
