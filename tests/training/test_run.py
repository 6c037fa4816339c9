"""A whole run: its records, that it repeats, when it is refused, and how it can fail."""

import errno
import os
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.training import SMALL, Said, StopAt, Trial, ends_of, figures, skippable_clock, train

from ncfbench import prepare
from ncfbench.config import Locations, complete
from ncfbench.errors import DataError, DivergedError, Interrupted, UsageError
from ncfbench.models.towers import DeviceContent
from ncfbench.runs import folder as runs
from ncfbench.runs.plan import RunPlan
from ncfbench.storage import locks
from ncfbench.training import optimizer as optimizers
from ncfbench.training import run as training
from ncfbench.training import train as loops
from ncfbench.training.step import Trainer
from ncfbench.training.train import Run
from ncfbench.training.trained import restore_trained
from ncfbench.training.turns import Turns


def test_a_run_leaves_its_records(whole, tiny):
    assert {path.name for path in whole.folder.iterdir()} == {
        "config.json",
        "environment.json",
        "curve.parquet",
        "evaluation.parquet",
        "timing.parquet",
        "ledger.parquet",
        "summary.parquet",
        "checkpoints",
        ".lock",
    }
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


@pytest.mark.parametrize(
    ("hold_out", "encoder", "is_warned"),
    [("items", "mf", True), ("links", "mf", False), ("items", "bow", False)],
)
def test_what_cannot_be_ranked_is_said_first(tmp_path, hold_out, encoder, is_warned):
    """Before anything is trained, with what to do; the run is trained all the same."""
    sizes = {"users": 60, "items": 90, "links": 900, "topics": 5, "vocabulary_size": 70}
    options = {"data_dir": tmp_path, "say": lambda text: None, "hold_out": hold_out}
    prepare("synthetic", name="tiny", **options, **sizes)
    said = Said()
    record = train(tmp_path, tmp_path / "r", progress=said, encoder=encoder, epochs=1)
    first = (
        "Warning: nothing can be ranked: mf learns a vector for each item, and held-out items have"
        " none. The run measures losses and times, and no recall. For recall prepare the data with"
        " --hold-out links, or train with --encoder bow."
    )
    assert (said.texts[:1] == [first]) == is_warned
    assert any("nothing can be ranked" in text for text in said.texts) == is_warned
    assert (record.summary["recall_reason"] is not None) == is_warned


def test_a_run_of_free_vectors(data_dir, tmp_path, monkeypatch):
    """It has no recall and says why. Planning slots is charged to its own line of the ledger, not
    to the checkpoint.
    """
    plan, skip = loops.plan_capacity, skippable_clock(monkeypatch)

    def slow(*arguments):
        skip(1000)
        return plan(*arguments)

    monkeypatch.setattr(loops, "plan_capacity", slow)
    record = train(data_dir, tmp_path, encoder="mf", epochs=1, probe_every=1)
    seconds = {row["line"]: row["seconds"] for row in record.ledger if row["thread"] == "main"}
    assert seconds["initialising"] > 1000 > seconds["checkpoint"]
    assert record.summary["test_recall_at_50"] is None
    assert "held-out items have none" in record.summary["recall_reason"]


def test_one_seed_repeats_and_another_differs(data_dir, tmp_path, whole):
    again = train(data_dir, tmp_path)
    assert figures(again) == figures(whole)
    other = train(data_dir, tmp_path, seed=1, epochs=1)
    assert other.folder.name != again.folder.name
    assert figures(other)[0] != figures(whole)[0]


def test_a_finished_run_is_not_repeated(data_dir, whole, monkeypatch):
    again = "trained again"
    monkeypatch.setattr("ncfbench.training.train.Run", lambda *_, **__: pytest.fail(again))
    said = Said()
    found = train(data_dir, whole.folder.parent, progress=said)
    assert found.folder == whole.folder
    assert said.texts == [f"Already finished: {whole.folder}. To train it again, use --again."]


def test_again_replaces_a_run(data_dir, tmp_path):
    small: dict[str, Any] = {"encoder": "mf", "epochs": 1}
    first = train(data_dir, tmp_path, **small)
    second = train(data_dir, tmp_path, again=True, **small)
    assert second.folder == first.folder
    assert figures(second) == figures(first)
    assert second.timing != first.timing, "measured anew"
    assert {row["session"] for row in second.ledger} == {1}


