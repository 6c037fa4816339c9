"""The clock, the recall and the table of the programs before and after migrating."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import bench_migrating as script
import numpy as np
import pytest


def test_recall_is_that_of_sorted_scores() -> None:
    rng = np.random.default_rng(0)
    scores = rng.normal(size=(6, 80)).astype(np.float32)
    held_out = [{3, 70}, set(range(60)), {5}, set(), {79, 1, 2}, {40}]
    found = []
    for row, items in zip(scores, held_out, strict=True):
        best = set(sorted(range(80), key=lambda item: -row[item])[:50])
        found += [len(best & items) / len(items)] if items else []
    users = np.array([user for user, items in enumerate(held_out) for _ in items], np.int32)
    index = np.array([item for items in held_out for item in items], np.int32)
    assert script.recall_of(scores, users, index) == pytest.approx(sum(found) / len(found))


def test_the_clock_stands_still_during_evaluations(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(script.time, "perf_counter", lambda: now[0])

    def recall() -> float:
        now[0] += 50  # an evaluation takes long
        return 0.25

    clock = script.Clock(6, 3, recall)
    with pytest.raises(script.Over):
        for _ in range(100):
            now[0] += 1
            clock.batch()
    # The first batch compiles, so its second is not counted.
    assert clock.points == [(4, 3, 0.25), (7, 6, 0.25)]


def test_the_table_has_means_and_the_time_until_the_level() -> None:
    def run(way: str, *recalls: float) -> dict[str, Any]:
        points = [(20 * at, 10 * at, recall) for at, recall in enumerate(recalls, 1)]
        return {"cell": f"tfrs/{way}", "rate": 0.01, "points": points}

    before = [run("before", 0.1, 0.2, 0.3), run("before", 0.1, 0.2, 0.4)]
    table = script.table([*before, run("after", 0.2, 0.4, 0.5), run("after", 0.36, 0.46, 0.3)])
    rows = [[cell.text for cell in row] for row in table.rows]
    # The best mean is 0.43, after the second look.
    assert table.notes == ("Levels of recall@50: tfrs 0.387.",)
    assert rows[0][4:] == ["2.0", "not yet", "0.350 (0.300 to 0.400)"]
    # 0.28 after 10 s and 0.43 after 20 s.
    assert rows[1][4:] == ["2.0", "17", "0.400 (0.300 to 0.500)"]
    assert script.seconds_to(0.25, [(10, 0.28), (20, 0.43)]) == "< 10"


def test_the_page_shows_the_kept_runs() -> None:
    """Batches a second, seconds to the level, and recall, of every way but for its names."""
    kept = json.loads(script.Migrating.file.read_text())["cells"]
    page = (Path(__file__).parents[2] / "docs/migrating.md").read_text()
    for row in script.table(kept).rows:
        _, way, _, seeds, speed, soon, recall = (cell.text for cell in row)
        shown = recall if seeds != "1" else recall.split(" ")[0]
        assert f"| {speed} | {soon} | {shown} |" in page, way


@pytest.mark.long
def test_a_program_is_trained_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A program that only ticks; what is not installed is said."""
    (tmp_path / "migrating_ticks.py").write_text(
        "import time\n"
        "def train(dataset, way, seed, rate, start):\n"
        "    clock = start(lambda: dataset.n_users / 1000)\n"
        "    while True:\n"
        "        time.sleep(0.05)\n"
        "        clock.batch()\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    programs = {"ticks": script.Program("numpy", ("after",), 0.1)}
    programs["absent"] = script.Program("not-there", ("after",), 0.1)
    monkeypatch.setattr(script, "PROGRAMS", programs)
    file = tmp_path / "result.json"
    words = ["--quick", f"--data-dir={tmp_path}", f"--json={file}"]
    with pytest.raises(SystemExit, match="2"):
        script.Migrating().main(words)
    assert "not-there is not installed" in capsys.readouterr().err
    (cell,) = json.loads(file.read_text())["cells"]
    assert (cell["cell"], cell["seed"], len(cell["points"])) == ("ticks/after", 0, 2)
    assert cell["points"][0][2] == pytest.approx(1.5)
