"""The benchmark of the cost model: verdicts by hand, what is kept, and what is measured again."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ncfbench.errors import CheckFailedError, DataError
from ncfbench.storage import schemas, tables

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
EXIT_MISSING, EXIT_MISSED, EXIT_INTERRUPTED = DataError.exit_code, CheckFailedError.exit_code, 130


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Any]:
    """The module, with two cells of a tiny data set; benchmarks/ is no package."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import bench_costmodel

    cell = bench_costmodel.Cell
    monkeypatch.setattr(
        bench_costmodel,
        "CELLS",
        {
            "tiny/mf": cell("tiny", ("--encoder=mf",)),
            "tiny/cnn": cell("tiny", ("--encoder=cnn",)),
            "absent/cnn": cell("long", ("--encoder=cnn",)),
        },
    )
    yield bench_costmodel
    for name in ("bench_costmodel", "costmodel_table", "cell_files"):
        del sys.modules[name]


DESCRIBED = {"key": "here", "cpu": "a small one", "cores": 2, "packages": {"jax": "0.10"}}


def row(sampler: str, predicted: float, measured: float, **more: Any) -> dict[str, Any]:
    """Seconds of a step, with full a tenth above; speedups over a baseline of 1 s, 1.1 s."""
    found = {"sampler": sampler, "responsible": "items", "drift": 1.02, "rounds": 3}
    for way, seconds in (("predicted", predicted), ("measured", measured)):
        for account, factor in (("step", 1.0), ("full", 1.1)):
            found[f"{way}_{account}_iteration_seconds"] = factor * seconds
            found[f"{way}_{account}_speedup"] = 1 / seconds
    return found | {"environment_key": "here"} | more


GOOD = [row("iid", 1.0, 1.0), row("ns", 0.25, 0.2300001)]
BAD = [row("iid", 1.0, 1.0), row("ns", 0.2, 0.25, drift=0.8)]


def fake(bench: Any, monkeypatch: pytest.MonkeyPatch, rows: dict[str, Any]) -> list[str]:
    """Profiles that write these rows for each encoder; the list of those that were asked for."""
    asked: list[str] = []
    monkeypatch.setattr(bench.environment, "describe", lambda: DESCRIBED)

    def started(command: list[str], **how: Any) -> Any:
        options = dict(word.split("=") for word in command[4:])
        asked.append(f"{options['--dataset']}/{options['--encoder']}")
        found = rows[options["--encoder"]]
        if isinstance(found, BaseException):
            raise found
        if isinstance(found, int):
            return bench.subprocess.CompletedProcess(command, found, "", "no\nluck")
        folder = Path(options["--runs-dir"])
        tables.write_rows(folder / "costmodel.parquet", found, schemas.COSTMODEL)
        return bench.subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(bench.subprocess, "run", started)
    return asked


def run(bench: Any, data_dir: Path, file: Path, *words: str) -> int:
    """Exit code of the program."""
    try:
        bench.main(["--data-dir", str(data_dir), "--json", str(file), *words])
    except SystemExit as error:
        return int(error.code or 0)
    return 0


