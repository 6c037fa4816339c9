"""Reports of folders that are empty, damaged or unwritable, and of races below them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from folders import write_run
from invoked import check, invoke

from ncfbench.advice import pipeline as advice
from ncfbench.racing import pipeline as racing
from ncfbench.reporting import beside


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    for sampler in ("iid", "ns"):
        write_run(folder, sampler, [9, 5, 3], 200)
    return folder


@pytest.fixture
def folder(written: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(written, tmp_path / "runs"))


def test_nothing_to_report_exits_with_7(tmp_path: Path) -> None:
    check(invoke("report", tmp_path), 7, "No finished run", "ncfbench sweep smoke")


def test_the_folder_of_one_run_is_told(folder: Path) -> None:
    (run,) = folder.glob("*-ns-*")
    check(invoke("report", run), 7, "the folder of one run", f"ncfbench report {folder}")


@pytest.mark.parametrize("how", ["truncated", "missing", "other"])
def test_a_damaged_run_is_named_and_left_out(folder: Path, how: str) -> None:
    (victim,) = folder.glob("*-ns-*")
    for file in sorted(path for path in victim.iterdir() if path.name != "ledger.parquet"):
        content = file.read_bytes()
        if how == "missing":
            file.unlink()
        else:
            file.write_bytes(content[:-20] if how == "truncated" else b"{}")
        check(invoke("report", folder), 0, f"Skipped {victim.name}", file.name, "Speedup over iid")
        file.write_bytes(content)


def test_an_unwritable_report_is_still_printed(folder: Path) -> None:
    (folder / "recall.parquet").mkdir()
    check(invoke("report", folder), 3, "Speedup over iid", "Cannot write")


ARM = {"status": "recommended", "seconds": 12.5, "best": 0.42, "trained_seconds": 30.0}
COMMANDS = {
    "format": 1,
    "metric": "recall",
    "target": None,
    "level": 0.4,
    "spent_seconds": 60.0,
    "is_over": True,
    "recommended": "lr=0.1",
    "tied": ["lr=1"],
    "arms": [
        ARM | {"arm": "lr=0.1", "command": "./train --lr 0.1"},
        ARM | {"arm": "lr=1", "command": "./train --lr 1", "status": "tied"},
    ],
}
MODELS = {
    "format": 1,
    "spent_seconds": 120.0,
    "is_over": False,
    "recommended": "bow softmax ns",
    "tied": [],
    "headline": "Use bag of words.",
    "trust": [],
    "next": [],
    "entrants": [],
}


@pytest.fixture
def raced(tmp_path: Path) -> Path:
    """Races that are answered, stopped with and without an answer, damaged, and not begun."""
    for name, files in {
        "advice/answered": {"answer.json": json.dumps(MODELS)},
        "advice/locked": {".lock": ""},
        "race/ab12": {"answer.json": json.dumps(COMMANDS)},
        "race/ef56": {"answer.json": "{"},
    }.items():
        (tmp_path / name).mkdir(parents=True)
        for file, text in files.items():
            (tmp_path / name / file).write_text(text)
    return tmp_path


def test_races_lie_where_their_commands_keep_them() -> None:
    assert beside.RACES == {"advise": advice.FOLDER, "race": racing.FOLDER}


@pytest.mark.parametrize("has_runs", [False, True])
def test_races_below_the_runs_are_named(raced: Path, has_runs: bool) -> None:
    if has_runs:
        write_run(raced, "iid", [9, 5, 3], 200)
    found = json.loads(invoke("report", raced, "--json").stdout)["races"]
    names = ("command", "recommended", "tied", "spent_seconds", "is_over")
    assert [tuple(row[name] for name in names) for row in found] == [
        ("advise", "bow softmax ns", [], 120.0, False),
        ("race", "lr=0.1", ["lr=1"], 60.0, True),
    ]
    shown = invoke("report", raced)
    check(shown, 0, "Skipped race/ef56", "advise answered", "race ab12", "lr=0.1")
    for name in ("advice/answered", "race/ab12"):
        check(shown, 0, f"ncfbench report {raced / name}")
    assert ("No finished run" in shown.stdout) != has_runs
    for kind in ("markdown", "csv", "latex", "html"):
        check(invoke("report", raced, "--format", kind), 0)
    check(invoke("report", raced, "--table", "races"), 0, "Races below this folder")


def test_a_race_is_reported_by_its_folder_or_its_name(raced: Path) -> None:
    for words in (["report", raced / "race" / "ab12"], ["report", "ab12", "--runs-dir", raced]):
        check(
            invoke(*words),
            0,
            "Use lr=0.1: it reaches recall 0.4 in 12.5 s. Statistically tied with it: lr=1.",
            "./train --lr 0.1",
        )
        assert json.loads(invoke(*words, "--json").stdout)["recommended"] == "lr=0.1"
    check(invoke("report", raced / "advice" / "answered"), 0, "Use bag of words.")
    check(invoke("report", raced / "race" / "ef56"), 3, "answer.json")


def test_an_answer_without_a_choice_is_shown(raced: Path) -> None:
    arms = [ARM | {"arm": "lr=1", "command": "./train", "status": "slower", "seconds": None}]
    none: dict[str, Any] = {"recommended": None, "tied": [], "level": None, "arms": arms}
    (raced / "race/ab12/answer.json").write_text(json.dumps(COMMANDS | none))
    check(invoke("report", raced / "race/ab12"), 0, "No arm is recommended.", "lr=1")
    check(invoke("report", raced), 0, "race ab12")
