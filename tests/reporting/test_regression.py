"""Comparison of two folders of results: what became worse, and what was lost."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from folders import write_folder, write_run
from typer.testing import CliRunner, Result

from ncfbench.cli import app


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


def changes(*words: str | Path) -> tuple[int, dict[tuple[str, str], dict[str, Any]]]:
    result = invoke(*words, "--json")
    document = json.loads(result.stdout)
    return result.exit_code, {(row["sampler"], row["measure"]): row for row in document["changes"]}


def test_a_folder_against_itself(folder: Path) -> None:
    code, found = changes(folder, "--against", folder)
    assert code == 0
    assert all(row["gain"] == pytest.approx(1) for row in found.values())
    assert (
        found["ns", "total_speedup"]["seeds"],
        found["ns", "full_iteration_seconds"]["own"],
    ) == (3, pytest.approx(0.021))


def test_a_slower_sampler_regresses(folder: Path, tmp_path: Path) -> None:
    slow = write_folder(tmp_path / "slow", slower=1.2)
    write_run(slow, "mixed-ns", [9, 4, 3.5], 30, time="2026-01-02", key="two")
    code, found = changes(slow, "--against", folder)
    assert code == 6
    row = found["ns", "full_iteration_seconds"]
    assert (row["gain"], row["regressed"]) == (pytest.approx(1 / 1.2), True)
    assert row["lower"] == pytest.approx(row["upper"]), "every seed by the same factor"
    assert {key for key, one in found.items() if one["regressed"]} == {
        ("ns", name)
        for name in (
            "full_iteration_seconds",
            "step_iteration_seconds",
            "per_iteration_speedup",
            "total_speedup",
        )
    }
    assert changes(slow, "--against", folder, "--regression", "25%")[0] == 0
    assert changes(folder, "--against", slow)[0] == 0, "faster is no regression"
    text = invoke(slow, "--against", folder).stdout
    assert "REGRESSED" in text
    assert "more than 10 %" in text


@pytest.mark.parametrize(
    ("factors", "clear"), [((1.2,), None), ((1.2, 1.2), True), ((1.0, 1.5, 1.1), False)]
)
def test_one_rule_for_any_number_of_seeds(
    tmp_path: Path, factors: tuple[float, ...], clear: bool | None
) -> None:
    """One seed, several that agree and several that do not regress by the same mean."""
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


def test_a_small_change_is_no_regression(tmp_path: Path) -> None:
    for seed in range(3):
        write_run(tmp_path / "a", "iid", [9, 5, 3], 210, seed=seed)
        write_run(tmp_path / "b", "iid", [9, 5, 3], 200, seed=seed)
    code, found = changes(tmp_path / "a", "--against", tmp_path / "b")
    assert (code, found["iid", "full_iteration_seconds"]["clear"]) == (0, True)


def pair_of_folders(tmp_path: Path, *, seeds: int = 2) -> tuple[Path, Path]:
    """The first lacks ns; in the second ns is 10 times as fast and needs 150 of 200 iterations."""
    for name in ("a", "b"):
        for seed in range(seeds):
            write_run(tmp_path / name, "iid", [9, 5, 3], 200, [0.1, 0.2, 0.3], seed=seed)
    for seed in range(seeds):
        write_run(tmp_path / "b", "ns", [9, 4, 2], 20, [0.1, 0.2, 0.3], seed=seed)
    return tmp_path / "a", tmp_path / "b"


def test_a_lost_sampler_regresses(tmp_path: Path) -> None:
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


def test_a_lost_reference_regresses(tmp_path: Path) -> None:
    first, second = pair_of_folders(tmp_path)
    write_run(first, "ns", [9, 4, 2], 20, [0.1, 0.2, 0.3], seed=0)
    write_run(first, "ns", [9, 4, 3.1], 20, [0.1, 0.2, 0.3], seed=1)
    code, found = changes(first, "--against", second, "--regression", "99%")
    assert code == 6
    assert {key for key, row in found.items() if row["regressed"]} == {
        ("ns", "iterations_speedup"),
        ("ns", "total_speedup"),
    }
    row = found["ns", "total_speedup"]
    assert (row["own"], row["gain"], row["note"]) == (
        None,
        None,
        "lost: not reached (1 of 2 seeds)",
    )
    assert row["other"] == pytest.approx(10 * 200 / 150)
    # With the 200 iterations of which seed 1 made use: 10 instead of 13.33, and seed 0 as it was.
    assert row["gain_at_most"] == pytest.approx((150 / 200) ** 0.5)
    assert "at most 0.866" in " ".join(invoke(first, "--against", second).stdout.split())
    code, found = changes(second, "--against", first)
    assert (code, found["ns", "total_speedup"]["note"]) == (0, ""), (
        "what the second did not reach was not lost"
    )
    assert found["ns", "total_speedup"]["seeds"] == 1


def test_a_diverged_seed_regresses(tmp_path: Path) -> None:
    first, second = pair_of_folders(tmp_path)
    write_run(first, "ns", [9, 4, 2], 20, [0.1, 0.2, 0.3], seed=0)
    write_run(first, "ns", [9, 4], 20, [0.1, 0.2], seed=1, status="diverged")
    code, found = changes(first, "--against", second)
    assert code == 6
    assert {key[1]: row["note"] for key, row in found.items() if row["regressed"]} == dict.fromkeys(
        ("smallest_probe_loss", "test_recall_at_50", "iterations_speedup", "total_speedup"),
        "lost: diverged (1 of 2 seeds)",
    )
    assert found["ns", "per_iteration_speedup"]["gain"] == pytest.approx(1)
    assert changes(second, "--against", first)[0] == 0


def test_other_things_to_lose(tmp_path: Path) -> None:
    first, second = pair_of_folders(tmp_path, seeds=1)
    write_run(first, "ns", [9, 4, 2], 20, key="two")
    _, found = changes(first, "--against", second)
    assert found["ns", "test_recall_at_50"]["note"] == "lost: no recall"
    assert (
        found["ns", "total_speedup"]["note"] == "lost: arm and baseline of different environments"
    )
    assert found["ns", "iterations_speedup"]["gain"] == pytest.approx(1), (
        "iterations are the same on any machine"
    )
    baseline = next(path for path in first.iterdir() if "-iid-" in path.name)
    shutil.rmtree(baseline)
    _, found = changes(first, "--against", second)
    assert found["ns", "iterations_speedup"]["note"] == "lost: no baseline of this seed"
    assert found["iid", ""]["regressed"]


def test_seeds_not_run_are_named(tmp_path: Path) -> None:
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
def test_a_loss_of_zero_is_compared(
    tmp_path: Path, own: list[float], other: list[float], measure: str, code: int
) -> None:
    write_run(tmp_path / "a", "ns", own, 20)
    write_run(tmp_path / "b", "ns", other, 20)
    exit_code, found = changes(tmp_path / "a", "--against", tmp_path / "b")
    assert (exit_code, found["ns", measure]["note"]) == (code, "a value is 0: no ratio")


def test_a_recall_of_zero_regresses(tmp_path: Path) -> None:
    write_run(tmp_path / "a", "ns", [9, 4], 20, [0.1, 0.0])
    write_run(tmp_path / "b", "ns", [9, 4], 20, [0.1, 0.2])
    assert changes(tmp_path / "a", "--against", tmp_path / "b")[0] == 6


def test_other_machines_are_not_divided(tmp_path: Path) -> None:
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
