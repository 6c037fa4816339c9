"""The benchmark of optimisers, on small tables."""

from __future__ import annotations

import json
from pathlib import Path

import bench_optimizers as bench
import pytest


@pytest.mark.long
def test_tables_of_two_sizes_take_turns(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench, "MOST_RATIO", {10**6: 1e9})
    file = tmp_path / "result.json"
    bench.Optimizers().main(["--quick", f"--json={file}", f"--data-dir={tmp_path}"])
    users, words = json.loads(file.read_text())["cells"]
    for cell, kind in ((users, "users"), (words, "words")):
        assert cell["cell"] == kind
        names = {f"{name} {rows}" for name in ("adam", "row-adam") for rows in (200, 5000)}
        assert set(cell["seconds"]) == names
        assert all(len(own) == 2 and min(own) > 0 for own in cell["seconds"].values())
    assert "row-adam ms" in capsys.readouterr().out


def test_ratios_are_over_the_quickest_of_the_smallest() -> None:
    """Of two rounds each: 20 rows take 2 ms whole and 4 ms by row, 1,000 take 6 ms by row."""
    seconds = {"adam 20": [0.002, 0.002], "row-adam 20": [0.004, 0.004]}
    cell = {"cell": "users", "seconds": seconds | {"row-adam 1000": [0.005, 0.007]}}
    small, large = bench.rows_of(cell)
    assert (small["rows"], small["adam"], small["ratio"]) == (20, 2.0, 2.0)
    assert (large["rows"], large["adam"], large["range"]) == (1000, None, (5.0, 7.0))
    assert large["ratio"] == pytest.approx(3.0)
    assert bench.Optimizers().missed([cell]) == [
        "20 users: 2.00 times the smallest",
        "1,000 users: 3.00 times the smallest",
    ]
