"""Exports: which records are copied, and the manifests that name their data."""

import json
import os
from pathlib import Path

import pytest
from support.cli import check, invoke
from support.records import MANIFEST, write_folder, write_run

from ncfbench.data.sources import prepare_command
from ncfbench.reporting.results import FILE, collect
from ncfbench.runs.folder import read_all

PREPARE = "ncfbench prepare citeulike --text title,tags --max-length 40"


def test_an_export_stands_by_itself(tmp_path):
    folder, target = write_folder(tmp_path / "runs"), tmp_path / "kept"
    (next(folder.glob("*/config.json")).parent / "checkpoints").mkdir()
    (folder / FILE).write_text(json.dumps({"f" * 64: MANIFEST}))
    words = ("report", "--data-dir", tmp_path / "data", "--json", "--runs-dir")
    result = invoke(*words, folder, "--export", target)
    assert result.exit_code == 0, result.output
    assert f"Exported to {target}: 12 runs" in result.stderr
    names = {"runs.parquet", "curves.parquet", "timings.parquet"}
    names |= {"speedup.parquet", "recall.parquet", "datasets.json"}
    assert {path.name for path in target.rglob("*")} == names
    check(invoke("report", target, "--verify"), 0, "0 do not match")
    before = (target / "speedup.parquet").stat().st_mtime_ns
    again = invoke(*words, target)
    after = (target / "speedup.parquet").stat().st_mtime_ns
    assert after == before, "to look at results does not change them"
    assert again.stdout.replace(str(target), str(folder)) == result.stdout


def numbers(record):
    """The content of a record, without the name of its run in each row, nor its folder."""
    rows = [
        [{**row, "run": record.name} for row in getattr(record, kind)]
        for kind in ("curve", "timing", "ledger")
    ]
    held = {**vars(record), "folder": None, "exported": None, "summary": {**record.summary}}
    return held | dict(zip(("curve", "timing", "ledger"), rows, strict=True))


def test_exported_records_are_those_of_the_runs(tmp_path):
    """All values, also from a copy of the copy; a run that is trained there replaces its copy."""
    folder, copy = write_folder(tmp_path / "runs"), tmp_path / "copy"
    write_run(folder, "ns", [9, 2], 30, seed=9, feature_seconds=3.5, status="diverged")
    runs = read_all(folder)[0]
    assert {run.feature_seconds for run in runs} == {0.0, 3.5}
    for source, target in ((folder, copy), (copy, tmp_path / "second")):
        check(invoke("report", source, "--export", target), 0)
        copies, problems = read_all(target)
        assert problems == []
        assert [*map(numbers, copies)] == [*map(numbers, runs)]
    changed = write_run(copy, "ns", [9, 1], 30, seed=9, feature_seconds=3.5)
    (own,) = (run for run in read_all(copy)[0] if run.name == changed.name)
    assert (own.folder, own.summary["status"]) == (changed, "finished")
    assert len(read_all(copy)[0]) == len(runs)


@pytest.mark.parametrize("kind", ["run", "curve", "timing"])
def test_damaged_exports_are_named(tmp_path, kind):
    write_run(tmp_path / "runs", "ns", [9, 2], 30)
    copy = tmp_path / "copy"
    check(invoke("report", tmp_path / "runs", "--export", copy), 0)
    path = copy / f"{kind}s.parquet"
    whole = path.read_bytes()
    path.write_bytes(whole[:-20])
    check(invoke("report", copy), 3, f"Cannot read {path}")
    if kind == "curve":
        path.unlink()
        _, (problem,) = read_all(copy)
        assert "has no row, though the run is finished" in problem


def test_a_read_only_folder_is_printed_and_exported(tmp_path, monkeypatch):
    folder, kept, page = (tmp_path / name for name in ("r", "kept", "page.html"))
    write_run(folder, "iid", [9, 5, 3], 200)
    folder.chmod(0o555)
    if os.geteuid() == 0:  # who may write everywhere
        refused = folder, os.W_OK
        monkeypatch.setattr(os, "access", lambda path, mode: (Path(path), mode) != refused)
    try:
        result = invoke("report", folder, "--export", kept)
        check(invoke("report", folder, "--format", "html", "--output", page), 0)
    finally:
        folder.chmod(0o755)
    check(result, 0, "Speedup over iid", "is read-only")
    assert not list(folder.glob("*.parquet"))
    assert (kept / "speedup.parquet").exists()
    assert page.exists()


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A folder with one run."""
    folder = tmp_path_factory.mktemp("runs")
    write_run(folder, "iid", [9, 5, 3], 200)
    return folder


@pytest.mark.parametrize(
    "damage",
    [
        {"fingerprint": "e" * 64},
    ],
)
def test_damaged_descriptions_of_data_are_left_out(run, damage):
    for manifest, known in ((MANIFEST, True), (MANIFEST | damage, False)):
        (run / FILE).write_text(json.dumps({"f" * 64: manifest}))
        results = collect(run, run / "no-data")
        assert (list(results.manifests) == ["f" * 64]) == known
        skipped = [problem.startswith("Skipped datasets.json") for problem in results.problems]
        assert skipped == [True] * (not known)


@pytest.mark.parametrize(
    ("more", "ends"),
    [
        ({}, ""),
        ({"files": {"a": {"verified": True}, "b": {"verified": True}}}, ""),
        (
            {"files": {"a": {"verified": True}, "b": {"verified": False}}},
            " --from FOLDER --allow-unverified",
        ),
        ({"files": {"a": {"sha256": "0"}}}, " --from FOLDER"),
        (
            {"files": {"links": {"name": "my links.csv", "sha256": "0"}}},
            " --links 'my links.csv'",
        ),
    ],
)
def test_commands_to_prepare_data_again(more, ends):
    assert prepare_command("citeulike", MANIFEST) == PREPARE
    options = {"text": [], "max_length": 40, "retired": 3}
    command = prepare_command("citeulike", MANIFEST | {"options": options} | more)
    assert command == f"ncfbench prepare citeulike --max-length 40{ends}"


@pytest.mark.parametrize("text", ["", '{"a": 1}', "null"])
def test_a_damaged_file_of_descriptions_is_named(run, text):
    (run / FILE).write_text(text)
    result = invoke("report", run, "--json")
    assert result.exit_code == 0, result.output
    assert "Skipped datasets.json" in result.stderr
