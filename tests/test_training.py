"""A whole run: what it leaves behind, that it repeats, and that interruptions change nothing."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from ncfbench import runs, tables, training
from ncfbench.config import Locations, complete
from ncfbench.errors import DataError, DivergedError, UsageError
from ncfbench.progress import Progress
from ncfbench.runs import RunRecord
from ncfbench.training import Schedule

SMALL: dict[str, Any] = {
    "dataset": "tiny", "batch_size": 64, "epochs": 3, "dimension": 8, "word_dimension": 8, "filters": 8, "lstm_units": 8,
}  # fmt: skip


def train(
    data_dir: Path, runs_dir: Path, *, resume: bool = False, progress: Progress | None = None, **more: Any
) -> RunRecord:
    return training.run(complete(SMALL | more), Locations(data_dir, runs_dir), resume=resume, progress=progress)


def figures(record: RunRecord) -> list[dict[str, Any]]:
    """The curve without its times."""
    return [{key: value for key, value in row.items() if key != "train_seconds"} for row in record.curve]


def test_records_of_a_run(data_dir: Path, tmp_path: Path, tiny: Any) -> None:
    record = train(data_dir, tmp_path)
    assert {path.name for path in record.folder.iterdir()} == {
        "config.json", "environment.json", "curve.parquet", "timing.parquet", "summary.parquet", "checkpoints", ".lock",
    }  # fmt: skip
    n, b = tiny.graph.n_links, 64
    ends = [-(-epoch * n // b) for epoch in (1, 2, 3)]
    summary = record.summary
    assert summary["status"] == "finished"
    assert summary["iterations"] == summary["planned_iterations"] == ends[-1]
    assert [row["iteration"] for row in record.curve if row["test_recall_at_50"] is not None] == ends
    assert [row["epoch"] for row in record.curve if row["test_recall_at_50"] is not None] == [1, 2, 3]
    assert record.curve[0]["iteration"] == 0
    assert all(later["iteration"] > row["iteration"] for row, later in zip(record.curve, record.curve[1:], strict=False))
    assert summary["data_fingerprint"] == tiny.fingerprint
    assert summary["environment_key"] == record.environment["key"]
    assert summary["smallest_probe_loss"] == min(row["probe_loss"] for row in record.curve)
    full = [row for row in record.timing if row["kind"] == "full"]
    assert sum(row["iterations"] for row in full) == ends[-1]
    assert summary["train_seconds"] == pytest.approx(sum(row["seconds"] for row in full))
    assert sum(row["kind"] == "step" for row in record.timing) == 3
    assert {"compile", "probe", "evaluation", "checkpoint"} <= {row["kind"] for row in record.timing}
    assert summary["full_iteration_seconds"] > 0 < summary["step_iteration_seconds"]


@pytest.mark.parametrize(
    ("sampler", "loss", "encoder"),
    [
        ("iid", "sg", "cnn"),
        ("neg", "log", "mf"),
        ("strat", "mse", "lstm"),
        ("ns", "hinge", "cnn"),
        ("strat-ns", "sg", "lstm"),
    ],
)
def test_the_probe_falls(data_dir: Path, tmp_path: Path, sampler: str, loss: str, encoder: str) -> None:
    record = train(data_dir, tmp_path, sampler=sampler, loss=loss, encoder=encoder, learning_rate=0.03)
    # One score for all pairs brings MSE from 1 to 8/9 at best (lambda = 8): below that, pairs are told apart.
    assert record.curve[-1]["probe_loss"] < 0.88 * record.curve[0]["probe_loss"]


def test_mf_has_no_recall_and_says_why(data_dir: Path, tmp_path: Path) -> None:
    summary = train(data_dir, tmp_path, encoder="mf", epochs=1).summary
    assert summary["test_recall_at_50"] is None
    assert "held-out items have none" in summary["recall_reason"]


def test_two_runs_with_one_seed_are_identical_and_another_seed_differs(data_dir: Path, tmp_path: Path) -> None:
    one, two = train(data_dir, tmp_path), train(data_dir, tmp_path)
    assert one.folder != two.folder
    assert figures(one) == figures(two)
    assert figures(train(data_dir, tmp_path, seed=1)) != figures(one)


class StopAt(Progress):
    """Sends this process an interrupt after some iteration."""

    def __init__(self, iteration: int) -> None:
        self.iteration = iteration

    def advance(self, iteration: int, item_slots: float) -> None:
        if iteration == self.iteration:
            os.kill(os.getpid(), signal.SIGINT)


@pytest.mark.parametrize("sampler", ["iid", "strat-ns"])
@pytest.mark.parametrize("stops", [(1,), (17,), (20, 36), (47,)])
def test_an_interrupted_run_ends_with_the_same_curve(
    data_dir: Path, tmp_path: Path, sampler: str, stops: tuple[int, ...]
) -> None:
    """Stopped inside a block, at a probe and at an epoch's end; resumed once and twice."""
    whole = train(data_dir, tmp_path / "whole", sampler=sampler)
    for place, stop in enumerate(stops):
        with pytest.raises(KeyboardInterrupt):
            train(data_dir, tmp_path / "cut", sampler=sampler, resume=place > 0, progress=StopAt(stop))
        (folder,) = (tmp_path / "cut").iterdir()
        record = runs.read(folder)
        assert (record.summary["status"], record.summary["iterations"]) == ("interrupted", stop)
    resumed = train(data_dir, tmp_path / "cut", sampler=sampler, resume=True)
    assert len(list((tmp_path / "cut").iterdir())) == 1
    assert figures(resumed) == figures(whole)
    assert sum(row["iterations"] for row in resumed.timing if row["kind"] == "full") == whole.summary["iterations"]
    cut = [row for row in resumed.timing if row["resumed"]]
    assert all(row["kind"] == "full" for row in cut)


