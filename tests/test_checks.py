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
    assert any("in neither table" in note for note in notes)


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
    assert "only in the second folder" in text, "mixed-ns"


def test_a_change_within_the_noise_of_seeds_is_none(tmp_path: Path) -> None:
    for name, factors in (("a", (1.0, 1.5, 1.1)), ("b", (1.0, 1.0, 1.0))):
        for seed, factor in enumerate(factors):
            write_run(tmp_path / name, "iid", [9, 5, 3], 200 * factor, seed=seed)
    code, found = changes(tmp_path / "a", "--against", tmp_path / "b")
    row = found["iid", "full_iteration_seconds"]
    assert row["gain"] < 1 / 1.1
    assert row["upper"] > 1
    assert code == 0


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
    again = invoke(*words, target)
    assert again.stdout.replace(str(target), str(folder)) == result.stdout
    assert "other text (title,tags)" in again.stdout
    assert described.preparation("citeulike", manifest) == (
        "ncfbench prepare citeulike --text title,tags --max-length 40 --test-fraction 0.2"
    )
    (folder / described.FILE).write_text("[1]")
    damaged = invoke(*words, folder)
    assert (damaged.exit_code, "Warning: Skipped datasets.json" in damaged.stderr) == (0, True)
    assert "text not known" in damaged.stdout