def test_the_same_command_continues_its_run_and_no_other(data_dir, tmp_path):
    """The folder is that of settings, data and devices; a held one is refused."""
    small: dict[str, Any] = {"encoder": "mf", "epochs": 2}
    with pytest.raises(Interrupted) as caught:
        train(data_dir, tmp_path, progress=StopAt(5), **small)
    (folder,) = tmp_path.iterdir()
    assert caught.value.folder == folder
    with (
        locks.held(folder, "writing"),
        pytest.raises(UsageError, match="Another process is writing"),
    ):
        train(data_dir, tmp_path, again=True, **small)
    assert runs.read(folder).summary["iterations"] == 5
    assert train(data_dir, tmp_path, encoder="mf", epochs=3).folder != folder
    said = Said()
    record = train(data_dir, tmp_path, progress=said, **small)
    assert (record.folder, said.began_at) == (folder, 5)
    assert {row["session"] for row in record.ledger} == {1, 2}


def test_other_data_and_devices_are_other_runs(tmp_path):
    config = complete(SMALL)
    folder = runs.path_of(tmp_path, config, "f" * 64)
    assert folder == runs.path_of(tmp_path, complete(SMALL), "f" * 64)
    assert folder.name.startswith("tiny-bow-sg-strat-ns-seed0-")
    others = [
        runs.path_of(tmp_path, config, "0" * 64),
        runs.path_of(tmp_path, replace(config, devices=2), "f" * 64),
        runs.path_of(tmp_path, replace(config, learning_rate=0.5), "f" * 64),
    ]
    assert len({folder, *others}) == 4


def test_a_run_is_held_before_it_is_there(data_dir, tmp_path, monkeypatch):
    """No other process can take a new run before its maker holds it."""
    seen: list[list[Path]] = []
    write = runs.write_config

    def watched(folder, *more):
        with pytest.raises(UsageError), locks.held(folder, "writing"):
            pass
        seen.append([*tmp_path.glob("*/config.json")])
        write(folder, *more)

    monkeypatch.setattr(runs, "write_config", watched)
    train(data_dir, tmp_path, encoder="mf", epochs=1)
    assert seen == [[]]


@pytest.mark.parametrize("optimizer", ["adam", "row-adam"])
def test_turns_by_the_clock_change_no_number(tiny, data_dir, tmp_path, monkeypatch, optimizer):
    """Turns of one iteration and of some milliseconds, evaluated between two probes, interrupted
    there and continued, end with the parameters of a run that trained alone, bit for bit. The best
    evaluation's parameters are those that rank as it says, whose resting rows are up to date.
    """
    monkeypatch.setattr(optimizers, "FEW", dict.fromkeys(optimizers.FEW, 0))
    config = complete(SMALL | {"sampler": "ns", "optimizer": optimizer, "user_tower": "history"})
    locations = Locations(data_dir, tmp_path / "turns")
    alone = training.run(RunPlan.of(config, Locations(data_dir, tmp_path / "alone")))
    content, stops = DeviceContent.of(tiny, [config]), [0.0, 0.004, 0.0, 0.0, 0.01]
    folder, cut = None, 7
    while folder is None or runs.read(folder).summary["status"] != "finished":
        with Turns[str](tiny, content, locations, lambda: False, pytest.fail) as turns:
            turns.open("", config, stops_at_epochs=False)
            run = turns.runs[""]
            folder = run.recorder.folder
            for turn in range(cut):
                if "" in turns.runs:
                    seconds = stops[turn % len(stops)]
                    turns.take("", lambda run, seconds=seconds: run.train_for(seconds))
                if turn % 3 == 0 and "" in turns.runs:
                    turns.take("", Run.evaluate)
                    assert run.is_evaluated
            turns.save()
            if "" in turns.runs:
                _assert_kept_best(runs.read(folder), tiny)
        cut = 10**6
    ended = runs.read(folder)
    assert ended.summary["iterations"] == alone.summary["iterations"]
    arrays = [
        dict(np.load(each.folder / "checkpoints" / f"{each.summary['iterations']}.npz"))
        for each in (alone, ended)
    ]
    own = [name for name in arrays[0] if not name.startswith(("best", "document"))]
    assert own
    for name in own:
        assert np.array_equal(arrays[0][name], arrays[1][name]), name
    last = [each.curve[-1] for each in (alone, ended)]
    assert last[0]["probe_loss"] == last[1]["probe_loss"]
    assert last[0]["test_recall_at_50"] == last[1]["test_recall_at_50"]
    probes = {row["iteration"] for row in alone.curve}
    assert any(row["iteration"] not in probes for row in ended.curve), "evaluated between probes"


