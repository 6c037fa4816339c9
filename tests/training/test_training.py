"""A whole run: what it leaves behind, that it repeats, and that interruptions change nothing."""

from __future__ import annotations

import itertools
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from processes import compiled_once
from stopping import StopAt

from ncfbench.config import Locations, complete
from ncfbench.data import store
from ncfbench.errors import DataError, DivergedError, UsageError
from ncfbench.runs import folder as runs
from ncfbench.runs.folder import RunRecord
from ncfbench.runs.progress import Progress
from ncfbench.runs.schedule import Schedule
from ncfbench.storage import locks, schemas, tables
from ncfbench.timing import statistics as analysis
from ncfbench.training import run as training
from ncfbench.training import session

SMALL: dict[str, Any] = {
    "dataset": "tiny",
    "batch_size": 64,
    "epochs": 3,
    "dimension": 8,
    "word_dimension": 8,
    "filters": 8,
    "lstm_units": 8,
}


def train(
    data_dir: Path,
    runs_dir: Path,
    *,
    resume: bool = False,
    progress: Progress | None = None,
    **more: Any,
) -> RunRecord:
    return training.run(
        complete(SMALL | more), Locations(data_dir, runs_dir), resume=resume, progress=progress
    )


def figures(record: RunRecord) -> list[dict[str, Any]]:
    """The curve without its times."""
    return [
        {key: value for key, value in row.items() if key != "train_seconds"} for row in record.curve
    ]


