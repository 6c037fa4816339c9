"""Benchmarks at their smallest: they measure, keep, resume, and show the same tables again."""

from __future__ import annotations

import json
from pathlib import Path

import bench_costmodel
import bench_optimizers
import bench_race
import pytest
from harness import Benchmark

from ncfbench.errors import CheckFailedError

pytestmark = pytest.mark.long


@pytest.mark.parametrize(
    ("bench", "words", "cells"),
    [
        (bench_costmodel.CostModel(), ["--rounds=3"], ["tiny/mf"]),
        (bench_optimizers.Optimizers(), [], ["users", "words"]),
        (bench_race.Races(), ["--cells=search of cite: 12*"], ["search of cite: 12 of 100 trials"]),
    ],
    ids=lambda each: each.name if isinstance(each, Benchmark) else "",
)
def test_a_benchmark_measures_keeps_and_shows(
    bench: Benchmark,
    words: list[str],
    cells: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("NCFBENCH_ALLOCATOR", "none")  # as in this process, which never restarted
    file = tmp_path / "result.json"

    def run(*more: str) -> tuple[str, str]:
        try:
            bench.main([f"--json={file}", f"--data-dir={tmp_path}", *more])
        except SystemExit as ended:  # a target that is missed
            assert ended.code == CheckFailedError.exit_code
        return capsys.readouterr()

    shown, said = run("--quick", *words)
    assert said.count(": measuring") == len(cells)
    assert [cell["cell"] for cell in json.loads(file.read_text())["cells"]] == cells
    again, said = run("--quick", "--resume", *words)
    assert said.count(": kept") == len(cells)
    assert shown == again == run("--show")[0] != ""
