"""Recomputing the tables, and two folders side by side: what is wrong must be found, and nothing else."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from folders import write_folder, write_run
from typer.testing import CliRunner, Result

from ncfbench import runs, schemas, tables
from ncfbench.cli import app
from ncfbench.report import described, verification
from ncfbench.report.regression import parse_limit


def invoke(*words: str | Path) -> Result:
    return CliRunner().invoke(app, ["report", *map(str, words)])


@pytest.fixture(scope="module")
def reported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = write_folder(tmp_path_factory.mktemp("runs"))
    write_run(folder, "mixed-ns", [9, 4, 3.5], 30, time="2026-01-02", key="two")
    assert invoke(folder).exit_code == 0
    return folder


@pytest.fixture
def folder(reported: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(reported, tmp_path / "runs"))


def test_what_report_wrote_comes_out_again(folder: Path) -> None:
    found = verification.verify(folder)
    assert found.mismatches == []
    assert found.numbers > 13 * 9 + 5 * 20
    result = invoke(folder, "--verify")
    assert result.exit_code == 0, result.output
    assert "0 do not match" in result.stdout


@pytest.mark.parametrize("seeds", [1, 2, 5, 8, 9])
def test_any_number_of_seeds_comes_out_again(tmp_path: Path, seeds: int) -> None:
    for seed in range(seeds):
        write_run(tmp_path, "iid", [9, 5, 3], 200 + 7 * (seed * 5 % 4), [0.1, 0.2, 0.3 + 0.01 * seed], seed=seed)
        write_run(tmp_path, "ns", [9, 4, 2], 20 + (seed * 3 % 5), [0.1, 0.2, 0.4 - 0.01 * (seed % 3)], seed=seed)
    assert invoke(tmp_path).exit_code == 0
    assert verification.verify(tmp_path).mismatches == []


def test_validation_recall_chooses_the_same_epoch(tmp_path: Path) -> None:
    run = write_run(tmp_path, "iid", [9, 5, 4, 3], 200, [0.1, 0.2, 0.3, 0.4], patience=1)
    curve = tables.read_rows(run / "curve.parquet", schemas.CURVE)
    for row, value in zip(curve, (0.1, 0.5, 0.4, 0.9), strict=True):
        row["validation_recall_at_50"] = value
    tables.write_rows(run / "curve.parquet", curve, schemas.CURVE)
    (summary,) = tables.read_rows(run / "summary.parquet", schemas.SUMMARY)
    summary |= {"reported_epoch": 1.0} | {f"test_recall_at_{m}": curve[1][f"test_recall_at_{m}"] for m in schemas.CUTOFFS}
    tables.write_rows(run / "summary.parquet", [summary], schemas.SUMMARY)
    assert invoke(tmp_path).exit_code == 0
    assert verification.verify(tmp_path).mismatches == []


def change(path: Path, schema: Any, edit: Callable[[list[dict[str, Any]]], None]) -> None:
    rows = tables.read_rows(path, schema)
    edit(rows)
    tables.write_rows(path, rows, schema)


NUMBERS = [
    field.name for field in schemas.SPEEDUP
    if str(field.type) in ("double", "int64") and not field.name.endswith("_at_most")
]  # fmt: skip


@pytest.mark.parametrize("column", NUMBERS)
def test_every_number_of_the_speedup_table_is_checked(folder: Path, column: str) -> None:
    def edit(rows: list[dict[str, Any]]) -> None:
        row = next(row for row in rows if row["sampler"] == "ns")
        row[column] = row[column] * 1.001 if isinstance(row[column], float) else row[column] + 1

    change(folder / "speedup.parquet", schemas.SPEEDUP, edit)
    (wrong,) = verification.verify(folder).mismatches
    assert (wrong.table, wrong.column) == ("speedup", column)
    assert "ns" in wrong.cell
    result = invoke(folder, "--verify")
    assert result.exit_code == 6
    assert column in result.stdout


@pytest.mark.parametrize("column", ["iterations_speedup_at_most", "total_speedup_at_most"])
def test_bounds_are_checked(folder: Path, column: str) -> None:
    def edit(rows: list[dict[str, Any]]) -> None:
        next(row for row in rows if row["sampler"] == "strat")[column] *= 1.01

    change(folder / "speedup.parquet", schemas.SPEEDUP, edit)
    assert [one.column for one in verification.verify(folder).mismatches] == [column]


@pytest.mark.parametrize("column", [field.name for field in schemas.RECALL if str(field.type) in ("double", "int64")])
def test_every_number_of_the_recall_table_is_checked(folder: Path, column: str) -> None:
    def edit(rows: list[dict[str, Any]]) -> None:
        row = next(row for row in rows if row["sampler"] == "ns")
        row[column] += 0.01 if isinstance(row[column], float) else 1

    change(folder / "recall.parquet", schemas.RECALL, edit)
    assert [one.column for one in verification.verify(folder).mismatches] == [column]


def test_a_value_that_was_made_up_or_taken_away_is_found(folder: Path) -> None:
    def edit(rows: list[dict[str, Any]]) -> None:
        by_sampler = {row["sampler"]: row for row in rows}
        by_sampler["strat"]["total_speedup"] = 9.0
        by_sampler["ns"]["total_speedup"] = None

    change(folder / "speedup.parquet", schemas.SPEEDUP, edit)
    found = {(one.cell.split("/")[3], one.column) for one in verification.verify(folder).mismatches}
    assert found == {("strat", "total_speedup"), ("ns", "total_speedup")}


def test_raw_samples_that_say_something_else_are_found(folder: Path) -> None:
    def slower(rows: list[dict[str, Any]]) -> None:
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


def test_runs_that_went_or_came_since_are_named(folder: Path) -> None:
    gone = next(path for path in folder.iterdir() if "-strat-ns-seed1" in path.name)
    shutil.rmtree(gone)
    write_run(folder, "neg", [9, 5, 3], 200)
    notes = [one.note for one in verification.verify(folder).mismatches]
    assert f"run {gone.name} is not there" in notes
    assert any("neg-seed0" in note and "is not in runs: run `ncfbench report` again" in note for note in notes)


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


Rows = list[dict[str, Any]]
EDITS = (
    swap_labels, delete_a_row, delete_a_row_without_runs, delete_all, duplicate, rename_the_data_set, invent_a_row,
    give_a_row_without_runs_a_number, leave_a_seed_out, list_a_run_twice,
)  # fmt: skip


@pytest.mark.parametrize("table", ["speedup", "recall"])
@pytest.mark.parametrize("edit", EDITS, ids=lambda edit: edit.__name__)
def test_rows_and_runs_out_of_place_are_found_in_each_table(folder: Path, table: str, edit: Callable[[Rows], None]) -> None:
    """Also where the other table is as it should be, and every number in the row comes out of the runs that it names."""
    change(folder / f"{table}.parquet", getattr(schemas, table.upper()), edit)
    found = verification.verify(folder).mismatches
    assert found
    assert {one.table for one in found} == {table}
    assert invoke(folder, "--verify").exit_code == 6


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
def test_what_a_row_says_in_words_is_checked(folder: Path, table: str, sampler: str, column: str, value: object) -> None:
    def edit(rows: Rows) -> None:
        row = next(row for row in rows if row["sampler"] == sampler)
        assert row[column] != value
        row[column] = value

    change(folder / f"{table}.parquet", getattr(schemas, table.upper()), edit)
    (wrong,) = verification.verify(folder).mismatches
    assert (wrong.table, wrong.column, wrong.written) == (table, column, value)
    assert str(value) in invoke(folder, "--verify").stdout


def test_seeds_that_were_picked_are_found(tmp_path: Path) -> None:
    """The tables of a folder from which a slow seed was taken away, and given back after the report."""
    write_folder(tmp_path / "runs")
    slow = next(path for path in (tmp_path / "runs").iterdir() if "-sg-ns-seed2" in path.name)
    slow.rename(tmp_path / "aside")
    assert invoke(tmp_path / "runs").exit_code == 0
    (tmp_path / "aside").rename(slow)
    found = verification.verify(tmp_path / "runs").mismatches
    assert {(one.table, one.column) for one in found} == {
        ("speedup", "runs"),
        ("speedup", "baseline_runs"),
        ("recall", "runs"),
    }
    assert slow.name in found[0].note


def test_an_older_run_of_a_seed_is_out_of_place(folder: Path) -> None:
    write_run(folder, "ns", [9, 4, 2], 99, time="2026-03-01")
    assert any("-ns-seed0" in one.note for one in verification.verify(folder).mismatches)
    assert invoke(folder).exit_code == 0
    assert verification.verify(folder).mismatches == []


def test_times_of_two_environments_divided_all_the_same(folder: Path) -> None:
    assert invoke(folder, "--allow-mixed").exit_code == 0
    assert verification.verify(folder).mismatches == []


def test_every_kind_of_row_comes_out_again(tmp_path: Path) -> None:
    """Rows of one comparison, comparisons beside each other, and rows with nothing to be compared with."""

    def two(*words: Any, **more: Any) -> None:
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
    for sampler, rate in (("iid", 0.02), ("ns", 0.03)):
        write_run(tmp_path, sampler, [9, 4, 2], 30, tuned="learning_rate:4x2", learning_rate=rate)
    for place, status in enumerate(("finished", "diverged")):
        write_run(tmp_path, "iid", [9, 4, 2], 30, epochs=8 + place, status=status)
        untimed = write_run(tmp_path, "ns", [9, 4, 2], 30, epochs=8 + place, status=status)
        change(untimed / "timing.parquet", schemas.TIMING, delete_all)
        nothing = dict.fromkeys(("full_iteration_seconds", "step_iteration_seconds", "item_slots"))
        change(untimed / "summary.parquet", schemas.SUMMARY, lambda rows, gone=nothing: rows[0].update(gone))
    assert invoke(tmp_path).exit_code == 0
    assert verification.verify(tmp_path).mismatches == []
    rows = tables.read_rows(tmp_path / "speedup.parquet", schemas.SPEEDUP)
    assert {row["status"] for row in rows} >= {
        "no times",
        "diverged",
        "baseline",
        "reached",
        "missing",
        "no baseline",
        "no baseline of this seed",
    }
    assert sum(row["settings"] == "tuned=learning_rate:4x2" and row["status"] != "missing" for row in rows) == 2


def test_a_row_of_which_a_run_diverged(folder: Path) -> None:
    """It keeps its runs and times; how soon the reference is reached, and recall, would be that of the seeds that survived."""
    run = next(path for path in folder.iterdir() if "-sg-ns-seed1" in path.name)

    def diverge(rows: Rows) -> None:
        rows[0]["status"] = "diverged"

    def row_of(rows: Rows) -> dict[str, Any]:
        return next(row for row in rows if row["sampler"] == "ns")

    change(run / "summary.parquet", schemas.SUMMARY, diverge)
    found = verification.verify(folder).mismatches
    assert {(one.table, one.recomputed) for one in found if one.column == "status"} == {
        ("speedup", "diverged"), ("recall", "diverged"),
    }  # fmt: skip
    gone = [one.column for one in found if one.column != "status"]
    assert all(one.recomputed is None for one in found if one.column != "status")
    assert {"total_speedup", "iterations_speedup_lower", "reference_loss", "seeds_reached", "test_recall_at_50"} <= set(gone)
    assert not any("per_iteration_speedup" in column or column.endswith("iteration_seconds") for column in gone)

    def mark(rows: Rows) -> None:
        row_of(rows).update({"status": "diverged"} | dict.fromkeys(gone_here))

    for table in ("speedup", "recall"):
        gone_here = [one.column for one in found if one.column != "status" and one.table == table]
        change(folder / f"{table}.parquet", getattr(schemas, table.upper()), mark)
    assert verification.verify(folder).mismatches == []


def test_nothing_to_verify(tmp_path: Path) -> None:
    write_run(tmp_path, "iid", [9, 5, 3], 200)
    result = invoke(tmp_path, "--verify")
    assert result.exit_code == 7
    assert "ncfbench report" in result.output


def changes(*words: str | Path) -> tuple[int, dict[tuple[str, str], dict[str, Any]]]:
    result = invoke(*words, "--json")
    document = json.loads(result.stdout)
    return result.exit_code, {(row["sampler"], row["measure"]): row for row in document["changes"]}


def test_a_folder_against_itself(folder: Path) -> None:
    code, found = changes(folder, "--against", folder)
    assert code == 0
    assert all(row["gain"] == pytest.approx(1) for row in found.values())
    assert (found["ns", "total_speedup"]["seeds"], found["ns", "full_iteration_seconds"]["own"]) == (3, pytest.approx(0.021))


def test_a_slower_sampler_is_a_regression_past_the_limit(folder: Path, tmp_path: Path) -> None:
    slow = write_folder(tmp_path / "slow", slower=1.2)
    write_run(slow, "mixed-ns", [9, 4, 3.5], 30, time="2026-01-02", key="two")
    code, found = changes(slow, "--against", folder)
    assert code == 6
    row = found["ns", "full_iteration_seconds"]
    assert (row["gain"], row["regressed"]) == (pytest.approx(1 / 1.2), True)
    assert row["lower"] == pytest.approx(row["upper"]), "every seed by the same factor"
    assert {key for key, one in found.items() if one["regressed"]} == {
        ("ns", name)
        for name in ("full_iteration_seconds", "step_iteration_seconds", "per_iteration_speedup", "total_speedup")
    }
    assert changes(slow, "--against", folder, "--regression", "25%")[0] == 0
    assert changes(folder, "--against", slow)[0] == 0, "faster is no regression"
    text = invoke(slow, "--against", folder).stdout
    assert "REGRESSED" in text
    assert "more than 10 %" in text


@pytest.mark.parametrize(("factors", "clear"), [((1.2,), None), ((1.2, 1.2), True), ((1.0, 1.5, 1.1), False)])
def test_one_rule_for_any_number_of_seeds(tmp_path: Path, factors: tuple[float, ...], clear: bool | None) -> None:
    """The same centre past the limit with one seed, and with several that agree or do not; the interval is named beside it."""
    for seed, factor in enumerate(factors):
        write_run(tmp_path / "a", "iid", [9, 5, 3], 200 * factor, seed=seed)
        write_run(tmp_path / "b", "iid", [9, 5, 3], 200, seed=seed)
    code, found = changes(tmp_path / "a", "--against", tmp_path / "b")
    row = found["iid", "full_iteration_seconds"]
    assert row["gain"] < 1 / 1.1
    assert (code, row["regressed"], row["clear"]) == (6, True, clear)
    assert ("interval holds 1" in row["note"]) == (clear is False)
    assert changes(tmp_path / "a", "--against", tmp_path / "b", "--regression", "21%")[0] == 0
    assert changes(tmp_path / "b", "--against", tmp_path / "a")[0] == 0


def test_a_change_below_the_limit_is_none_however_clear(tmp_path: Path) -> None:
    for seed in range(3):
        write_run(tmp_path / "a", "iid", [9, 5, 3], 210, seed=seed)
        write_run(tmp_path / "b", "iid", [9, 5, 3], 200, seed=seed)
    code, found = changes(tmp_path / "a", "--against", tmp_path / "b")
    assert (code, found["iid", "full_iteration_seconds"]["clear"]) == (0, True)


def pair_of_folders(tmp_path: Path, *, seeds: int = 2) -> tuple[Path, Path]:
    """The first without ns, the second with an ns that is 10 times as fast and needs 150 of the 200 iterations."""
    for name in ("a", "b"):
        for seed in range(seeds):
            write_run(tmp_path / name, "iid", [9, 5, 3], 200, [0.1, 0.2, 0.3], seed=seed)
    for seed in range(seeds):
        write_run(tmp_path / "b", "ns", [9, 4, 2], 20, [0.1, 0.2, 0.3], seed=seed)
    return tmp_path / "a", tmp_path / "b"


def test_a_sampler_that_is_not_there_any_more_is_a_regression(tmp_path: Path) -> None:
    without, with_ns = pair_of_folders(tmp_path)
    code, found = changes(without, "--against", with_ns)
    assert code == 6
    assert (found["ns", ""]["regressed"], found["ns", ""]["note"]) == (
        True,
        "lost: no finished run; only in the second folder",
    )
    text = invoke(without, "--against", with_ns)
    assert "REGRESSED lost: no finished run" in " ".join(text.stdout.split())
    code, found = changes(with_ns, "--against", without)
    assert (code, found["ns", ""]["note"]) == (0, "only in the first folder")


def test_a_reference_that_is_not_reached_any_more_is_a_regression(tmp_path: Path) -> None:
    first, second = pair_of_folders(tmp_path)
    write_run(first, "ns", [9, 4, 2], 20, [0.1, 0.2, 0.3], seed=0)
    write_run(first, "ns", [9, 4, 3.1], 20, [0.1, 0.2, 0.3], seed=1)
    code, found = changes(first, "--against", second, "--regression", "99%")
    assert code == 6
    assert {key for key, row in found.items() if row["regressed"]} == {("ns", "iterations_speedup"), ("ns", "total_speedup")}
    row = found["ns", "total_speedup"]
    assert (row["own"], row["gain"], row["note"]) == (None, None, "lost: not reached (1 of 2 seeds)")
    assert row["other"] == pytest.approx(10 * 200 / 150)
    # With the 200 iterations of which seed 1 made use: 10 instead of 13.33, and seed 0 as it was.
    assert row["gain_at_most"] == pytest.approx((150 / 200) ** 0.5)
    assert "at most 0.866" in " ".join(invoke(first, "--against", second).stdout.split())
    code, found = changes(second, "--against", first)
    assert (code, found["ns", "total_speedup"]["note"]) == (0, ""), "what the second did not reach was not lost"
    assert found["ns", "total_speedup"]["seeds"] == 1


def test_a_seed_that_diverged_is_a_regression_but_for_its_times(tmp_path: Path) -> None:
    first, second = pair_of_folders(tmp_path)
    write_run(first, "ns", [9, 4, 2], 20, [0.1, 0.2, 0.3], seed=0)
    write_run(first, "ns", [9, 4], 20, [0.1, 0.2], seed=1, status="diverged")
    code, found = changes(first, "--against", second)
    assert code == 6
    assert {key[1]: row["note"] for key, row in found.items() if row["regressed"]} == dict.fromkeys(
        ("smallest_probe_loss", "test_recall_at_50", "iterations_speedup", "total_speedup"), "lost: diverged (1 of 2 seeds)"
    )
    assert found["ns", "per_iteration_speedup"]["gain"] == pytest.approx(1)
    assert changes(second, "--against", first)[0] == 0


def test_other_things_to_lose(tmp_path: Path) -> None:
    first, second = pair_of_folders(tmp_path, seeds=1)
    write_run(first, "ns", [9, 4, 2], 20, key="two")
    _, found = changes(first, "--against", second)
    assert found["ns", "test_recall_at_50"]["note"] == "lost: no recall"
    assert found["ns", "total_speedup"]["note"] == "lost: arm and baseline of different environments"
    assert found["ns", "iterations_speedup"]["gain"] == pytest.approx(1), "iterations are the same on any machine"
    baseline = next(path for path in first.iterdir() if "-iid-" in path.name)
    shutil.rmtree(baseline)
    _, found = changes(first, "--against", second)
    assert found["ns", "iterations_speedup"]["note"] == "lost: no baseline of this seed"
    assert found["iid", ""]["regressed"]


def test_seeds_that_were_not_run_are_named_and_no_regression(tmp_path: Path) -> None:
    first, second = pair_of_folders(tmp_path)
    write_run(first, "ns", [9, 4, 2], 20, [0.1, 0.2, 0.3], seed=0)
    code, found = changes(first, "--against", second)
    assert (code, found["ns", "total_speedup"]["note"]) == (0, "1 of the second's 2 seeds")


@pytest.mark.parametrize(
    ("own", "other", "measure", "code"),
    [
        ([9, 0.5], [9, 0], "smallest_probe_loss", 6),
        ([9, 0], [9, 0.5], "smallest_probe_loss", 0),
        ([9, 0], [9, 0], "smallest_probe_loss", 0),
    ],
)
def test_a_value_of_nothing_is_better_or_worse_all_the_same(
    tmp_path: Path, own: list[float], other: list[float], measure: str, code: int
) -> None:
    write_run(tmp_path / "a", "ns", own, 20)
    write_run(tmp_path / "b", "ns", other, 20)
    exit_code, found = changes(tmp_path / "a", "--against", tmp_path / "b")
    assert (exit_code, found["ns", measure]["note"]) == (code, "a value is 0: no ratio")


def test_a_recall_of_nothing_is_a_regression(tmp_path: Path) -> None:
    write_run(tmp_path / "a", "ns", [9, 4], 20, [0.1, 0.0])
    write_run(tmp_path / "b", "ns", [9, 4], 20, [0.1, 0.2])
    assert changes(tmp_path / "a", "--against", tmp_path / "b")[0] == 6


def test_other_machines_and_other_seeds_are_not_divided(tmp_path: Path) -> None:
    write_run(tmp_path / "a", "iid", [9, 5, 3], 200, [0.1, 0.2, 0.3])
    write_run(tmp_path / "b", "iid", [9, 5, 3], 100, [0.1, 0.2, 0.4], key="two")
    code, found = changes(tmp_path / "a", "--against", tmp_path / "b")
    assert code == 6
    assert found["iid", "test_recall_at_50"]["regressed"], "recall does not depend on the machine"
    row = found["iid", "full_iteration_seconds"]
    assert (row["gain"], row["regressed"]) == (None, False)
    assert row["note"].startswith("different environments")
    _, mixed = changes(tmp_path / "a", "--against", tmp_path / "b", "--allow-mixed")
    assert mixed["iid", "full_iteration_seconds"]["gain"] == pytest.approx(0.5)
    write_run(tmp_path / "c", "iid", [9, 5, 3], 100, [0.1, 0.2, 0.4], seed=4)
    _, found = changes(tmp_path / "a", "--against", tmp_path / "c")
    assert {row["note"] for row in found.values()} == {"no seed in common"}


@pytest.mark.parametrize(("text", "limit"), [("10%", 0.1), ("0.05", 0.05), ("0", 0.0), ("12.5%", 0.125)])
def test_limits(text: str, limit: float) -> None:
    assert parse_limit(text) == pytest.approx(limit)


def test_an_export_stands_by_itself(tmp_path: Path) -> None:
    data, folder, target = tmp_path / "data", write_folder(tmp_path / "runs"), tmp_path / "kept"
    options = {"text": ["title", "tags"], "max_length": 40, "test_fraction": 0.2, "vocabulary_size": None}
    manifest = {"source": "citeulike", "fingerprint": "f" * 64, "options": options, "statistics": {"users": 9}, "files": {}}
    (next(folder.glob("*/config.json")).parent / "checkpoints").mkdir()
    kept = json.dumps({"f" * 64: manifest})
    (folder / described.FILE).write_text(kept)
    words = ("--data-dir", data, "--json", "--runs-dir")
    result = invoke(*words, folder, "--export", target)
    assert result.exit_code == 0, result.output
    assert f"Exported to {target}: 12 runs" in result.stderr
    assert {path.name for path in target.rglob("*") if path.is_file()} == {
        *runs.RECORDS, "speedup.parquet", "recall.parquet", "datasets.json",
    }  # fmt: skip
    assert len(list(target.glob("*/summary.parquet"))) == 12
    assert not list(target.rglob("checkpoints"))
    assert verification.verify(target).mismatches == []
    assert {row["command"] for row in tables.read_rows(target / "speedup.parquet", schemas.SPEEDUP)} == {None}
    before = (target / "speedup.parquet").stat().st_mtime_ns
    again = invoke(*words, target)
    assert (target / "speedup.parquet").stat().st_mtime_ns == before, "to look at results does not change them"
    assert again.stdout.replace(str(target), str(folder)) == result.stdout
    assert "other text (title,tags)" in again.stdout
    assert described.preparation("citeulike", manifest) == (
        "ncfbench prepare citeulike --text title,tags --max-length 40 --test-fraction 0.2"
    )
    (folder / described.FILE).write_text("[1]")
    damaged = invoke(*words, folder)
    assert (damaged.exit_code, "Warning: Skipped datasets.json" in damaged.stderr) == (0, True)
    assert "text not known" in damaged.stdout
