"""Verification of tables with faults: every fault is found, and nothing else."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from folders import Rows, change, write_folder, write_run
from invoked import invoke
from test_profiled_speedups import profile

from ncfbench.reporting.collecting import collect
from ncfbench.reporting.verify import verification
from ncfbench.reporting.views.answers import as_rows
from ncfbench.storage import schemas, tables


@pytest.fixture(scope="module")
def reported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = write_folder(tmp_path_factory.mktemp("runs"))
    write_run(folder, "mixed-ns", [9, 4, 3.5], 30, time="2026-01-02", key="two")
    assert invoke("report", folder).exit_code == 0
    return folder


@pytest.fixture
def folder(reported: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(reported, tmp_path / "runs"))


@pytest.fixture
def answered(tmp_path: Path) -> Path:
    """Runs of one machine, which have an answer with all arms."""
    folder = write_folder(tmp_path / "answered")
    assert invoke("report", folder).exit_code == 0
    return folder


def answers_of(folder: Path) -> Rows:
    """The answers as ``report --json`` prints them."""
    return as_rows(collect(folder, folder).answers, {})


def test_written_tables_verify(folder: Path) -> None:
    found = verification.verify(folder, answers_of(folder))
    assert found.mismatches == []
    assert found.numbers > 13 * 9 + 5 * 20 + 5 * 14
    result = invoke("report", folder, "--verify")
    assert result.exit_code == 0, result.output
    assert "0 do not match" in result.stdout


BOUNDS = ["iterations_speedup_at_most", "total_speedup_at_most"]
NUMBERS = [
    field.name
    for field in schemas.SPEEDUP
    if str(field.type) in ("double", "int64") and field.name not in BOUNDS
]


def test_every_number_is_checked(folder: Path) -> None:
    """Each number of a row and of a bound is changed; each is found, and nothing else."""
    columns = {
        "speedup": NUMBERS,
        "recall": [
            field.name for field in schemas.RECALL if str(field.type) in ("double", "int64")
        ],
    }

    def edit(rows: Rows) -> None:
        by_sampler = {row["sampler"]: row for row in rows}
        for column in columns[table]:
            value = by_sampler["ns"][column]
            by_sampler["ns"][column] = value * 1.001 if isinstance(value, float) else value + 1
        for column in BOUNDS if table == "speedup" else ():
            by_sampler["strat"][column] *= 1.01

    for table in columns:
        change(folder / f"{table}.parquet", getattr(schemas, table.upper()), edit)
    found = [
        (one.table, one.cell.split("/")[3], one.column)
        for one in verification.verify(folder).mismatches
    ]
    expected = [(table, "ns", column) for table, own in columns.items() for column in own]
    assert sorted(found) == sorted([*expected, *(("speedup", "strat", name) for name in BOUNDS)])
    result = invoke("report", folder, "--verify")
    assert result.exit_code == 6
    assert all(column in result.stdout for _, _, column in expected)


ANSWERED = {
    "item_slots": 1.001,
    "full_iteration_seconds": 1.001,
    "iterations_to_target": 1.001,
    "seconds_to_target": 1.001,
    "times_sooner": 1.001,
    "times_sooner_lower": 1.001,
    "times_sooner_upper": 1.001,
    "seeds": 2,
    "sampler": 2,
    "status": 2,
}


def test_every_value_of_an_answer_is_checked(answered: Path) -> None:
    """Numbers of an arm, the recall at its end, its bound, the target, the best; and no other."""
    (answer,) = answers_of(answered)
    arms = {arm["sampler"]: arm for arm in answer["arms"]}
    for column, factor in ANSWERED.items():
        arms["ns"][column] *= factor
    (end,) = (found for found in arms["ns"]["quality"] if "end" in found["moments"])
    end["values"]["recall_at_50"] *= 1.001
    arms["strat"]["times_sooner_at_most"] *= 1.01
    answer["target"] += 0.001
    answer["best"] = "IID"
    found = verification.verify(answered, [answer]).mismatches
    assert {one.table for one in found} == {"answer"}
    name = "citeulike/cnn/sg"
    assert sorted((one.cell, one.column) for one in found) == sorted(
        [
            *((f"{name}/N.S.", column) for column in (*ANSWERED, "recall_at_50")),
            (f"{name}/Stratified", "times_sooner_at_most"),
            *((name, column) for column in ("target", "best")),
        ]
    )


def test_arms_of_an_answer_have_their_runs(answered: Path) -> None:
    (answer,) = answers_of(answered)
    first, second, third = answer["arms"][:3]
    first["runs"] = first["runs"][:-1]
    second["arm"], third["arm"] = third["arm"], second["arm"]
    notes = [one.note for one in verification.verify(answered, [answer]).mismatches]
    assert sum("no arm has just" in note for note in notes) == 2
    assert sum("its name lacks" in note for note in notes) == 2
    gone = verification.verify(answered, []).mismatches
    assert {one.note for one in gone} == {"no answer has this run"}


@pytest.mark.parametrize("key", ["one", "other"])
def test_answers_with_a_profile_s_times_verify(tmp_path: Path, key: str) -> None:
    """Runs of two machines have the profile's times; those of one that took turns their own."""
    turns = {"interleaved": ["a"]} if key == "one" else {}
    for seed in (0, 1):
        write_run(tmp_path, "iid", [9, 5, 3], 400, seed=seed, **turns)
        write_run(tmp_path, "ns", [9, 4 - seed, 2], 4000, seed=seed, key=key, **turns)
        write_run(tmp_path, "strat", [9, 4, 1], 1, seed=seed, **turns)
    rows = [row | {"rounds": 7} for row in profile(("iid", 40), ("ns", 10))]
    tables.write_rows(tmp_path / "costmodel.parquet", rows, schemas.COSTMODEL)
    assert invoke("report", tmp_path).exit_code == 0
    (answer,) = answers_of(tmp_path)
    assert answer["profile_rounds"] == (None if key == "one" else 7)
    assert verification.verify(tmp_path, [answer]).mismatches == []
    answer["arms"][0]["times_sooner_upper"] *= 1.001
    (wrong,) = verification.verify(tmp_path, [answer]).mismatches
    assert wrong.column == "times_sooner_upper"


