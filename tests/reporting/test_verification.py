"""Verification of tables: every fault is found, and nothing right is called wrong."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from folders import Rows, answers_of, change, write_folder, write_run
from invoked import check, invoke

from ncfbench.reporting.verify import verification
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


def test_written_tables_verify(folder):
    found = verification.verify(folder, {"answers": answers_of(folder)})
    assert found.mismatches == []
    assert found.numbers > 13 * 9 + 5 * 20 + 5 * 14
    check(invoke("report", folder, "--verify"), 0, "0 do not match")


def numbers_of(schema):
    return [field.name for field in schema if str(field.type) in ("double", "int64")]


BOUNDS = ["iterations_speedup_at_most", "total_speedup_at_most"]
NUMBERS = [name for name in numbers_of(schemas.SPEEDUP) if name not in BOUNDS]


def test_every_number_is_checked(folder):
    """Each number of a row and of a bound is changed; each is found, and nothing else."""
    columns = {"speedup": NUMBERS, "recall": numbers_of(schemas.RECALL)}

    def edit(rows):
        row = row_of(rows)
        for column in columns[table]:
            row[column] *= 1.001 if isinstance(row[column], float) else 2
        for column in BOUNDS if table == "speedup" else ():
            row_of(rows, "strat")[column] *= 1.01

    for table in columns:
        change(folder, table, edit)
    found = [
        (one.table, one.cell.split("/")[3], one.column)
        for one in verification.verify(folder).mismatches
    ]
    expected = [(table, "ns", column) for table, own in columns.items() for column in own]
    assert sorted(found) == sorted([*expected, *(("speedup", "strat", name) for name in BOUNDS)])
    check(invoke("report", folder, "--verify"), 6, *(column for _, _, column in expected))


def test_changed_raw_samples_are_found(folder):
    def slower(rows):
        for row in rows:
            row["seconds"] *= 1.1

    run = next(path for path in folder.iterdir() if "-sg-ns-seed0" in path.name)
    change(run, "timing", slower)
    found = {(one.table, one.column) for one in verification.verify(folder).mismatches}
    ratios = ("speedup", "total_speedup"), ("speedup", "per_iteration_speedup")
    assert found >= {("summary", "full_iteration_seconds"), *ratios}
    assert not any(table == "recall" for table, _ in found)


def test_deleted_and_new_runs_are_named(folder):
    gone = next(path for path in folder.iterdir() if "-sg-iid-seed1" in path.name)
    shutil.rmtree(gone)
    write_run(folder, "ns", [9, 5, 3], 200, seed=7)
    notes = [one.note for one in verification.verify(folder).mismatches]
    for column in ("runs", "baseline_runs"):
        assert f"run {gone.name} does not belong in {column}, or is not there" in notes
    assert any(
        "ns-seed7" in note and "is not in runs: run `ncfbench report` again" in note
        for note in notes
    )


def row_of(rows, sampler="ns"):
    return next(row for row in rows if row["sampler"] == sampler)


def swap_labels(rows):
    names = {"ns": "strat-ns", "strat-ns": "ns"}
    for row in rows:
        row["sampler"] = names.get(row["sampler"], row["sampler"])


def rename_the_data_set(rows):
    for row in rows:
        row["dataset"] = "news"


def set_number(row, value):
    row["total_speedup" if "total_speedup" in row else "test_recall_at_50"] = value


EDITS: dict[str, Callable[[Rows], Any]] = {
    "swap labels": swap_labels,
    "delete a row": lambda rows: rows.remove(row_of(rows)),
    "delete all": lambda rows: rows.clear(),
    "duplicate": lambda rows: rows.append(row_of(rows)),
    "rename the data set": rename_the_data_set,
    "invent a row": lambda rows: rows.append(row_of(rows) | {"variant": "s=8"}),
    "delete a number": lambda rows: set_number(row_of(rows), None),
    "leave a seed out": lambda rows: row_of(rows)["runs"].pop(),
    "list a run twice": lambda rows: row_of(rows)["runs"].append(row_of(rows)["runs"][0]),
}


@pytest.mark.long_cases("(swap|delete all|dup|inv|leave).*recall|(delete a |ren|give|list).*speed")
@pytest.mark.parametrize("table", ["speedup", "recall"])
@pytest.mark.parametrize("edit", EDITS)
def test_wrong_rows_and_runs_are_found(folder, table, edit):
    """They are found in each table, though the other is right and the numbers fit the runs."""
    change(folder, table, EDITS[edit])
    found = verification.verify(folder).mismatches
    assert found
    assert {one.table for one in found} == {table}


@pytest.mark.parametrize(
    ("table", "sampler", "column", "value"),
    [
        ("speedup", "ns", "interleaved", True),
        ("speedup", "mixed-ns", "same_environment", True),
        ("speedup", "strat", "status", "reached"),
        ("speedup", "mixed-ns", "status", "reached"),
        ("speedup", "strat", "status", "diverged"),
        ("speedup", "ns", "baseline", "neg"),
        ("recall", "ns", "status", "no recall"),
    ],
)
def test_words_of_a_row_are_checked(folder, table, sampler, column, value):
    def edit(rows):
        row = row_of(rows, sampler)
        assert row[column] != value
        row[column] = value

    change(folder, table, edit)
    (wrong,) = verification.verify(folder).mismatches
    assert (wrong.table, wrong.column, wrong.written) == (table, column, value)


def test_an_older_run_of_a_seed_is_wrong(folder):
    write_run(folder, "ns", [9, 4, 2], 99, time="2026-03-01")
    assert any("-ns-seed0" in one.note for one in verification.verify(folder).mismatches)
    assert invoke("report", folder).exit_code == 0
    assert verification.verify(folder).mismatches == []


def test_a_row_with_a_diverged_run(folder):
    """It keeps its runs and times, but no figure that only the other seeds could give."""
    run = next(path for path in folder.iterdir() if "-sg-ns-seed1" in path.name)
    change(run, "summary", lambda rows: rows[0].update(status="diverged"))
    found = verification.verify(folder).mismatches
    statuses = {(one.table, one.recomputed) for one in found if one.column == "status"}
    assert statuses == {("speedup", "diverged"), ("recall", "diverged")}
    gone = {(one.table, one.column): one.recomputed for one in found if one.column != "status"}
    assert set(gone.values()) == {None}
    columns = {column for _, column in gone}
    ratios = {"total_speedup", "iterations_speedup_lower", "reference_loss", "seeds_reached"}
    assert columns >= {*ratios, "test_recall_at_50"}
    kept = ("per_iteration_speedup", "iteration_seconds")
    assert not any(word in column for column in columns for word in kept)
    for table in ("speedup", "recall"):
        own = {"status": "diverged"} | {column: None for name, column in gone if name == table}
        change(folder, table, lambda rows, own=own: row_of(rows).update(own))
    assert verification.verify(folder).mismatches == []


def assert_reports_verify(folder):
    assert invoke("report", folder).exit_code == 0
    assert verification.verify(folder, {"answers": answers_of(folder)}).mismatches == []


@pytest.mark.long_cases("2|6")
@pytest.mark.parametrize("seeds", [1, 2, 6, 7])
def test_any_number_of_seeds_verifies(tmp_path, seeds):
    for seed in range(seeds):
        recalls = [0.1, 0.2, 0.3 + 0.01 * seed], [0.1, 0.2, 0.4 - 0.01 * (seed % 3)]
        write_run(tmp_path, "iid", [9, 5, 3], 200 + 7 * (seed * 5 % 4), recalls[0], seed=seed)
        write_run(tmp_path, "ns", [9, 4, 2], 20 + (seed * 3 % 5), recalls[1], seed=seed)
    assert_reports_verify(tmp_path)


def test_arms_with_one_common_seed_verify(tmp_path):
    """ns is sooner on average, but not on the seed that both have."""
    for seed in range(3):
        write_run(tmp_path, "iid", [9, 5, 3], 200, seed=seed)
        write_run(tmp_path, "strat-ns", [9, 5, 2], 95 if seed == 0 else 200, seed=seed)
    write_run(tmp_path, "ns", [9, 5, 2], 100)
    assert_reports_verify(tmp_path)
    (answer,) = answers_of(tmp_path)
    statuses = {arm["sampler"]: arm["status"] for arm in answer["arms"]}
    assert (statuses["ns"], statuses["strat-ns"]) == ("best", "tied")


def test_validation_recall_chooses_the_epoch(tmp_path):
    run = write_run(tmp_path, "iid", [9, 5, 4, 3], 200, [0.1, 0.2, 0.3, 0.4], patience=1)

    def validate(curve):
        for row, value in zip(curve, (0.1, 0.5, 0.4, 0.9), strict=True):
            row["validation_recall_at_50"] = value

    def choose(summaries):
        first = tables.read_rows(run / "curve.parquet", schemas.CURVE)[1]
        recalls = {name: first[name] for name in (f"test_recall_at_{m}" for m in schemas.CUTOFFS)}
        summaries[0] |= {"reported_epoch": 1.0} | recalls

    change(run, "curve", validate)
    change(run, "summary", choose)
    assert_reports_verify(tmp_path)


def test_every_kind_of_row_verifies(tmp_path):
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
    write_run(tmp_path, "neg", [9, 4, 2], 30, loss="log", negatives=3)
    write_run(tmp_path, "neg", [9, 4, 2], 30, loss="log", negatives=4)
    write_run(tmp_path, "ns", [9, 4, 2], 30, loss="log")
    write_run(tmp_path, "ns", [9, 4, 2], 30, epochs=7, noise="0.75", mask=False)
    write_run(tmp_path, "ns", [9, 4, 2], 30, fingerprint="e" * 64)
    for place, status in enumerate(("finished", "diverged")):
        write_run(tmp_path, "iid", [9, 4, 2], 30, epochs=8 + place, status=status)
        untimed = write_run(tmp_path, "ns", [9, 4, 2], 30, epochs=8 + place, status=status)
        change(untimed, "timing", lambda rows: rows.clear())
        nothing = dict.fromkeys(("full_iteration_seconds", "step_iteration_seconds", "item_slots"))
        change(untimed, "summary", lambda rows, gone=nothing: rows[0].update(gone))
    assert_reports_verify(tmp_path)
    rows = tables.read_rows(tmp_path / "speedup.parquet", schemas.SPEEDUP)
    statuses = "no times", "diverged", "baseline", "reached", "no baseline"
    assert {row["status"] for row in rows} >= {*statuses, "no baseline of this seed"}


def test_nothing_to_verify(tmp_path):
    write_run(tmp_path, "iid", [9, 5, 3], 200)
    check(invoke("report", tmp_path, "--verify"), 7, "ncfbench report")
