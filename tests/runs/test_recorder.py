"""Recorders, from samples and rows that are written out, and Ctrl-C as a flag: no clock."""

import signal
from unittest.mock import Mock

import numpy as np
import pytest
from support.records import make_run
from support.training import Said

from ncfbench.config import complete
from ncfbench.runs import folder as runs
from ncfbench.runs import recorder as recorders
from ncfbench.runs.quality import Evaluation
from ncfbench.runs.recorder import Recorder
from ncfbench.runs.schedule import Schedule
from ncfbench.runs.signals import deferred_signals
from ncfbench.storage import schemas
from ncfbench.timing.clock import Sample
from ncfbench.timing.ledger import Ledger

SCHEDULE = Schedule(n_links=100, batch_size=10, epochs=2, probe_every=5)
CONFIG = complete({"dataset": "tiny", "batch_size": 10, "sampler": "ns"})


def open_recorder(folder, key="here", *session):
    environment = {"key": key, "time": "2026-01-01", "interleaved": [None]}
    return Recorder(CONFIG, "f" * 64, SCHEDULE, Ledger(), Said(), folder, environment, *session)


def new_folder(runs_dir):
    return make_run(runs_dir, CONFIG, "f" * 64)


def full(first, seconds, iterations=5):
    return Sample("full", first, iterations, seconds, 0.1, 0.2, 0.3, 40.0)


def row(iteration, loss):
    known = {"iteration": iteration, "epoch": SCHEDULE.epoch_of(iteration), "probe_loss": loss}
    return dict.fromkeys(schemas.CURVE.names) | known


def first_session(runs_dir):
    """Fifteen iterations, a block and a probe every five; interrupted."""
    recorder = open_recorder(new_folder(runs_dir), "here", "nothing to rank", None)
    recorder.write_environment()
    recorder.record(row(0, 9))
    for first, seconds in ((0, 1.0), (5, 2.0), (10, 4.0)):
        recorder.take([full(first, seconds)])
        recorder.record(row(first + 5, 8 - first / 5))
        recorder.take([Sample("probe", first + 5, 1, 0.5)])
    recorder.write("interrupted", 15)
    return recorder.folder


def written(recorder, iteration, *samples, **more):
    """Return the record of a run that takes samples and is interrupted at an iteration."""
    recorder.take(samples, **more)
    recorder.write("interrupted", iteration)
    return runs.read(recorder.folder)


def test_rows_come_back_with_their_summary(tmp_path):
    record = runs.read(first_session(tmp_path))
    assert [r["iteration"] for r in record.curve] == [0, 5, 10, 15]
    assert [r["train_seconds"] for r in record.curve] == [0, 1, 3, 7]
    summary = record.summary
    assert (summary["status"], summary["iterations"], summary["epochs"]) == ("interrupted", 15, 1.5)
    assert summary["smallest_probe_loss"] == 6
    assert summary["full_iteration_seconds"] == 2 / 5
    assert summary["sampling_iteration_seconds"] == pytest.approx(0.3 / 15)
    assert (summary["item_slots"], summary["recall_reason"]) == (40, "nothing to rank")
    assert {r["line"]: r["seconds"] for r in record.ledger if r["thread"] == "sampler"} == {
        "sampling": pytest.approx(0.3),
        "transfer": pytest.approx(0.6),
    }


def test_a_session_continues_from_its_checkpoint(tmp_path):
    """Iteration 13 is inside the second epoch, which began with 10: its times are marked."""
    recorder = open_recorder(first_session(tmp_path), "here", None, 13)
    assert recorder.progress.texts == []
    recorder.record(row(15, 1))
    samples = full(13, 9.0, 2), Sample("compile", 13, 1, 3.0)
    record = written(recorder, 15, *samples, resumed=True)
    assert [r["iteration"] for r in record.curve] == [0, 5, 10, 15]
    assert [(r["kind"], r["first_iteration"], r["resumed"]) for r in record.timing] == [
        *(("full", 0, False), ("probe", 5, False), ("full", 5, False), ("probe", 10, False)),
        *(("full", 13, True), ("compile", 13, False)),
    ]
    assert {r["session"] for r in record.ledger} == {1, 2}


