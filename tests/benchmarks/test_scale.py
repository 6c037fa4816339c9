"""The benchmarks of scale and of the start: what they print and keep, on sizes of a second."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import bench_scale
import numpy as np
import pytest
import scale_steps
import scale_tables
from harness import Benchmark

import ncfbench
from ncfbench.data import store


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
    """A limit that is exceeded is an error, and the result is kept."""
    (tmp_path / "scratch").mkdir()
    words = ["--samplers=ns,strat-ns", "--limit-gib=0.2", "--cells=20000"]
    code, cells = run(
        bench_scale.Scale(), tmp_path / "scale.json", *words, f"--scratch={tmp_path / 'scratch'}"
    )
    printed = capfd.readouterr()
    assert code == 6, printed.err
    assert "20,000 links, evaluation: 0." in printed.err
    assert not list((tmp_path / "scratch").iterdir())
    (cell,) = cells
    steps = cell["steps"]
    trained = [f"train {name}" for name in scale_steps.TRAINED]
    assert list(steps) == ["prepare", "batches", "evaluation", *trained]
    assert 8 < steps["prepare"]["disk_bytes"] / 20_000 < 60
    for row in steps["batches"]["samplers"].values():
        assert 12 < row["array_bytes"] < 40
        assert len(row["rounds_batch_seconds"]) == 5
        assert 100 < row["distinct_items"] < 1667
    assert steps["evaluation"]["links"] == 4096
    for name in trained:
        seconds = [point["seconds"] for point in steps[name]["curve"]]
        assert seconds == sorted(seconds)
        assert steps[name]["users"] == 540
        assert steps[name]["popularity"] > 3 * steps[name]["chance"]
    words = ["Training", "Memory on paper", "strat-ns", "peak B/link", "million scores a second"]
    for word in words:
        assert word in " ".join(printed.out.split()), word


def test_a_step_that_fails_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(bench_scale, "sizes_of", lambda links: {"links": links, "users": -1})
    code, cells = run(bench_scale.Scale(), tmp_path / "scale.json", "--cells=10000")
    assert (code, cells) == (6, [])
    assert "10000: ncfbench prepare ended with 2" in capfd.readouterr().err


@pytest.mark.parametrize("words", ["--samplers=nss", "--links=many"])
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

    rows = list(scale_tables.sampler_rows([cell(5_120_000, 0.008, 25.0), cell(5120, 0.001, 26.0)]))
    assert [row["item_us"] for row in rows] == pytest.approx([1000, 4500])
    assert [row["ratio"] for row in rows] == pytest.approx([1, 4.5])
    assert rows[0]["links_per_second"] == pytest.approx(256_000)
    assert rows[0]["verdict"] == "met"
    assert rows[1]["verdict"] == "25.0 bytes a link, 4.50 times the smallest graph"


def test_a_sample_has_a_test_link_of_each_user(tmp_path: Path) -> None:
    """With the user's training links as the known ones."""
    sizes = {"users": 60, "items": 200, "links": 1500, "topics": 5}
    ncfbench.prepare(
        "synthetic", data_dir=tmp_path, name=scale_steps.NAME, hold_out="links", **sizes
    )
    dataset = store.load(tmp_path, scale_steps.NAME)
    users, items, known = scale_steps.held_out_sample(dataset)
    assert sorted({*dataset.links("test")[0].tolist()}) == users.tolist()
    pairs = {*zip(*(ends.tolist() for ends in dataset.links("test")), strict=True)}
    assert {*zip(users.tolist(), items.tolist(), strict=True)} <= pairs
    for row, user in enumerate(users):
        expected, _ = dataset.graph.items_of(np.array([user]))
        assert known.items_of(np.array([row]))[0].tolist() == expected.tolist()


def test_training_and_memory_by_hand() -> None:
    """Iterations of 3 ms, 2 of the processor; popularity is passed at the second of three
    evaluations, or never; and 10^9 links with 16 bytes each, 10^8 users and 10^6 items.
    """

    def trained(recalls: list[float]) -> dict[str, Any]:
        curve = [
            {"seconds": 10.0 * 2**number, "iterations": 1000 * 2**number, "recall": recall}
            for number, recall in enumerate(recalls)
        ]
        blocks = {"seconds": [0.5, 0.003, 0.001], "processor_seconds": [0.6, 0.002, 0.001]}
        row = {"blocks_iteration": blocks, "curve": curve}
        return row | {"popularity": 0.1, "training_links": 512 * 60_000, "peak_bytes": 10**9}

    steps = {"train a": trained([0.05, 0.2, 0.3]), "train b": trained([0.0, 0.05, 0.1])}
    steps["batches"] = {"samplers": {"ns": {"array_bytes": 16.0}, "iid": {"array_bytes": 9.0}}}
    cells = [{"links": 10**8, "steps": steps}]
    one, other = scale_tables.training_rows(cells)
    assert (one["iteration_ms"], one["processor_ms"]) == pytest.approx((3, 2))
    assert one["epoch_minutes"] == pytest.approx(2)
    assert one["trained_links"] == 4 * 512_000
    assert one["a_link"] == 10
    assert (one["passed"], other["passed"]) == ("4", "not in 8")
    _, row = scale_tables.forecasts(cells)
    assert (row["users"], row["items"], row["graph"]) == (20e9, 200e6, 16e9)
    assert row["sum"] == 3 * 20.2e9 + 16e9