def test_records_of_a_run(data_dir: Path, tmp_path: Path, tiny: Any) -> None:
    record = train(data_dir, tmp_path)
    assert {path.name for path in record.folder.iterdir()} == {
        "config.json",
        "environment.json",
        "curve.parquet",
        "timing.parquet",
        "ledger.parquet",
        "summary.parquet",
        "checkpoints",
        ".lock",
    }
    n, b = tiny.graph.n_links, 64
    ends = [-(-epoch * n // b) for epoch in (1, 2, 3)]
    summary = record.summary
    assert summary["status"] == "finished"
    assert summary["iterations"] == summary["planned_iterations"] == ends[-1]
    assert [
        row["iteration"] for row in record.curve if row["test_recall_at_50"] is not None
    ] == ends
    assert [row["epoch"] for row in record.curve if row["test_recall_at_50"] is not None] == [
        1,
        2,
        3,
    ]
    assert record.curve[0]["iteration"] == 0
    assert all(
        later["iteration"] > row["iteration"]
        for row, later in zip(record.curve, record.curve[1:], strict=False)
    )
    assert summary["data_fingerprint"] == tiny.fingerprint
    assert summary["environment_key"] == record.environment["key"]
    assert summary["smallest_probe_loss"] == min(row["probe_loss"] for row in record.curve)
    full = [row for row in record.timing if row["kind"] == "full"]
    assert sum(row["iterations"] for row in full) == ends[-1]
    assert summary["train_seconds"] == pytest.approx(sum(row["seconds"] for row in full))
    assert sum(row["kind"] == "step" for row in record.timing) == 3
    assert {"compile", "probe", "evaluation", "checkpoint"} <= {
        row["kind"] for row in record.timing
    }
    assert summary["full_iteration_seconds"] > 0 < summary["step_iteration_seconds"]


@pytest.mark.long_cases(r".*lstm")
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
def test_the_probe_falls(
    data_dir: Path, tmp_path: Path, sampler: str, loss: str, encoder: str
) -> None:
    record = train(
        data_dir, tmp_path, sampler=sampler, loss=loss, encoder=encoder, learning_rate=0.03
    )
    # One score for all pairs brings MSE from 1 to 8/9 at best (lambda = 8): below that, pairs are
    # told apart.
    assert record.curve[-1]["probe_loss"] < 0.88 * record.curve[0]["probe_loss"]


def test_mf_has_no_recall_and_says_why(data_dir: Path, tmp_path: Path) -> None:
    summary = train(data_dir, tmp_path, encoder="mf", epochs=1).summary
    assert summary["test_recall_at_50"] is None
    assert "held-out items have none" in summary["recall_reason"]


def test_two_runs_with_one_seed_are_identical_and_another_seed_differs(
    data_dir: Path, tmp_path: Path
) -> None:
    one, two = train(data_dir, tmp_path), train(data_dir, tmp_path)
    assert one.folder != two.folder
    assert figures(one) == figures(two)
    assert figures(train(data_dir, tmp_path, seed=1)) != figures(one)


@pytest.mark.long_cases(r"(?!stops1-iid|stops2-strat-ns)")
@pytest.mark.parametrize("sampler", ["iid", "strat-ns"])
@pytest.mark.parametrize("stops", [(1,), (17,), (20, 36), (47,)])
def test_an_interrupted_run_ends_with_the_same_curve(
    data_dir: Path, tmp_path: Path, sampler: str, stops: tuple[int, ...]
) -> None:
    """Stopped inside a block, at a probe and at an epoch's end; resumed once and twice."""
    whole = train(data_dir, tmp_path / "whole", sampler=sampler)
    for place, stop in enumerate(stops):
        with pytest.raises(KeyboardInterrupt):
            train(
                data_dir, tmp_path / "cut", sampler=sampler, resume=place > 0, progress=StopAt(stop)
            )
        (folder,) = (tmp_path / "cut").iterdir()
        record = runs.read(folder)
        assert (record.summary["status"], record.summary["iterations"]) == ("interrupted", stop)
    resumed = train(data_dir, tmp_path / "cut", sampler=sampler, resume=True)
    assert len(list((tmp_path / "cut").iterdir())) == 1
    assert figures(resumed) == figures(whole)
    assert (
        sum(row["iterations"] for row in resumed.timing if row["kind"] == "full")
        == whole.summary["iterations"]
    )
    ends = [0] + [row["iteration"] for row in whole.curve if row["test_recall_at_50"] is not None]
    broken = [
        (begin, end)
        for begin, end in itertools.pairwise(ends)
        for stop in stops
        if begin < stop < end
    ]
    for row in resumed.timing:
        inside = any(begin <= row["first_iteration"] < end for begin, end in broken)
        assert row["resumed"] == (row["kind"] == "full" and inside)
    assert {row["session"] for row in resumed.ledger} == set(range(1, len(stops) + 2))
    wall = sum(row["seconds"] for row in resumed.ledger if row["thread"] == "main")
    assert wall == pytest.approx(resumed.summary["wall_seconds"])


def test_a_killed_run_ends_with_the_same_curve(data_dir: Path, tmp_path: Path) -> None:
    """SIGKILL soon after the second and the fifth checkpoint; then it is left to finish."""
    settings = SMALL | {"epochs": 12}
    script = (
        "import sys; from pathlib import Path;"
        " from ncfbench.training import session, run as training;"
        " from ncfbench.config import *; session.CHECKPOINT_SECONDS ="
        f" 0.0;training.run(complete({settings!r}), Locations(Path({str(data_dir)!r}),"
        " Path(sys.argv[1])), resume=True)"
    )
    ends = [-(-epoch * store.load(data_dir, "tiny").graph.n_links // 64) for epoch in range(1, 13)]
    for epoch, delay in ((2, 0.0), (5, 0.03)):
        process = subprocess.Popen(
            [sys.executable, "-c", script, str(tmp_path / "cut")], env=os.environ | compiled_once()
        )
        while (
            not list(tmp_path.glob(f"cut/*/checkpoints/{ends[epoch - 1]}"))
            and process.poll() is None
        ):
            time.sleep(0.005)
        time.sleep(delay)
        process.kill()
        assert process.wait() == -signal.SIGKILL, "the run was over before it was killed"
    last = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "cut")],
        env=os.environ | compiled_once(),
        check=False,
    )
    assert last.returncode == 0
    (folder,) = (tmp_path / "cut").iterdir()
    record = runs.read(folder)
    whole = training.run(complete(settings), Locations(data_dir, tmp_path / "whole"))
    assert figures(record) == figures(whole)
    assert sum(row["iterations"] for row in record.timing if row["kind"] == "full") == ends[-1]
    assert not list(folder.glob("checkpoints/.*"))


def test_a_finished_run_is_not_repeated_by_resume(
    data_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = train(data_dir, tmp_path, epochs=1)
    monkeypatch.setattr(training, "Session", lambda *_: pytest.fail("trained again"))
    assert train(data_dir, tmp_path, epochs=1, resume=True).folder == first.folder


def test_divergence_stops_with_the_iteration_and_keeps_the_records(
    data_dir: Path, tmp_path: Path
) -> None:
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
        patch.setattr("ncfbench.training.checkpoint.shutil.disk_usage", lambda path: usage)
        with pytest.raises(
            DataError, match=r"checkpoints: No space left on device. Free some space"
        ):
            train(data_dir, tmp_path)
    (folder,) = tmp_path.iterdir()
    assert runs.read(folder).curve[-1]["epoch"] == 3
    assert train(data_dir, tmp_path, resume=True).summary["status"] == "finished"


def test_a_second_process_on_one_run_is_refused(data_dir: Path, tmp_path: Path) -> None:
    folder = train(data_dir, tmp_path, epochs=1).folder
    held = locks.held(folder, "writing")
    with (
        held,
        pytest.raises(UsageError, match="Another process is writing"),
        locks.held(folder, "writing"),
    ):
        pass


@pytest.mark.long_cases(r"(?!newest-arrays|all-no arrays)")
@pytest.mark.parametrize("damage", ["arrays", "progress", "no arrays", "incomplete progress"])
@pytest.mark.parametrize("which", ["all", "newest"])
def test_damaged_checkpoints_fall_back_and_say_so(
    data_dir: Path, tmp_path: Path, damage: str, which: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An older checkpoint, or the beginning; then interrupted again before the damaged one, and
    still the same curve.
    """
    monkeypatch.setattr(session, "CHECKPOINT_SECONDS", 0.0)
    whole = train(data_dir, tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        train(data_dir, tmp_path / "cut", progress=StopAt(40))
    places = sorted((tmp_path / "cut").glob("*/checkpoints/*"), key=lambda path: int(path.name))
    assert [path.name for path in places] == [
        str(-(-2 * store.load(data_dir, "tiny").graph.n_links // 64)),
        "40",
    ]
    for place in places if which == "all" else places[-1:]:
        if damage == "progress":
            (place / "progress.json").write_text("{")
        elif damage == "incomplete progress":
            (place / "progress.json").write_text("{}")
        elif damage == "no arrays":
            shutil.rmtree(place / "state")
        else:
            for path in place.rglob("state/**/*"):
                if path.is_file():
                    path.write_bytes(b"damaged")
    said = Said(38)
    with pytest.raises(KeyboardInterrupt):
        train(data_dir, tmp_path / "cut", resume=True, progress=said)
    assert any("Checkpoint 40 cannot be read and is removed" in text for text in said.texts)
    assert any("starting this run again" in text for text in said.texts) == (which == "all")
    (folder,) = (tmp_path / "cut").iterdir()
    assert runs.read(folder).summary["iterations"] == 38
    later = Said(-1)
    assert figures(train(data_dir, tmp_path / "cut", resume=True, progress=later)) == figures(whole)
    assert later.began_at == 38


class Said(StopAt):
    """Keeps what it is told."""

    def __init__(self, iteration: int) -> None:
        super().__init__(iteration)
        self.texts: list[str] = []
        self.began_at = -1

    def begin(self, title: str, total: int, done: int) -> None:
        self.began_at = done

    def say(self, text: str) -> None:
        self.texts.append(text)


def test_folders_with_odd_names_are_resumed(data_dir: Path, tmp_path: Path) -> None:
    odd = tmp_path / "runs [old] *{x}"
    with pytest.raises(KeyboardInterrupt):
        train(data_dir, odd, progress=StopAt(20))
    later = Said(-1)
    train(data_dir, odd, resume=True, progress=later)
    assert later.began_at == 20


def test_a_checkpoint_that_cannot_be_written_is_a_data_error(
    data_dir: Path, tmp_path: Path
) -> None:
    """A limit on the size of files stands in for a full disk or a quota; in another process, as it
    cannot be lifted.
    """
    script = (
        "import resource, sys; from pathlib import Path; from ncfbench.training import run as training; from"
        " ncfbench.config import *;from ncfbench.training.checkpoint import Checkpoints; from"
        " ncfbench.errors import DataError; save = Checkpoints.save\ndef limited(*arguments):\n   "
        " resource.setrlimit(resource.RLIMIT_FSIZE, (500, 500))\n   "
        f" save(*arguments)\nCheckpoints.save = limited\ntry: training.run(complete({SMALL!r}),"
        f" Locations(Path({str(data_dir)!r}), Path(sys.argv[1])))\nexcept DataError as error:"
        " print('refused:', error); sys.exit(3)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 3, done.stderr
    assert "refused: Cannot write" in done.stdout
    (folder,) = tmp_path.iterdir()
    assert list((folder / "checkpoints").iterdir()) == []
    assert runs.read(folder).curve[-1]["epoch"] == 3


def test_times_of_another_environment_are_not_mixed(
    data_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(KeyboardInterrupt):
        train(data_dir, tmp_path, progress=StopAt(20))
    monkeypatch.setattr(session.environment, "key", lambda environment: "elsewhere")
    said = Said(-1)
    record = train(data_dir, tmp_path, resume=True, progress=said)
    assert any("environment has changed" in text for text in said.texts)
    assert {row["environment_key"] for row in record.timing} == {
        "elsewhere",
        record.timing[0]["environment_key"],
    }
    here = [row for row in record.timing if row["environment_key"] == "elsewhere"]
    assert record.summary["full_iteration_seconds"] == analysis.seconds_per_iteration(here, "full")


def test_a_run_of_cut_blocks_only_still_has_times(data_dir: Path, tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        train(data_dir, tmp_path, epochs=1, probe_every=1000, progress=StopAt(9))
    record = train(data_dir, tmp_path, epochs=1, probe_every=1000, resume=True)
    assert all(row["resumed"] for row in record.timing if row["kind"] == "full")
    assert record.summary["full_iteration_seconds"] > 0


@pytest.mark.long
def test_synthetic_recall_on_cold_items_is_far_above_chance(tmp_path: Path) -> None:
    record = training.run(
        complete({"dataset": "synthetic", "loss": "hinge", "epochs": 4}),
        Locations(tmp_path, tmp_path / "r"),
    )
    chance = 50 / 640
    assert record.summary["test_recall_at_50"] > 3 * chance


@pytest.mark.parametrize("probe_every", [0, 1, 7, 100])
@pytest.mark.parametrize(
    ("links", "batch"),
    [
        (1000, 32),
        (1000, 1000),
        (7, 3),
        (999, 64),
        (64, 64),
        (43_200, 512),
        (1000, 900),
        (43_200, 32_768),
    ],
)
def test_schedule_visits_probes_epoch_ends_and_the_last_iteration(
    links: int, batch: int, probe_every: int
) -> None:
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
    for name, schema in (
        ("curve", schemas.CURVE),
        ("timing", schemas.TIMING),
        ("summary", schemas.SUMMARY),
    ):
        table = tables.read_table(folder / f"{name}.parquet", schema)
        assert table.schema.metadata[b"schema_version"] == str(schemas.SCHEMA_VERSION).encode()
        assert table.schema.metadata[b"table"] == name.encode()


def test_a_trace_changes_no_result_and_no_time_that_counts(data_dir: Path, tmp_path: Path) -> None:
    places = Locations(data_dir, tmp_path / "traced")
    traced = training.run(complete(SMALL), places, trace=tmp_path / "trace")
    assert list((tmp_path / "trace").rglob("*.xplane.pb"))
    assert figures(traced) == figures(train(data_dir, tmp_path / "plain"))
    (kept,) = [row for row in traced.timing if row["kind"] == "traced"]
    assert 1 <= kept["iterations"] <= session.TRACE_ITERATIONS
    full = [row for row in traced.timing if row["kind"] == "full"]
    assert (
        sum(row["iterations"] for row in full) + kept["iterations"] == traced.summary["iterations"]
    )
    assert {row["line"] for row in traced.ledger if row["seconds"] > 0} >= {"trace"}
    assert "load_average_at_end" in traced.environment
    trained = [row["seconds"] for row in traced.timing if row["kind"] in ("full", "traced")]
    assert traced.summary["train_seconds"] == pytest.approx(sum(trained))


def test_a_trace_that_cannot_be_is_said(data_dir: Path, tmp_path: Path) -> None:
    said = Said(-1)
    training.run(
        complete(SMALL | {"probe_every": 1}),
        Locations(data_dir, tmp_path / "a"),
        progress=said,
        trace=tmp_path / "t",
    )
    assert any("No trace was written" in text for text in said.texts)
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(DataError, match="Cannot write"):
        training.run(
            complete(SMALL), Locations(data_dir, tmp_path / "b"), trace=tmp_path / "file" / "t"
        )
    assert not (tmp_path / "b").exists()
