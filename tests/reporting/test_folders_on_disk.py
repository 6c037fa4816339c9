"""Reports of folders that are empty, damaged or unwritable."""

import json
import shutil
from pathlib import Path

import pytest
from support.cli import check, invoke
from support.records import write_run

PARTS = {
    "floor": {"recall_at_50": 0.556, "recall_at_50_error": 0.008},
    "both": {"recall_at_50": 0.595, "recall_at_50_error": None},
}


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    for sampler in ("iid", "ns"):
        write_run(folder, sampler, [9, 5, 3], 200)
    return folder


@pytest.fixture
def folder(written, tmp_path):
    return Path(shutil.copytree(written, tmp_path / "runs"))


def test_nothing_to_report_exits_with_7(tmp_path):
    check(invoke("report", tmp_path), 7, "No finished run", "ncfbench sweep smoke")


def test_the_folder_of_one_run_is_told(folder):
    (run,) = folder.glob("*-ns-*")
    check(invoke("report", run), 7, "the folder of one run", f"ncfbench report {folder}")


@pytest.mark.parametrize("how", ["truncated", "missing", "other"])
def test_a_damaged_run_is_named_and_left_out(folder, how):
    (victim,) = folder.glob("*-ns-*")
    for file in sorted(path for path in victim.iterdir() if path.name != "ledger.parquet"):
        content = file.read_bytes()
        if how == "missing":
            file.unlink()
        else:
            file.write_bytes(content[:-20] if how == "truncated" else b"{}")
        check(invoke("report", folder), 0, f"Skipped {victim.name}", file.name, "Speedup over iid")
        file.write_bytes(content)


def test_an_unwritable_report_is_still_printed(folder):
    (folder / "recall.parquet").mkdir()
    check(invoke("report", folder), 3, "Speedup over iid", "Cannot write")


def test_races_below_the_runs_are_named(folder, monkeypatch):
    """Beside the answer about the runs; races of programs deploy nothing."""
    for name, answer in (
        ("mine", {"deploy": {"what": "both", "lines": ["DEPLOY both:"], "parts": PARTS}}),
        ("programs", {}),
        ("torn", None),
    ):
        race = folder / "advice" / name
        race.mkdir(parents=True)
        text = "{" if answer is None else json.dumps(answer)
        (race / "answer.json").write_text(text)
    found = invoke("report", "--runs-dir", str(folder))
    check(found, 0, "mine is a race of its own: DEPLOY both", "Skipped torn:")
    lines = [line.split("  ") for line in found.stdout.splitlines() if line.startswith("mine")]
    assert [[cell.strip() for cell in line if cell] for line in lines] == [
        ["mine", "both", "0.556 ± 0.008", "-", "0.595"]
    ]
    found = invoke("report", str(folder / "advice" / "mine"))
    check(found, 0, "No finished run in", "mine is a race of its own: DEPLOY both", "0.556 ± 0.008")
    monkeypatch.chdir(folder / "advice" / "mine")
    check(invoke("report", "."), 0, "mine is a race of its own")
