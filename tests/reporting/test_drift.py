"""Kept tables beside the runs: what drifted is found, and a second computation gives the same."""

import json
import shutil
from pathlib import Path

import pytest
from independent.records import compare_tables
from support.cli import check, invoke
from support.records import change, write_folder, write_run

from ncfbench.reporting.drift import verify
from ncfbench.reporting.results import collect
from ncfbench.storage import schemas, tables


@pytest.fixture(scope="module")
def reported(tmp_path_factory):
    folder = write_folder(tmp_path_factory.mktemp("runs"))
    write_run(folder, "mixed-ns", [9, 4, 3.5], 30, time="2026-01-02", key="two")
    assert invoke("report", folder).exit_code == 0
    return folder


@pytest.fixture
def folder(reported, tmp_path):
    return Path(shutil.copytree(reported, tmp_path / "runs"))


def wrong(folder):
    _, found = verify(collect(folder, folder))
    return {(one["table"], one["cell"].split("/")[-1], one["column"]) for one in found}


def row_of(rows, sampler="ns"):
    return next(row for row in rows if row["sampler"] == sampler)


def numbers_of(schema):
    return [field.name for field in schema if str(field.type) in ("double", "int64")]


@pytest.mark.parametrize(
    ("table", "schema"), [("speedup", schemas.SPEEDUP), ("recall", schemas.RECALL)]
)
def test_every_number_is_checked(folder, table, schema):
    """By this program, and by the second computation."""
    assert wrong(folder) == set()
    assert compare_tables(folder)[1] == []
    names = [name for name in numbers_of(schema) if not name.endswith("_at_most")]

    def edit(rows):
        for column in names:
            row_of(rows)[column] *= 1.001 if isinstance(row_of(rows)[column], float) else 2
        row_of(rows)["status"] = "no times"

    change(folder, table, edit)
    assert wrong(folder) == {(table, "ns", column) for column in (*names, "status")}
    found = {column for _, column in compare_tables(folder)[1]}
    assert found == {*names} - {"seeds"}
    done = invoke("report", folder, "--verify")
    check(done, 6, "values recomputed", *names)
    result = invoke("report", folder, "--verify", "--json")
    assert result.exit_code == 6
    assert len(json.loads(result.stdout)["mismatches"]) == len(names) + 1


def test_bounds_are_checked(folder):
    names = ["iterations_speedup_at_most", "total_speedup_at_most"]

    def edit(rows):
        for name in names:
            row_of(rows, "strat")[name] *= 1.01

    change(folder, "speedup", edit)
    assert wrong(folder) == {("speedup", "strat", name) for name in names}
    assert {column for _, column in compare_tables(folder)[1]} == {*names}


def test_changed_raw_samples_are_found(folder):
    def slower(rows):
        for row in rows:
            row["seconds"] *= 1.1

    run = next(path for path in folder.iterdir() if "-sg-ns-seed0" in path.name)
    change(run, "timing", slower)
    names = ("full_iteration_seconds", "step_iteration_seconds")
    assert wrong(folder) == {("summary", run.name, name) for name in names}


def test_runs_that_came_or_went_are_found(folder):
    gone = next(path for path in folder.iterdir() if "-sg-iid-seed1" in path.name)
    shutil.rmtree(gone)
    write_run(folder, "ns", [9, 5, 3], 200, seed=7)
    assert wrong(folder) >= {("speedup", "ns", "baseline_runs"), ("recall", "ns", "runs")}
    check(invoke("report", folder, "--verify"), 6, "ncfbench report writes the tables again")
    assert invoke("report", folder).exit_code == 0
    assert wrong(folder) == set()
    assert compare_tables(folder)[1] == []


@pytest.mark.parametrize("table", ["speedup", "recall"])
def test_rows_that_are_lost_twice_or_invented_are_found(folder, table):
    change(folder, table, lambda rows: rows.append(row_of(rows)))
    assert wrong(folder) == {(table, "ns", "row")}
    change(folder, table, lambda rows: (rows.pop(), rows.remove(row_of(rows))))
    assert wrong(folder) == {(table, "ns", "row")}
    change(folder, table, lambda rows: row_of(rows, "strat").update(variant="s=8"))
    assert wrong(folder) == {(table, of, "row") for of in ("ns", "strat", "s=8")}


def assert_reports_agree(folder):
    assert invoke("report", folder).exit_code == 0
    assert wrong(folder) == set()
    assert compare_tables(folder)[1] == []


@pytest.mark.long_cases("2|6")
@pytest.mark.parametrize("seeds", [1, 2, 6, 7])
def test_any_number_of_seeds_agrees(tmp_path, seeds):
    for seed in range(seeds):
        recalls = [0.1, 0.2, 0.3 + 0.01 * seed], [0.1, 0.2, 0.4 - 0.01 * (seed % 3)]
        write_run(tmp_path, "iid", [9, 5, 3], 200 + 7 * (seed * 5 % 4), recalls[0], seed=seed)
        write_run(tmp_path, "ns", [9, 4, 2], 20 + (seed * 3 % 5), recalls[1], seed=seed)
    assert_reports_agree(tmp_path)


def test_every_kind_of_row_agrees(tmp_path):
    """Rows of one comparison, of several comparisons, and rows without a baseline."""

    def two(*words, **more):
        for seed in range(2):
            write_run(tmp_path, *words, seed=seed, **more)

    two("iid", [9, 5, 3], 200)
    two("iid", [9, 5, 2], 300, negatives=20)
    two("neg", [9, 5, 2], 100, negatives=20)
    two("neg", [9, 5, 2], 100, negatives=5)
    two("strat-ns", [9, 4, 2], 10, stratum_size=8)
    two("strat-ns", [9, 4, 2], 10, strata="user")
    two("mixed-ns", [9, 4, 2], 10, uniform_items=64)
    write_run(tmp_path, "ns", [9, 4, 2], 30, seed=7)
    write_run(tmp_path, "neg", [9, 4, 2], 30, loss="log", encoder="lstm", negatives=3)
    write_run(tmp_path, "ns", [9, 4, 2], 30, loss="log", encoder="lstm")
    write_run(tmp_path, "ns", [9, 4, 2], 30, epochs=7, noise="0.75", mask=False)
    write_run(tmp_path, "ns", [9, 4, 2], 30, fingerprint="e" * 64)
    for place, status in enumerate(("finished", "diverged")):
        write_run(tmp_path, "iid", [9, 4, 2], 30, epochs=8 + place, status=status)
        untimed = write_run(tmp_path, "ns", [9, 4, 2], 30, epochs=8 + place, status=status)
        change(untimed, "timing", lambda rows: rows.clear())
        nothing = dict.fromkeys(("full_iteration_seconds", "step_iteration_seconds", "item_slots"))
        change(untimed, "summary", lambda rows, gone=nothing: rows[0].update(gone))
    assert_reports_agree(tmp_path)
    rows = tables.read_rows(tmp_path / "speedup.parquet", schemas.SPEEDUP)
    statuses = "no times", "diverged", "baseline", "reached", "no baseline"
    assert {row["status"] for row in rows} >= {*statuses, "no baseline of this seed"}


def test_nothing_to_verify(tmp_path):
    write_run(tmp_path, "iid", [9, 5, 3], 200)
    check(invoke("report", tmp_path, "--verify"), 7, "ncfbench report")