def test_verdicts_and_what_is_kept(
    bench: Any,
    monkeypatch: pytest.MonkeyPatch,
    data_dir: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Off by 9 % and by 20 %, of a speedup by 25 %."""
    file, present = tmp_path / "deep" / "result.json", ["--cells", "tiny/*"]
    fake(bench, monkeypatch, {"mf": GOOD, "cnn": GOOD})
    assert run(bench, data_dir, file, *present) == 0
    assert "met, worst +9 %" in capsys.readouterr().out
    fake(bench, monkeypatch, {"mf": GOOD, "cnn": BAD})
    assert run(bench, data_dir, file, *present, "--pass", "2") == EXIT_MISSED
    printed = capsys.readouterr().out
    assert "missed: ns step speedup +25 %, noisy" in printed
    lines = [line.split() for line in printed.splitlines()]
    (missed,) = (line for line in lines if "missed" in line)
    assert missed[-3:] == ["missed", "items", "0.80"]
    for number in ("200.00", "250.00", "-20.0", "5.00", "4.00", "+25.0"):
        assert number in missed
    found = json.loads(file.read_text())
    assert [(each["cell"], each["pass"]) for each in found["cells"]] == [
        ("tiny/mf", 1),
        ("tiny/mf", 2),
        ("tiny/cnn", 1),
        ("tiny/cnn", 2),
    ]
    assert found["environments"] == {"here": DESCRIBED}
    kept = found["cells"][0]["samplers"][1]
    assert kept["measured_step_iteration_seconds"] == 0.23
    assert (kept["sampler"], kept["responsible"], kept["drift"]) == ("ns", "items", 1.02)
    assert None not in kept.values()
    assert len(file.read_text().splitlines()) < 30


def test_resume_measures_what_has_changed(
    bench: Any, monkeypatch: pytest.MonkeyPatch, data_dir: Path, tmp_path: Path
) -> None:
    """Another pass, more rounds, other code, other data or another environment are other cells."""
    file, words = tmp_path / "result.json", ["--cells", "tiny/mf", "--rounds", "3", "--resume"]
    asked = fake(bench, monkeypatch, {"mf": GOOD})
    assert run(bench, data_dir, file, *words) == 0
    assert run(bench, data_dir, file, *words) == 0
    assert len(asked) == 1
    for more in (["--pass", "2"], ["--rounds", "5"]):
        assert run(bench, data_dir, file, *words, *more) == 0
    assert len(asked) == 3
    for name, value in (
        ("code_fingerprint", lambda *more: "other"),
        ("read_manifest", lambda folder, name: {"fingerprint": "other"}),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(bench, name, value)
            assert run(bench, data_dir, file, *words) == 0
    monkeypatch.setattr(bench.environment, "describe", lambda: DESCRIBED | {"key": "there"})
    assert run(bench, data_dir, file, *words) == 0
    assert len(asked) == 6


def test_finished_cells_survive_what_goes_wrong(
    bench: Any,
    monkeypatch: pytest.MonkeyPatch,
    data_dir: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Ctrl-C, a profile that fails, and a data set that is not there."""
    file = tmp_path / "result.json"
    fake(bench, monkeypatch, {"mf": GOOD, "cnn": KeyboardInterrupt()})
    assert run(bench, data_dir, file) == EXIT_INTERRUPTED
    captured = capsys.readouterr()
    assert "met, worst +9 %" in captured.out
    assert "Go on with --resume" in captured.err
    asked = fake(bench, monkeypatch, {"mf": GOOD, "cnn": 1})
    assert run(bench, data_dir, file, "--resume", "--rounds", "3") == EXIT_MISSED
    assert asked == ["tiny/cnn"]
    captured = capsys.readouterr()
    assert "tiny/cnn: the profile ended with 1:\nno\nluck" in captured.err
    asked = fake(bench, monkeypatch, {"mf": GOOD, "cnn": GOOD})
    assert run(bench, data_dir, file) == EXIT_MISSING
    assert asked == ["tiny/mf", "tiny/cnn"]
    captured = capsys.readouterr()
    assert "absent/cnn: no data set long in" in captured.err
    assert "ncfbench prepare synthetic --name long --users 5551" in captured.err
    assert f"--data-dir {data_dir}" in captured.err
    assert [each["cell"] for each in json.loads(file.read_text())["cells"]] == [
        "tiny/mf",
        "tiny/cnn",
    ]


def test_wrong_words_are_refused(
    bench: Any, data_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(bench, data_dir, tmp_path / "r.json", "--cells", "tiny/*,tniy/*") == 2
    assert "no cell 'tniy/*'. Valid: tiny/mf, tiny/cnn" in capsys.readouterr().err
    (tmp_path / "other.json").write_text('{"steps": []}')
    assert run(bench, data_dir, tmp_path / "other.json") == 2
    assert "Use another file" in capsys.readouterr().err


def test_the_grid_is_complete(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each cell's settings are possible, and its data set has a command that prepares it."""
    from ncfbench.config import complete

    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import bench_costmodel
    import cell_files

    assert len(bench_costmodel.CELLS) == 9
    for cell in bench_costmodel.CELLS.values():
        words = (word.removeprefix("--").split("=") for word in cell.arguments)
        given = {name.replace("-", "_"): value for name, value in words}
        assert complete({"dataset": cell.dataset, **given}).encoder
        assert f" {cell.dataset}" in cell_files.PREPARE[cell.dataset]


@pytest.mark.long
def test_a_real_cell(
    bench: Any,
    monkeypatch: pytest.MonkeyPatch,
    data_dir: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A profile in a process of its own, kept as one of the environment that resuming finds."""
    monkeypatch.setenv("NCFBENCH_ALLOCATOR", "none")  # as in this process, which never restarted
    file = tmp_path / "result.json"
    small = ("--encoder=transformer", "--width=8", "--batch-size=32")
    cell = bench.Cell("tiny", (*small, "--samplers=iid,strat-ns"))
    monkeypatch.setattr(bench, "CELLS", {"tiny/transformer": cell})
    words = ["--rounds", "3", "--resume"]
    for _ in range(2):
        assert run(bench, data_dir, file, *words) in (0, EXIT_MISSED)
    assert "(1 of 1): kept" in capsys.readouterr().err
    (found,) = json.loads(file.read_text())["cells"]
    assert [row["sampler"] for row in found["samplers"]] == ["iid", "strat-ns"]
    assert all(row["measured_step_iteration_seconds"] > 0 for row in found["samplers"])
