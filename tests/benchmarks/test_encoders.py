"""The benchmark of the encoders' two ways, on a few words."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import bench_encoders as bench
import pytest

from ncfbench.errors import CheckFailedError


@pytest.mark.long
def test_both_ways_are_timed_and_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in {"PRODUCT": 8, "WORDS": 30}.items():
        monkeypatch.setattr(bench, name, value)
    file = tmp_path / "result.json"
    bench.Encoders().main(["--quick", "--cells=gru/*,mlp/*", f"--json={file}"])
    (cell, other_cell) = json.loads(file.read_text())["cells"]
    assert other_cell["encoder"] == "mlp"
    assert (cell["encoder"], cell["items"], cell["length"]) == ("gru", 8, 6)
    assert set(cell["seconds"]) == {"plain", "plain forward", "fast", "fast forward", "product"}
    assert all(len(each) == 2 and min(each) > 0 for each in cell["seconds"].values())
    assert "gru" in capsys.readouterr().out

    def other(*arguments: Any) -> Any:
        return bench.plain_pool(*arguments) + 1

    monkeypatch.setitem(bench.WAYS, "cnn", (bench.plain_pool, other))
    with pytest.raises(CheckFailedError, match="cnn: the plain and the fast way disagree"):
        bench.programs("cnn", 3, 6)
