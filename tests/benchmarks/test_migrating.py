"""The clock, the recall and the table of the programs before and after migrating."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The module; benchmarks/ is no package."""
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "benchmarks"))
    import bench_migrating

    yield bench_migrating
    del sys.modules["bench_migrating"]


def test_recall_is_that_of_sorted_scores(script: Any) -> None:
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


def test_the_clock_stands_still_during_evaluations(
    script: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
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


def test_the_table_has_means_and_the_time_until_the_level(
    script: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(way: str, *recalls: float) -> dict[str, Any]:
        points = [(20 * at, 10 * at, recall) for at, recall in enumerate(recalls, 1)]
        return {"program": "tfrs", "way": way, "rate": 0.01, "points": points}

    before = [run("before", 0.1, 0.2, 0.3), run("before", 0.1, 0.2, 0.4)]
    script.table([*before, run("after", 0.2, 0.4, 0.5), run("after", 0.36, 0.46, 0.3)])
    lines = capsys.readouterr().out.splitlines()
    rows = [line.split(" | ") for line in lines]
    # The best mean is 0.43, after the second look.
    assert lines[-1] == "Levels of recall@50: tfrs 0.387."
    assert rows[2][4:] == ["2.0", "not yet", "0.350 (0.300 to 0.400) |"]
    # 0.28 after 10 s and 0.43 after 20 s.
    assert rows[3][4:] == ["2.0", "17", "0.400 (0.300 to 0.500) |"]
    assert script.seconds_to(0.25, [(10, 0.28), (20, 0.43)]) == "< 10"


def test_the_page_shows_the_kept_runs(script: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """Batches a second, seconds to the level, and recall, of every way but for its names."""
    root = Path(__file__).parents[2]
    kept = json.loads((root / "benchmarks/results/migrating-movielens-cpu.json").read_text())
    script.table(kept)
    lines = capsys.readouterr().out.splitlines()[2:-1]
    page = (root / "docs/migrating.md").read_text()
    for line in lines:
        cells = line.strip("| ").split(" | ")
        recall = cells[6] if cells[3] != "1" else cells[6].split(" ")[0]
        assert f"| {cells[4]} | {cells[5]} | {recall} |" in page, line