def _assert_kept_best(record, dataset):
    _, best = restore_trained(record, dataset, print)
    evaluations = Trial(dataset, record.config).evaluators.evaluate(best.parameters)
    (row,) = (row for row in record.curve if row["iteration"] == best.iteration)
    for split in ("validation", "test"):
        assert evaluations[split].figures["recall_at_50"] == row[f"{split}_recall_at_50"]


def test_a_turn_ends_by_the_clock(tiny, data_dir, tmp_path, monkeypatch):
    """Whatever an iteration takes: here 60 ms, of which three fit into 0.2 s and none into 0.01."""
    step = Trainer.step

    def slow(*arguments):
        time.sleep(0.06)
        return step(*arguments)

    monkeypatch.setattr(Trainer, "step", slow)
    config = complete(SMALL | {"sampler": "ns", "probe_every": 1000})
    content, trained = DeviceContent.of(tiny), []
    locations = Locations(data_dir, tmp_path)
    with Turns[str](tiny, content, locations, lambda: False, pytest.fail) as turns:
        turns.open("", config, stops_at_epochs=False)
        run = turns.runs[""]
        for seconds in (0.2, 0.01, 0.2):
            before = run.iteration
            turns.take("", lambda run, seconds=seconds: run.train_for(seconds))
            trained.append(run.iteration - before)
        assert run.iteration_seconds >= 0.06
        assert run.recorder.last_row is None
    assert 1 <= trained[0] <= 4
    assert trained[1] == 1
    assert 1 <= trained[2] <= 4


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
    small = {"encoder": "mf", "epochs": 1}

    def fail(*_, **__):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr("numpy.savez", fail)
        with pytest.raises(DataError, match="npz: No space left on device. Free some"):
            train(data_dir, tmp_path, **small)
    (folder,) = tmp_path.iterdir()
    assert runs.read(folder).curve[-1]["epoch"] == 1
    assert train(data_dir, tmp_path, **small).summary["status"] == "finished"


@pytest.mark.long
def test_recall_on_cold_items_is_far_above_chance(tmp_path):
    record = training.run(
        RunPlan.of(
            complete({"dataset": "synthetic", "loss": "hinge", "epochs": 4}),
            Locations(tmp_path, tmp_path / "r"),
        )
    )
    chance = 50 / 640
    assert record.summary["test_recall_at_50"] > 3 * chance


def test_a_run_stops_at_its_probes_alone(tiny, tmp_path, data_dir):
    """Losses are those of a run that stops at epochs too, and is not evaluated within them; nobody
    evaluates but who is asked to, and once. The end is evaluated all the same.
    """
    config = complete(SMALL | {"sampler": "ns", "probe_every": 20, "epochs": 2})
    content, curves = DeviceContent.of(tiny), []
    for stops in (True, False):
        locations = Locations(data_dir, tmp_path / str(stops))
        with Turns[str](tiny, content, locations, lambda: False, pytest.fail) as turns:
            turns.open("", config, stops_at_epochs=stops)
            folder = turns.runs[""].recorder.folder
            turns.take("", lambda run: next(loops.train(run)))
            for _ in range(0 if stops else 2):
                turns.take("", Run.evaluate)
            while turns.runs:
                turns.take("", lambda run: next(loops.train(run)))
        assert folder is not None
        curves.append(runs.read(folder))
    often, rarely = ({row["iteration"]: row for row in each.curve} for each in curves)
    last = max(often)
    assert list(rarely) == [*range(0, last, 20), last]
    assert all(rarely[at]["probe_loss"] == often[at]["probe_loss"] for at in rarely)
    evaluated = [at for at in rarely if rarely[at]["test_recall_at_50"] is not None]
    assert evaluated == [20, last]
    assert often[20]["test_recall_at_50"] is None
    kinds = [row["kind"] for row in curves[1].timing]
    assert kinds.count("evaluation") == 2
    assert "step" not in kinds