def test_a_killed_run_ends_with_the_same_curve(data_dir: Path, tmp_path: Path) -> None:
    """SIGKILL at an arbitrary moment, again and again, until it is finished."""
    settings = SMALL | {"epochs": 60}
    script = (
        "import sys; from pathlib import Path; from ncfbench import training; from ncfbench.config import *;"
        "training.CHECKPOINT_SECONDS = 0.0;"
        f"training.run(complete({settings!r}), Locations(Path({str(data_dir)!r}), Path(sys.argv[1])), resume=True)"
    )
    killed = 0
    for patience in (5.0, 6.0, 7.0, 120.0):
        process = subprocess.Popen([sys.executable, "-c", script, str(tmp_path / "cut")])
        try:
            process.wait(patience)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            killed += 1
        else:
            break
    assert process.returncode == 0
    (folder,) = (tmp_path / "cut").iterdir()
    whole = training.run(complete(settings), Locations(data_dir, tmp_path / "whole"))
    assert figures(runs.read(folder)) == figures(whole)
    assert killed, "the run was too short to be killed; the test proves nothing"


def test_a_finished_run_is_not_repeated_by_resume(data_dir: Path, tmp_path: Path) -> None:
    first = train(data_dir, tmp_path, epochs=1)
    begin = time.perf_counter()
    again = train(data_dir, tmp_path, epochs=1, resume=True)
    assert again.folder == first.folder
    assert time.perf_counter() - begin < 2


def test_divergence_stops_with_the_iteration_and_keeps_the_records(data_dir: Path, tmp_path: Path) -> None:
    with pytest.raises(DivergedError, match=r"not finite at iteration \d+"):
        train(data_dir, tmp_path, loss="mse", learning_rate=1e30)
    (folder,) = tmp_path.iterdir()
    record = runs.read(folder)
    assert record.summary["status"] == "diverged"
    assert "not finite" in record.summary["message"]
    assert record.curve[0]["iteration"] == 0


def test_a_full_disk_is_a_clear_error_and_loses_nothing(
    data_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        usage = shutil.disk_usage(tmp_path)._replace(free=1000)
        patch.setattr("ncfbench.checkpoint.shutil.disk_usage", lambda path: usage)
        with pytest.raises(DataError, match=r"checkpoints: No space left on device. Free some space"):
            train(data_dir, tmp_path)
    (folder,) = tmp_path.iterdir()
    assert runs.read(folder).curve[-1]["epoch"] == 3
    assert train(data_dir, tmp_path, resume=True).summary["status"] == "finished"


def test_a_second_process_on_one_run_is_refused(data_dir: Path, tmp_path: Path) -> None:
    folder = train(data_dir, tmp_path, epochs=1).folder
    with runs.lock(folder), pytest.raises(UsageError, match="Another process"), runs.lock(folder):
        pass


def test_damaged_checkpoints_fall_back(data_dir: Path, tmp_path: Path) -> None:
    """With every checkpoint damaged the run starts again, and ends with the same curve."""
    whole = train(data_dir, tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        train(data_dir, tmp_path / "cut", progress=StopAt(30))
    for path in (tmp_path / "cut").rglob("checkpoints/*/state/**/*"):
        if path.is_file():
            path.write_bytes(b"damaged")
    assert figures(train(data_dir, tmp_path / "cut", resume=True)) == figures(whole)


@pytest.mark.parametrize("probe_every", [0, 1, 7, 100])
@pytest.mark.parametrize(("links", "batch"), [(1000, 32), (1000, 1000), (7, 3), (999, 64), (64, 64), (43_200, 512)])
def test_schedule_visits_probes_epoch_ends_and_the_last_iteration(links: int, batch: int, probe_every: int) -> None:
    schedule = Schedule(links, batch, epochs=5, probe_every=probe_every)
    stops, iteration = [], 0
    while iteration < schedule.last:
        iteration = schedule.next_stop(iteration)
        stops.append(iteration)
    ends = [-(-epoch * links // batch) for epoch in range(1, 6)]
    if probe_every:
        expected = {*ends, *range(probe_every, ends[-1] + 1, probe_every)}
    else:
        expected = {-(-quarter * links // (4 * batch)) for quarter in range(1, 21)}
    assert stops == sorted(expected)
    assert [stop for stop in stops if schedule.ends_epoch(stop)] == ends
    assert [schedule.epoch_of(end) for end in ends] == [1, 2, 3, 4, 5]
    assert stops[-1] == ends[-1] == schedule.last


def test_summary_and_tables_carry_their_version(data_dir: Path, tmp_path: Path) -> None:
    folder = train(data_dir, tmp_path, epochs=1).folder
    for name, schema in (("curve", tables.CURVE), ("timing", tables.TIMING), ("summary", tables.SUMMARY)):
        table = tables.read_table(folder / f"{name}.parquet", schema.names)
        assert table.schema.metadata[b"schema_version"] == b"1"
        assert table.schema.metadata[b"table"] == name.encode()