def test_a_changed_summary_changes_the_answer(answered: Path) -> None:
    """The answer's times are those of the summaries, the second computation's of raw samples."""

    def faster(rows: Rows) -> None:
        rows[0]["full_iteration_seconds"] /= 2

    run = next(path for path in answered.iterdir() if "-sg-ns-seed0" in path.name)
    change(run / "summary.parquet", schemas.SUMMARY, faster)
    result = invoke("report", answered, "--verify")
    assert result.exit_code == 6
    assert "citeulike/cnn/sg/N.S." in result.stdout
    assert "times_sooner_lower" in result.stdout


def test_invented_and_deleted_values_are_found(folder: Path) -> None:
    def edit(rows: Rows) -> None:
        by_sampler = {row["sampler"]: row for row in rows}
        by_sampler["strat"]["total_speedup"] = 9.0
        by_sampler["ns"]["total_speedup"] = None

    change(folder / "speedup.parquet", schemas.SPEEDUP, edit)
    found = {(one.cell.split("/")[3], one.column) for one in verification.verify(folder).mismatches}
    assert found == {("strat", "total_speedup"), ("ns", "total_speedup")}


def test_changed_raw_samples_are_found(folder: Path) -> None:
    def slower(rows: Rows) -> None:
        for row in rows:
            row["seconds"] *= 1.1

    run = next(
        path
        for path in folder.iterdir()
        if "-ns-seed0" in path.name and "strat" not in path.name and "mixed" not in path.name
    )
    change(run / "timing.parquet", schemas.TIMING, slower)
    found = {(one.table, one.column) for one in verification.verify(folder).mismatches}
    assert {
        ("summary", "full_iteration_seconds"),
        ("speedup", "total_speedup"),
        ("speedup", "per_iteration_speedup"),
    } <= found
    assert not any(table == "recall" for table, _ in found)


def test_deleted_and_new_runs_are_named(folder: Path) -> None:
    gone = next(path for path in folder.iterdir() if "-strat-ns-seed1" in path.name)
    shutil.rmtree(gone)
    write_run(folder, "neg", [9, 5, 3], 200)
    notes = [one.note for one in verification.verify(folder).mismatches]
    assert f"run {gone.name} does not belong in runs, or is not there" in notes
    assert any(
        "neg-seed0" in note and "is not in runs: run `ncfbench report` again" in note
        for note in notes
    )


def swap_labels(rows: Rows) -> None:
    names = {"ns": "strat-ns", "strat-ns": "ns"}
    for row in rows:
        row["sampler"] = names.get(row["sampler"], row["sampler"])


def delete_a_row(rows: Rows) -> None:
    rows.remove(next(row for row in rows if row["sampler"] == "ns"))


def delete_a_row_without_runs(rows: Rows) -> None:
    rows.remove(next(row for row in rows if row["status"] == "missing"))


def delete_all(rows: Rows) -> None:
    rows.clear()


def duplicate(rows: Rows) -> None:
    rows.append(next(row for row in rows if row["sampler"] == "ns"))


def rename_the_data_set(rows: Rows) -> None:
    for row in rows:
        row["dataset"] = "news"


def invent_a_row(rows: Rows) -> None:
    rows.append(next(row for row in rows if row["sampler"] == "ns") | {"variant": "s=8"})


def give_a_row_without_runs_a_number(rows: Rows) -> None:
    row = next(row for row in rows if row["status"] == "missing")
    row["total_speedup" if "total_speedup" in row else "test_recall_at_50"] = 0.5


