"""A whole run: its records, that it repeats, when it is refused, and how it can fail."""

import errno
import os
from dataclasses import replace

import numpy as np
import pytest
from support.training import SMALL, Said, StopAt, Trial, ends_of, figures, skippable_clock, train

from ncfbench import prepare
from ncfbench.config import Locations, complete
from ncfbench.errors import DataError, DivergedError, Interrupted, UsageError
from ncfbench.models.towers import DeviceContent
from ncfbench.runs import folder as runs
from ncfbench.runs.plan import RunPlan
from ncfbench.runs.progress import Progress
from ncfbench.storage import locks
from ncfbench.training import run as training
from ncfbench.training import train as loops
from ncfbench.training.step import Trainer
from ncfbench.training.train import Run
from ncfbench.training.trained import restore_trained
from ncfbench.training.turns import Turns

SHORT = {"encoder": "mf", "epochs": 1}


def test_a_run_leaves_its_records(whole, tiny):
    tables = {"curve", "evaluation", "timing", "ledger", "summary"}
    files = {"config.json", "environment.json", "checkpoints", ".lock"}
    files |= {f"{name}.parquet" for name in tables}
    assert {path.name for path in whole.folder.iterdir()} == files
    ends, summary = ends_of(tiny), whole.summary
    assert summary["status"] == "finished"
    assert summary["iterations"] == summary["planned_iterations"] == ends[-1]
    evaluated = [row for row in whole.curve if row["test_recall_at_50"] is not None]
    assert [row["iteration"] for row in evaluated] == ends
    assert [row["epoch"] for row in evaluated] == [1, 2, 3]
    iterations = [row["iteration"] for row in whole.curve]
    assert iterations[0] == 0
    assert iterations == sorted(set(iterations))
    assert whole.curve[-1]["probe_loss"] < 0.9 * whole.curve[0]["probe_loss"]
    assert summary["data_fingerprint"] == tiny.fingerprint
    assert summary["environment_key"] == whole.environment["key"]
    full = [row for row in whole.timing if row["kind"] == "full"]
    assert sum(row["iterations"] for row in full) == ends[-1]
    assert summary["train_seconds"] == pytest.approx(sum(row["seconds"] for row in full))
    assert sum(row["kind"] == "step" for row in whole.timing) == 3
    assert {row["kind"] for row in whole.timing} >= {"compile", "probe", "evaluation", "checkpoint"}
    assert summary["full_iteration_seconds"] > 0 < summary["step_iteration_seconds"]


def test_a_run_of_free_vectors(data_dir, tmp_path, monkeypatch):
    """It warns first that nothing can be ranked. Planning is not charged to the checkpoint."""
    plan, skip, said = loops.plan_capacity, skippable_clock(monkeypatch), Said()

    def slow(*arguments):
        skip(1000)
        return plan(*arguments)

    monkeypatch.setattr(loops, "plan_capacity", slow)
    record = train(data_dir, tmp_path, progress=said, probe_every=1, **SHORT)
    seconds = {row["line"]: row["seconds"] for row in record.ledger if row["thread"] == "main"}
    assert seconds["initialising"] > 1000 > seconds["checkpoint"]
    assert "nothing can be ranked: mf learns" in said.texts[0]
    assert "--hold-out links, or train with --encoder bow." in said.texts[0]
    assert record.summary["test_recall_at_50"] is None
    assert "held-out items have none" in record.summary["recall_reason"]


def test_a_finished_run_is_not_repeated(data_dir, whole, monkeypatch):
    monkeypatch.setattr("ncfbench.training.train.Run", None)
    said = Said()
    assert train(data_dir, whole.folder.parent, progress=said).folder == whole.folder
    assert said.texts == [f"Already finished: {whole.folder}. To train it again, use --again."]


def test_again_replaces_a_run(data_dir, tmp_path):
    """With the same numbers, and times that are measured anew; another seed has other numbers."""
    first = train(data_dir, tmp_path, **SHORT)
    second = train(data_dir, tmp_path, again=True, **SHORT)
    assert second.folder == first.folder
    assert figures(second) == figures(first)
    assert second.timing != first.timing
    assert {row["session"] for row in second.ledger} == {1}
    other = train(data_dir, tmp_path, seed=1, **SHORT)
    assert other.folder != first.folder
    assert figures(other)[0] != figures(first)[0]


