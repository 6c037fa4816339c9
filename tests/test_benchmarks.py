"""The benchmarks that need no device: what they print and keep, on sizes of a second."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent.parent / "benchmarks"


def bench_samplers(
    *words: str | Path, modules: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """The benchmark; ``modules`` holds modules that hide installed ones."""
    command = [sys.executable, str(FOLDER / "bench_samplers.py"), *map(str, words)]
    path = os.pathsep.join(
        [*([str(modules)] if modules else []), *filter(None, [os.environ.get("PYTHONPATH")])]
    )
    environment = {**os.environ, "PYTHONPATH": path}
    return subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=120, env=environment
    )


@pytest.mark.long
def test_samplers_at_scale(tmp_path: Path) -> None:
    file = tmp_path / "result.json"
    words: list[str | Path] = ["--seconds", "0.05", "--json", file]
    done = bench_samplers("--links", "1e4", *words)
    assert done.returncode == 0, done.stderr
    first = json.loads(file.read_text())["sizes"]
    assert list(first) == ["10000"]

    # A peer that is not there is said; what was measured stays as it was.
    (tmp_path / "torch_geometric.py").write_text("raise ImportError('gone')")
    more: list[str | Path] = ["--links", "1e4,3e4", "--peers", "torch_geometric", "--resume"]
    done = bench_samplers(*more, *words, modules=tmp_path)
    assert done.returncode == 0, done.stderr
    found = json.loads(file.read_text())
    assert found["sizes"]["10000"] == first["10000"]
    for size, cell in found["sizes"].items():
        assert 0.97 * int(size) < cell["links"] <= int(size)
        assert list(cell["samplers"]) == ["iid", "neg", "strat", "ns", "strat-ns"]
        for row in cell["samplers"].values():
            assert row["array_bytes"] <= 24
            assert row["item_seconds"] > 0
            assert row["links_per_second"] > 0
    assert {row["item_ratio"] for row in found["sizes"]["10000"]["samplers"].values()} == {1.0}
    for word in (
        "Strat. w. N.S.",
        "IID",
        "30,000",
        "us an item",
        "torch_geometric",
        "not installed (gone)",
    ):
        assert word in done.stdout, word

    # Another kind of measurement does not go into the same file.
    done = bench_samplers("--links", "1e4", "--seconds", "0.01", "--json", file, "--resume")
    assert done.returncode == 2
    assert "use another file" in done.stderr
    assert json.loads(file.read_text()) == found


def test_unknown_names_are_refused(tmp_path: Path) -> None:
    for words in (["--samplers", "nss"], ["--peers", "recbol"], ["--links", "many"]):
        done = bench_samplers(*words, "--json", tmp_path / "result.json")
        assert done.returncode == 2, done.stderr
        assert "Error: " in done.stderr
    assert not (tmp_path / "result.json").exists()


def bench_scale(*words: str | Path) -> subprocess.CompletedProcess[str]:
    sizes = [
        "--links",
        "2e4",
        "--users",
        "2000",
        "--items",
        "5000",
        "--batches",
        "10",
        "--evaluated",
        "100",
    ]
    command = [sys.executable, str(FOLDER / "bench_scale.py"), *sizes, *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)


def test_a_large_set_made_small(tmp_path: Path) -> None:
    """All steps on 5,000 items, more than one block of them; a limit that is exceeded is an error,
    and the result is kept.
    """
    file = tmp_path / "scale.json"
    (tmp_path / "scratch").mkdir()
    done = bench_scale("--scratch", tmp_path / "scratch", "--json", file, "--limit-gib", "0.25")
    assert done.returncode == 6, done.stderr
    assert "evaluation: 0." in done.stderr
    assert "limit 0.25 GiB" in done.stderr
    assert not list((tmp_path / "scratch").iterdir())
    found = json.loads(file.read_text())
    steps = found["steps"]
    assert list(steps) == ["prepare", "batches", "evaluation"]
    assert len(found["missed"]) == sum(step["peak_bytes"] > 2**28 for step in steps.values()) > 0
    assert steps["prepare"]["statistics"]["links"] == 20_000
    assert 8 < steps["prepare"]["disk_bytes"] / 20_000 < 40
    bits = 2000 * 5000 / steps["batches"]["training_links"]  # a table of a bit for each pair
    assert list(steps["batches"]["samplers"]) == [
        "iid",
        "neg",
        "strat",
        "ns",
        "strat-ns",
        "mixed-ns",
    ]
    for row in steps["batches"]["samplers"].values():
        assert row["peak_bytes"] < steps["batches"]["peak_bytes"]
        assert 12 < row["array_bytes_a_link"] < 40 + bits / 8
        assert 0 < row["link_seconds"] < 0.01
        assert 100 < row["distinct_items"] < 5000
    assert steps["evaluation"]["links"] == 100
    assert steps["evaluation"]["peak_bytes"] >= steps["evaluation"]["model_peak_bytes"]
    assert 0 <= steps["evaluation"]["quality"]["recall_at_100"] <= 1
    for word in ("Strat. w. N.S.", "peak B/link", "million scores a second"):
        assert word in " ".join(done.stdout.split()), word


def test_a_step_that_fails_is_named(tmp_path: Path) -> None:
    done = bench_scale("--batch-size", "100000", "--samplers", "ns", "--scratch", tmp_path)
    assert done.returncode == 6
    assert "batch_size = 100000 is larger than" in done.stderr
    assert "batches: the process ended with 2" in done.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.long
def test_the_start_of_a_run(data_dir: Path, tmp_path: Path) -> None:
    file = tmp_path / "start.json"
    small = [
        word for text in ("batch_size=128", "dimension=8", "filters=8") for word in ("--set", text)
    ]
    words = [
        "--dataset",
        "tiny",
        "--data-dir",
        str(data_dir),
        "--samplers",
        "ns",
        "--rounds",
        "1",
        "--iterations",
        "6",
        *small,
    ]
    command = [sys.executable, str(FOLDER / "bench_start.py"), *words, "--json", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=200)
    assert done.returncode == 0, done.stderr
    found = json.loads(file.read_text())["samplers"]["ns"]
    for kind in ("cold", "warm"):
        (row,) = found[kind]
        assert row["processor_seconds"] > 0
        assert 0.5 < row["start_seconds"] < 150
        assert 0.05 < row["peak_gib"] < 4
    assert "N.S." in done.stdout
    assert "cold" in done.stdout