def test_a_second_beginning_drops_the_first_row(tmp_path):
    """A checkpoint of iteration 0 is older than its probe: every process probes again."""
    folder = first_session(tmp_path)
    recorder = open_recorder(folder, "here", None, 0)
    recorder.record(row(0, 9))
    assert [r["iteration"] for r in written(recorder, 0).curve] == [0]
    lost = open_recorder(folder)
    assert lost.progress.texts == ["No checkpoint to go on from: starting this run again."]


def test_times_of_two_environments_are_not_mixed(tmp_path):
    """A session elsewhere that trains nothing, as when a race ends at once, loses no times."""
    folder = first_session(tmp_path)
    before = runs.read(folder)
    recorder = open_recorder(folder, "elsewhere", None, 15)
    assert "environment has changed" in recorder.progress.texts[0]
    recorder.write_environment()
    record = written(recorder, 15, Sample("probe", 15, 1, 0.5))
    assert record.environment == before.environment
    for name in ("environment_key", "train_seconds"):
        assert record.summary[name] == before.summary[name]
    mean = record.summary["full_iteration_seconds"]
    assert mean == pytest.approx(1.5 / 5), "without the epoch that was cut"
    record = written(recorder, 20, full(15, 10.0))
    assert record.environment["key"] == record.summary["environment_key"] == "elsewhere"
    assert {row["environment_key"] for row in record.timing} == {"here", "elsewhere"}
    assert record.summary["full_iteration_seconds"] == 10 / 5
    assert record.summary["train_seconds"] == 1 + 2 + 4 + 10


def test_cut_blocks_count_if_there_are_no_others(tmp_path):
    recorder = open_recorder(new_folder(tmp_path))
    recorder.write_environment()
    record = written(recorder, 5, full(0, 3.0), resumed=True)
    assert record.summary["full_iteration_seconds"] == 3 / 5
    assert written(recorder, 10, full(5, 1.0)).summary["full_iteration_seconds"] == 1 / 5


def test_evaluations_are_written_with_checkpoints(tmp_path, monkeypatch):
    """Once, and as all tables; a session that continues has the earlier. They come back whole."""
    write = Mock(side_effect=recorders.write_evaluations)
    monkeypatch.setattr(recorders, "write_evaluations", write)
    recorder, rng = open_recorder(new_folder(tmp_path)), np.random.default_rng(2)
    recorder.write_environment()
    evaluations = {
        (iteration, split): Evaluation({}, rng.random(users, "f"), rng.random(items, "f"))
        for iteration in (5, 10, 15)
        for split, users, items in (("validation", 3, 5), ("test", 4, 2))
    }
    for iteration in (5, 10, 15):
        of = {split: evaluations[iteration, split] for split in ("validation", "test")}
        recorder.record(row(iteration, 9), of)
        assert not (recorder.folder / "curve.parquet").exists()
    assert write.call_count == 0
    for _ in range(2):
        recorder.write("running", 15)
    assert write.call_count == 1
    kept = recorder.read().evaluations
    assert [*kept] == [*evaluations]
    for key, expected in evaluations.items():
        for name in ("user_recalls", "item_shares"):
            arrays = getattr(kept[key], name), getattr(expected, name)
            np.testing.assert_array_equal(*arrays, strict=True)
    later = open_recorder(recorder.folder, "here", None, 10)
    later.record(row(15, 8), {"test": evaluations[15, "test"]})
    later.write("finished", 20)
    assert [*later.read().evaluations] == [*[*evaluations][:4], (15, "test")]


def test_other_processes_write_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    recorder = open_recorder(None)
    recorder.write_environment()
    recorder.take([full(0, 1.0)])
    recorder.record(row(0, 9))
    recorder.write("finished", 5)
    assert (recorder.folder, recorder.read()) == (None, None)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("is_writing", [False, True])
def test_the_first_ctrl_c_sets_a_flag_and_is_told_once(is_writing):
    """A stream that is being written refuses another writer: it is told at the next question."""
    said = []

    def say(text):
        if is_writing:
            raise RuntimeError("reentrant call inside <_io.BufferedWriter name='<stderr>'>")
        said.append(text)

    with deferred_signals(say, "Stopping.") as interrupted:
        assert not interrupted()
        signal.raise_signal(signal.SIGINT)
        assert said == ([] if is_writing else ["Stopping."])
        is_writing = False
        assert interrupted()
        assert interrupted()
        assert said == ["Stopping."]
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