def test_the_same_command_continues_its_run_and_no_other(data_dir, tmp_path):
    """The folder is that of settings, data and devices; a held one is refused."""
    small = SHORT | {"epochs": 2}
    with pytest.raises(Interrupted) as caught:
        train(data_dir, tmp_path, progress=StopAt(5), **small)
    (folder,) = tmp_path.iterdir()
    assert caught.value.folder == folder
    refused = pytest.raises(UsageError, match="Another process is writing")
    with locks.held(folder, "writing"), refused:
        train(data_dir, tmp_path, again=True, **small)
    assert runs.read(folder).summary["iterations"] == 5
    assert train(data_dir, tmp_path, **SHORT).folder != folder
    said = Said()
    record = train(data_dir, tmp_path, progress=said, **small)
    assert (record.folder, said.began_at) == (folder, 5)
    assert {row["session"] for row in record.ledger} == {1, 2}


def test_other_data_and_devices_are_other_runs(tmp_path):
    config, data = complete(SMALL), "f" * 64
    folder = runs.path_of(tmp_path, config, data)
    assert folder == runs.path_of(tmp_path, complete(SMALL), data)
    assert folder.name.startswith("tiny-bow-sg-strat-ns-seed0-")
    changed = [replace(config, devices=2), replace(config, learning_rate=0.5)]
    folders = {runs.path_of(tmp_path, other, data) for other in changed}
    assert len({folder, runs.path_of(tmp_path, config, "0" * 64), *folders}) == 4


def test_a_run_is_held_before_it_is_there(tiny, tmp_path, monkeypatch):
    """No other process can take a new run before its maker holds it."""
    seen, write = [], runs.write_config

    def watched(folder, *more):
        with pytest.raises(UsageError), locks.held(folder, "writing"):
            pass
        seen.append([*tmp_path.glob("*/config.json")])
        write(folder, *more)

    monkeypatch.setattr(runs, "write_config", watched)
    with runs.held(tmp_path, complete(SMALL), tiny):
        assert seen == [[]]


def turns_of(dataset, config, locations):
    """Return turns of runs that may not fail."""
    content = DeviceContent.of(dataset, [config])
    return Turns(dataset, content, locations, lambda: False, pytest.fail)


@pytest.mark.usefixtures("by_row")
@pytest.mark.parametrize("optimizer", ["row-adam", pytest.param("adam", marks=pytest.mark.long)])
def test_turns_by_the_clock_change_no_number(tiny, data_dir, tmp_path, optimizer):
    """Cut, evaluated between probes and continued, it ends as one that trained alone."""
    config = complete(SMALL | {"sampler": "ns", "optimizer": optimizer, "user_tower": "history"})
    locations = Locations(data_dir, tmp_path / "turns")
    alone = training.run(RunPlan.of(config, Locations(data_dir, tmp_path / "alone")))
    stops = [0.0, 0.004, 0.0, 0.0, 0.01]
    for cut in (7, 10**3):
        with turns_of(tiny, config, locations) as turns:
            turns.open("", config, stops_at_epochs=False)
            run = turns.runs[""]
            folder = run.recorder.folder
            for turn in range(cut):
                seconds = stops[turn % len(stops)]
                if turns.take("", lambda run, seconds=seconds: run.train_for(seconds)):
                    break
                if turn % 3 == 0:
                    turns.take("", Run.evaluate)
                    assert run.is_evaluated
            turns.save()
            if turns.runs:
                assert_kept_best(runs.read(folder), tiny)
    ended = runs.read(folder)
    assert ended.summary["status"] == "finished"
    last = ended.summary["iterations"]
    assert last == alone.summary["iterations"]
    arrays, expected = (
        dict(np.load(record.folder / f"checkpoints/{last}.npz")) for record in (ended, alone)
    )
    names = [name for name in expected if not name.startswith(("best", "document"))]
    assert names
    for name in names:
        assert np.array_equal(arrays[name], expected[name]), name
    for name in ("probe_loss", "test_recall_at_50"):
        assert ended.curve[-1][name] == alone.curve[-1][name]
    probes = {row["iteration"] for row in alone.curve}
    assert any(row["iteration"] not in probes for row in ended.curve), "evaluated between probes"


def assert_kept_best(record, dataset):
    _, best = restore_trained(record, dataset, print)
    evaluations = Trial(dataset, record.config).evaluators.evaluate(best.parameters)
    (row,) = (row for row in record.curve if row["iteration"] == best.iteration)
    for split in ("validation", "test"):
        assert evaluations[split].figures["recall_at_50"] == row[f"{split}_recall_at_50"]


def test_a_turn_ends_by_the_clock(tiny, data_dir, tmp_path, monkeypatch):
    """Of iterations of 1/16 s three fit into 0.2 s, and none into 0.01."""
    step, seconds = Trainer.step, [0.0]

    def slow(*arguments):
        seconds[0] += 1 / 16
        return step(*arguments)

    monkeypatch.setattr(Trainer, "step", slow)
    monkeypatch.setattr("time.perf_counter", lambda: seconds[0])
    monkeypatch.setattr("time.perf_counter_ns", lambda: int(seconds[0] * 1e9))
    config, trained = complete(SMALL | {"sampler": "ns", "probe_every": 1000}), []
    with turns_of(tiny, config, Locations(data_dir, tmp_path)) as turns:
        turns.open("", config, stops_at_epochs=False)
        run = turns.runs[""]
        for limit in (0.2, 0.01, 0.2):
            before = run.iteration
            turns.take("", lambda run, limit=limit: run.train_for(limit))
            trained.append(run.iteration - before)
        assert run.iteration_seconds == 1 / 16
        assert run.recorder.last_row is None
    assert trained == [3, 1, 3]


