"""The benchmark of the encoders' two ways, on a few words."""

from __future__ import annotations

import json
from pathlib import Path

import bench_encoders as bench
import pytest

from ncfbench.errors import CheckFailedError
from ncfbench.models.encoders import cnn


@pytest.mark.long
def test_both_ways_are_timed_and_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in {"PRODUCT": 8, "WORDS": 30}.items():
        monkeypatch.setattr(bench, name, value)
    file = tmp_path / "result.json"
    bench.Encoders().main(["--quick", "--cells=bow/*,gru/*,mlp/*", f"--json={file}"])
    (_, cell, other_cell) = json.loads(file.read_text())["cells"]
    assert other_cell["encoder"] == "mlp"
    assert (cell["encoder"], cell["items"], cell["length"]) == ("gru", 8, 6)
    assert set(cell["seconds"]) == {"plain", "plain forward", "fast", "fast forward", "product"}
    assert all(len(each) == 2 and min(each) > 0 for each in cell["seconds"].values())
    assert "gru" in capsys.readouterr().out

    plain = cnn.plain_pool
    monkeypatch.setattr(cnn, "plain_pool", lambda *arguments: plain(*arguments) + 1)
    with pytest.raises(CheckFailedError, match="cnn: the plain and the fast way disagree"):
        bench.programs("cnn", 3, 6)
