"""The benchmarks of scale and of the start: what they print and keep, on sizes of a second."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import bench_scale
import pytest
from harness import Benchmark


def run(bench: Benchmark, file: Path, *words: str) -> tuple[int, list[dict[str, Any]]]:
    """Exit code of the program, and the cells of its file."""
    try:
        bench.main(["--quick", "--rounds=1", f"--json={file}", f"--data-dir={file.parent}", *words])
        code = 0
    except SystemExit as error:
        code = int(error.code or 0)
    return code, json.loads(file.read_text())["cells"] if file.exists() else []


@pytest.mark.long
def test_a_large_set_made_small(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """A limit that is exceeded is an error, and the result is kept; a peer that is not there is
    said.
    """
    (tmp_path / "scratch").mkdir()
    words = ["--samplers=ns,strat-ns", "--peers=recbole", "--limit-gib=0.2", "--cells=20000"]
    code, cells = run(
        bench_scale.Scale(), tmp_path / "scale.json", *words, f"--scratch={tmp_path / 'scratch'}"
    )
    printed = capfd.readouterr()
    assert code == 6, printed.err
    assert "20,000 links, evaluation: 0." in printed.err
    assert not list((tmp_path / "scratch").iterdir())
    (cell,) = cells
    steps = cell["steps"]
    assert list(steps) == ["prepare", "batches", "evaluation"]
    assert 8 < steps["prepare"]["disk_bytes"] / 20_000 < 60
    for row in steps["batches"]["samplers"].values():
        assert 12 < row["array_bytes"] < 40
        assert len(row["rounds_batch_seconds"]) == 5
        assert 100 < row["distinct_items"] < 1667
    assert steps["evaluation"]["links"] == 4096
    assert steps["evaluation"]["peak_bytes"] >= steps["evaluation"]["model_peak_bytes"]
    for word in ("strat-ns", "peak B/link", "million scores a second", "recbole"):
        assert word in " ".join(printed.out.split()), word


def test_a_step_that_fails_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(bench_scale, "sizes_of", lambda links: {"links": links, "users": -1})
    code, cells = run(bench_scale.Scale(), tmp_path / "scale.json", "--cells=10000")
    assert (code, cells) == (6, [])
    assert "10000: prepare ended with 2" in capfd.readouterr().err


@pytest.mark.parametrize("words", ["--samplers=nss", "--peers=recbol", "--links=many"])
def test_unknown_names_are_refused(
    words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        bench_scale.Scale().main([words, f"--json={tmp_path / 'result.json'}"])
    assert "Error: " in capsys.readouterr().err


def test_ratios_and_targets_by_hand() -> None:
    """A batch of 1 ms and 1/10 of an order of 10 ms: 2 ms for 2 items, then 9 ms."""

    def cell(links: int, batch: float, held: float) -> dict[str, Any]:
        row = {"rounds_batch_seconds": [batch] * 5, "order_seconds": [0.001 * links / 512]}
        row |= {"distinct_items": 2.0, "array_bytes": held}
        batches = {"training_links": links, "samplers": {"ns": row}}
        return {"links": links, "steps": {"batches": batches}}

    rows = list(bench_scale.sampler_rows([cell(5_120_000, 0.008, 25.0), cell(5120, 0.001, 26.0)]))
    assert [row["item_us"] for row in rows] == pytest.approx([1000, 4500])
    assert [row["ratio"] for row in rows] == pytest.approx([1, 4.5])
    assert rows[0]["links_per_second"] == pytest.approx(256_000)
    assert rows[0]["verdict"] == "met"
    assert rows[1]["verdict"] == "25.0 bytes a link, 4.50 times the smallest graph"