def test_divergence_names_the_iteration_and_keeps_rows(data_dir, tmp_path):
    with pytest.raises(DivergedError, match=r"not finite at iteration \d+") as caught:
        train(data_dir, tmp_path, encoder="mf", loss="mse", learning_rate=1e30)
    (folder,) = tmp_path.iterdir()
    assert str(folder) in str(caught.value)
    record = runs.read(folder)
    assert record.summary["status"] == "diverged"
    assert "not finite" in record.summary["message"]
    assert record.curve[0]["iteration"] == 0


def test_a_full_disk_is_said_and_loses_nothing(data_dir, tmp_path, monkeypatch):
    def fail(*_, **__):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr("numpy.savez", fail)
        with pytest.raises(DataError, match="npz: No space left on device. Free some"):
            train(data_dir, tmp_path, **SHORT)
    (folder,) = tmp_path.iterdir()
    assert not list(folder.glob("checkpoints/*"))
    assert runs.read(folder).curve[-1]["epoch"] == 1
    assert train(data_dir, tmp_path, **SHORT).summary["status"] == "finished"


@pytest.mark.long
def test_recall_on_cold_items_is_far_above_chance(tmp_path):
    config = complete({"dataset": "synthetic", "loss": "hinge", "epochs": 4})
    record = training.run(RunPlan.of(config, Locations(tmp_path, tmp_path / "r")))
    chance = 50 / 640
    assert record.summary["test_recall_at_50"] > 3 * chance


def test_a_run_stops_at_its_probes_alone(tiny, tmp_path, data_dir):
    """It is evaluated where it is asked to, once, and at its end."""
    config = complete(SMALL | {"sampler": "ns", "probe_every": 20, "epochs": 2})
    records = []
    for stops in (True, False):
        with turns_of(tiny, config, Locations(data_dir, tmp_path / str(stops))) as turns:
            turns.open("", config, stops_at_epochs=stops)
            folder = turns.runs[""].recorder.folder
            turns.take("", lambda run: next(loops.train(run)))
            for _ in range(0 if stops else 2):
                turns.take("", Run.evaluate)
            while turns.runs:
                turns.take("", lambda run: next(loops.train(run)))
        records.append(runs.read(folder))
    often, rarely = ({row["iteration"]: row for row in record.curve} for record in records)
    last = max(often)
    assert list(rarely) == [*range(0, last, 20), last]
    assert all(rarely[at]["probe_loss"] == often[at]["probe_loss"] for at in rarely)
    evaluated = [at for at in rarely if rarely[at]["test_recall_at_50"] is not None]
    assert evaluated == [20, last]
    assert often[20]["test_recall_at_50"] is None
    kinds = [row["kind"] for row in records[1].timing]
    assert kinds.count("evaluation") == 2
    assert "step" not in kinds


def test_a_run_stops_patience_after_its_best(tmp_path, monkeypatch):
    """And says so. Its curve is the beginning of a longer run's, bit for bit; so too where it was
    cut.
    """
    said = []
    monkeypatch.setattr(Progress, "say", lambda self, text: said.append(text))
    fast = {"epochs": 0, "patience": 2, "learning_rate": 0.3}
    prepare("synthetic", name="tiny", data_dir=tmp_path, users=120, items=900, links=4000)
    record = train(tmp_path, tmp_path / "a", **fast)
    epochs = int(record.summary["epochs"])
    assert (record.summary["status"], epochs) == ("finished", record.summary["reported_epoch"] + 2)
    stopped = f"Stopped after epoch {epochs}: validation recall has not risen for 2 epochs."
    assert stopped in said
    said.clear()
    longer = train(tmp_path, tmp_path / "b", **fast | {"epochs": epochs + 1})
    assert stopped not in said
    with pytest.raises(KeyboardInterrupt):
        train(tmp_path, tmp_path / "c", progress=StopAt(record.curve[-2]["iteration"] + 1), **fast)
    again = train(tmp_path, tmp_path / "c", **fast)
    curve, other, resumed = (
        [row["probe_loss"] for row in run.curve] for run in (record, longer, again)
    )
    assert curve == other[: len(curve)] == resumed
    assert longer.summary["reported_epoch"] == record.summary["reported_epoch"]