def leave_a_seed_out(rows: Rows) -> None:
    row = next(row for row in rows if row["sampler"] == "ns")
    row["runs"] = row["runs"][:-1]


def list_a_run_twice(rows: Rows) -> None:
    row = next(row for row in rows if row["sampler"] == "ns")
    row["runs"] = [*row["runs"], row["runs"][0]]


EDITS = (
    swap_labels,
    delete_a_row,
    delete_a_row_without_runs,
    delete_all,
    duplicate,
    rename_the_data_set,
    invent_a_row,
    give_a_row_without_runs_a_number,
    leave_a_seed_out,
    list_a_run_twice,
)


@pytest.mark.parametrize("table", ["speedup", "recall"])
@pytest.mark.parametrize("edit", EDITS, ids=lambda edit: edit.__name__)
def test_wrong_rows_and_runs_are_found(
    folder: Path, table: str, edit: Callable[[Rows], None]
) -> None:
    """They are found in each table, though the other is right and the numbers fit the runs."""
    change(folder / f"{table}.parquet", getattr(schemas, table.upper()), edit)
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
        ("speedup", "neg", "status", "diverged"),
        ("speedup", "ns", "baseline", "neg"),
        ("recall", "ns", "status", "no recall"),
    ],
)
def test_words_of_a_row_are_checked(
    folder: Path, table: str, sampler: str, column: str, value: object
) -> None:
    def edit(rows: Rows) -> None:
        row = next(row for row in rows if row["sampler"] == sampler)
        assert row[column] != value
        row[column] = value

    change(folder / f"{table}.parquet", getattr(schemas, table.upper()), edit)
    (wrong,) = verification.verify(folder).mismatches
    assert (wrong.table, wrong.column, wrong.written) == (table, column, value)


def test_picked_seeds_are_found(tmp_path: Path) -> None:
    """A slow seed is moved away before the report, and comes back after it."""
    write_folder(tmp_path / "runs")
    slow = next(path for path in (tmp_path / "runs").iterdir() if "-sg-ns-seed2" in path.name)
    slow.rename(tmp_path / "aside")
    assert invoke("report", tmp_path / "runs").exit_code == 0
    (tmp_path / "aside").rename(slow)
    found = verification.verify(tmp_path / "runs").mismatches
    assert {(one.table, one.column) for one in found} == {
        ("speedup", "runs"),
        ("speedup", "baseline_runs"),
        ("recall", "runs"),
    }
    assert slow.name in found[0].note


def test_an_older_run_of_a_seed_is_wrong(folder: Path) -> None:
    write_run(folder, "ns", [9, 4, 2], 99, time="2026-03-01")
    assert any("-ns-seed0" in one.note for one in verification.verify(folder).mismatches)
    assert invoke("report", folder).exit_code == 0
    assert verification.verify(folder).mismatches == []


def test_mixed_environments_verify(folder: Path) -> None:
    assert invoke("report", folder, "--allow-mixed").exit_code == 0
    assert verification.verify(folder).mismatches == []


def test_a_row_with_a_diverged_run(folder: Path) -> None:
    """It keeps its runs and times, but no figure that only the other seeds could give."""
    run = next(path for path in folder.iterdir() if "-sg-ns-seed1" in path.name)

    def diverge(rows: Rows) -> None:
        rows[0]["status"] = "diverged"

    def row_of(rows: Rows) -> dict[str, Any]:
        return next(row for row in rows if row["sampler"] == "ns")

    change(run / "summary.parquet", schemas.SUMMARY, diverge)
    found = verification.verify(folder).mismatches
    assert {(one.table, one.recomputed) for one in found if one.column == "status"} == {
        ("speedup", "diverged"),
        ("recall", "diverged"),
    }
    gone = [one.column for one in found if one.column != "status"]
    assert all(one.recomputed is None for one in found if one.column != "status")
    assert {
        "total_speedup",
        "iterations_speedup_lower",
        "reference_loss",
        "seeds_reached",
        "test_recall_at_50",
    } <= set(gone)
    assert not any(
        "per_iteration_speedup" in column or column.endswith("iteration_seconds") for column in gone
    )

    def mark(rows: Rows) -> None:
        row_of(rows).update({"status": "diverged"} | dict.fromkeys(gone_here))

    for table in ("speedup", "recall"):
        gone_here = [one.column for one in found if one.column != "status" and one.table == table]
        change(folder / f"{table}.parquet", getattr(schemas, table.upper()), mark)
    assert verification.verify(folder).mismatches == []


def test_nothing_to_verify(tmp_path: Path) -> None:
    write_run(tmp_path, "iid", [9, 5, 3], 200)
    result = invoke("report", tmp_path, "--verify")
    assert result.exit_code == 7
    assert "ncfbench report" in result.output
