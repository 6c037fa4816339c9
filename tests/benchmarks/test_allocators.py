"""The benchmark of allocators, on data of a moment: what it keeps, resumes and refuses."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from ncfbench.data.store import Dataset

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "bench_allocators.py"
SMALL = ("batch_size=32", "dimension=8", "filters=8", "word_dimension=8")


@pytest.mark.long
@pytest.mark.skipif(sys.platform != "linux", reason="allocators are chosen on Linux")
def test_pieces_are_kept_and_resumed(tiny: Dataset, data_dir: Path, tmp_path: Path) -> None:
    file = tmp_path / "result.json"
    words = ["--dataset", "tiny", "--data-dir", str(data_dir), "--items", "40", "--quick"]
    words += ["--rounds", "1", "--json", str(file), "--pieces", "1"]
    words += [part for text in SMALL for part in ("--set", text)]

    def bench(names: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, str(SCRIPT), *words, "--allocators", names]
        return subprocess.run(command, capture_output=True, text=True, timeout=300)

    refused = bench("glibc; glib")
    assert (refused.returncode, "no 'glib'" in refused.stderr) == (2, True)
    done = bench("glibc; glibc, our settings")
    assert done.returncode == 0, done.stderr
    (first,) = json.loads(file.read_text())["pieces"]
    assert bench("glibc; glibc, our settings").returncode == 0
    pieces = json.loads(file.read_text())["pieces"]
    assert pieces[0] == first
    found = {piece["allocator"]: piece["parts"] for piece in pieces}
    assert sorted(found) == ["glibc", "glibc, our settings"]
    for name, parts in found.items():
        assert list(parts) == ["items", "iid", "strat-ns", "all"]
        assert sorted(parts["all"]["seconds"]) == ["iid", "items", "neg", "ns", "strat", "strat-ns"]
        assert list(parts["iid"]["seconds"]) == ["iid"]
        for part in parts.values():
            assert part["allocator"]["name"] == "glibc"
            assert bool(part["allocator"]["settings"]) == (name != "glibc")
            assert part["peak_bytes"] > 2**20
            assert all(len(blocks) == 1 for blocks in part["seconds"].values())
