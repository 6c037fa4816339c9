"""The benchmark of the encoders' two ways, on a few words."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from ncfbench.errors import CheckFailedError

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


def test_both_ways_are_timed_and_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import bench_encoders as bench

    sizes = {"PRODUCT": 8, "WORDS": 30, "BLOCK_SECONDS": 1e-4}
    for name, value in sizes.items():
        monkeypatch.setattr(bench, name, value)
    monkeypatch.setattr(bench, "SIZES", {"gru": ((3, 6),), "cnn": ((3, 6),)})
    file = tmp_path / "result.json"
    bench.main(["--rounds", "2", "--json", str(file)])
    cells = json.loads(file.read_text())["cells"]
    assert [(cell["encoder"], cell["items"], cell["length"]) for cell in cells] == [
        ("gru", 3, 6),
        ("cnn", 3, 6),
    ]
    for cell in cells:
        assert set(cell["seconds"]) == {"plain", "plain forward", "fast", "fast forward", "product"}
        assert all(len(each) == 2 and min(each) > 0 for each in cell["seconds"].values())
    assert "gru" in capsys.readouterr().out

    def other(*arguments: Any) -> Any:
        return bench.plain_pool(*arguments) + 1

    monkeypatch.setitem(bench.WAYS, "cnn", (bench.plain_pool, other))
    with pytest.raises(CheckFailedError, match="cnn: the plain and the fast way disagree"):
        bench.programs("cnn", 3, 6)
    del sys.modules["bench_encoders"]
