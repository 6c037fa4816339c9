"""Exports: which records are copied, and the manifests that name their data."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from folders import write_folder, write_run
from typer.testing import CliRunner, Result

from ncfbench.cli import app
from ncfbench.data.sources import prepare_command
from ncfbench.reporting import manifests
from ncfbench.reporting.collecting import collect
from ncfbench.reporting.render import html
from ncfbench.reporting.results import SWEEPS
from ncfbench.reporting.verify import verification
from ncfbench.runs.folder import RECORDS
from ncfbench.runs.trials import FOLDER
from ncfbench.storage import schemas, tables
from ncfbench.sweeps import tuning


def invoke(*words: str | Path) -> Result:
    return CliRunner().invoke(app, ["report", *map(str, words)])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_folder(tmp_path_factory.mktemp("runs"))


def test_an_export_stands_by_itself(tmp_path: Path) -> None:
    data, folder, target = tmp_path / "data", write_folder(tmp_path / "runs"), tmp_path / "kept"
    options = {
        "text": ["title", "tags"],
        "max_length": 40,
        "test_fraction": 0.2,
        "vocabulary_size": None,
    }
    manifest = {
        "source": "citeulike",
        "fingerprint": "f" * 64,
        "options": options,
        "statistics": {"users": 9},
        "files": {},
    }
    (next(folder.glob("*/config.json")).parent / "checkpoints").mkdir()
    kept = json.dumps({"f" * 64: manifest})
    (folder / manifests.FILE).write_text(kept)
    (folder / SWEEPS).mkdir()
    (folder / SWEEPS / "mine.toml").write_text('title = "Mine"\nsampler = ["iid"]\n')
    words = ("--data-dir", data, "--json", "--runs-dir")
    result = invoke(*words, folder, "--export", target)
    assert result.exit_code == 0, result.output
    assert f"Exported to {target}: 12 runs" in result.stderr
    assert {path.name for path in target.rglob("*") if path.is_file()} == {
        *RECORDS,
        "speedup.parquet",
        "recall.parquet",
        "datasets.json",
        "mine.toml",
    }
    copied = (target / SWEEPS / "mine.toml").read_bytes()
    assert copied == (folder / SWEEPS / "mine.toml").read_bytes()
    assert len(list(target.glob("*/summary.parquet"))) == 12
    assert not list(target.rglob("checkpoints"))
    assert verification.verify(target).mismatches == []
    assert {
        row["command"] for row in tables.read_rows(target / "speedup.parquet", schemas.SPEEDUP)
    } == {None}
    before = (target / "speedup.parquet").stat().st_mtime_ns
    again = invoke(*words, target)
    assert (target / "speedup.parquet").stat().st_mtime_ns == before, (
        "to look at results does not change them"
    )
    assert again.stdout.replace(str(target), str(folder)) == result.stdout
    assert "other text (title,tags)" in again.stdout
    assert (
        prepare_command("citeulike", manifest)
        == "ncfbench prepare citeulike --text title,tags --max-length 40 --test-fraction 0.2"
    )
    (folder / manifests.FILE).write_text("[1]")
    damaged = invoke(*words, folder)
    assert (damaged.exit_code, "Warning: Skipped datasets.json" in damaged.stderr) == (0, True)
    assert "text not known" in damaged.stdout


def test_a_read_only_folder_is_printed_and_exported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_run(tmp_path / "r", "iid", [9, 5, 3], 200)
    (tmp_path / "r").chmod(0o555)
    if os.geteuid() == 0:  # who may write everywhere
        monkeypatch.setattr(
            os, "access", lambda path, mode: (Path(path), mode) != (tmp_path / "r", os.W_OK)
        )
    try:
        result = invoke(tmp_path / "r", "--export", tmp_path / "kept")
        page_too = invoke(tmp_path / "r", "--format", "html", "--output", tmp_path / "page.html")
    finally:
        (tmp_path / "r").chmod(0o755)
    assert result.exit_code == page_too.exit_code == 0, result.output + page_too.output
    assert "Speedup over IID" in result.stdout
    assert "is read-only" in result.stderr
    assert not list((tmp_path / "r").glob("*.parquet"))
    assert (tmp_path / "kept" / "speedup.parquet").exists()
    assert (tmp_path / "page.html").exists()


def test_an_export_of_tuned_runs_has_their_trials(tmp_path: Path) -> None:
    folder = tmp_path / "r"
    for sampler in ("iid", "ns"):
        write_run(
            folder,
            sampler,
            [9, 5, 3],
            200,
            [0, 0.2, 0.3],
            tuned="learning_rate:2x2",
            learning_rate=0.02,
        )
        for rate in (0.01, 0.02):
            own = write_run(
                folder / FOLDER, sampler, [9, 5, 3], 200, seed=tuning.SEED, learning_rate=rate
            )
            (own / "checkpoints").mkdir()
    write_run(folder / FOLDER, "ns", [9, 5, 3], 200, seed=tuning.SEED, fingerprint="e" * 64)
    (folder / FOLDER / "begun").mkdir()
    result = invoke(folder, "--export", tmp_path / "kept")
    assert result.exit_code == 0, result.output
    assert "2 runs, 4 trials and their tables" in result.stderr
    copied = list((tmp_path / "kept" / FOLDER).iterdir())
    assert len(copied) == 4
    assert {path.name for one in copied for path in one.iterdir()} == set(RECORDS)
    write_run(tmp_path / "plain", "iid", [9, 5, 3], 200)
    shutil.copytree(folder / FOLDER, tmp_path / "plain" / FOLDER)
    assert (
        ": 1 run and its tables"
        in invoke(tmp_path / "plain", "--export", tmp_path / "other").stderr
    )


MANIFEST = {
    "fingerprint": "f" * 64,
    "source": "citeulike",
    "statistics": {"users": 9, "words_mean": 1.5},
    "files": {},
    "options": {"text": ["title"], "max_length": 40, "test_fraction": 0.2, "vocabulary_size": None},
}


@pytest.mark.parametrize(
    "damage",
    [
        {"options": []},
        {"options": {"text": "title"}},
        {"options": {"max_length": "40"}},
        {"options": {"text": [1]}},
        {"options": {"test_fraction": {}}},
        {"statistics": {"users": "x"}},
        {"statistics": [9]},
        {"statistics": {"users": None}},
        {"files": ["users.dat"]},
        {"files": {"users.dat": True}},
        {"source": 3},
        {"label": 3},
        {"arguments": "x"},
        {"fingerprint": "e" * 64},
        {"fingerprint": None},
    ],
)
def test_damaged_descriptions_of_data_are_left_out(
    tmp_path: Path, damage: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(html, "_drawings", lambda results, wanted: [])
    write_run(tmp_path, "iid", [9, 5, 3], 200)
    path = tmp_path / manifests.FILE
    for manifest, known in ((MANIFEST, True), (MANIFEST | damage, False)):
        path.write_text(json.dumps({"f" * 64: manifest}))
        results = collect(tmp_path, tmp_path / "no-data")
        assert (list(results.manifests) == ["f" * 64]) == known
        assert [problem.startswith("Skipped datasets.json") for problem in results.problems] == [
            True
        ] * (not known)
        text = html.page(results, results.tables, {})
        assert ("ncfbench prepare citeulike --text title --max-length 40" in text) == known
        assert ("words mean" in text) == known


@pytest.mark.parametrize(
    ("files", "ends"),
    [
        ({}, "--quotes"),
        ({"files": {"a": {"verified": True}, "b": {"verified": True}}}, "--quotes"),
        (
            {"files": {"a": {"verified": True}, "b": {"verified": False}}},
            "--quotes --from FOLDER --allow-unverified",
        ),
        ({"files": {"a": {"sha256": "0"}}}, "--quotes --from FOLDER"),
        (
            {"files": {"links": {"sha256": "0"}}, "arguments": ["--links", "my links.csv"]},
            "--quotes --links 'my links.csv'",
        ),
    ],
)
def test_commands_to_prepare_data_again(files: dict[str, Any], ends: str) -> None:
    options = {"columns": [], "history": False, "quotes": True}
    manifest = MANIFEST | {"options": options} | files
    assert (
        prepare_command("citeulike", manifest) == f"ncfbench prepare citeulike --no-history {ends}"
    )


@pytest.mark.parametrize("text", ["", "[1]", '{"a": 1}', "null", '"x"'])
def test_a_damaged_file_of_descriptions_is_named(tmp_path: Path, text: str) -> None:
    write_run(tmp_path, "iid", [9, 5, 3], 200)
    (tmp_path / manifests.FILE).write_text(text)
    result = invoke(tmp_path, "--json")
    assert result.exit_code == 0, result.output
    assert "Skipped datasets.json" in result.stderr
