"""A whole run: its records, that it repeats, in turns, when it is refused, and how it can fail."""

import errno
import os
from contextlib import contextmanager
from dataclasses import replace
from operator import methodcaller

import jax
import numpy as np
import pytest
from support.training import SMALL, Said, Trial, ends_of, figures, interrupt, skippable_clock, train

from ncfbench import prepare
from ncfbench.config import Locations, complete
from ncfbench.distributed.process_group import ProcessGroup
from ncfbench.errors import DataError, Interrupted, UsageError
from ncfbench.models.towers import DeviceContent
from ncfbench.runs import folder as runs
from ncfbench.runs.plan import RunPlan
from ncfbench.storage import locks, tables
from ncfbench.training import limits
from ncfbench.training import run as training
from ncfbench.training import train as loops
from ncfbench.training.step import Trainer, state_shapes
from ncfbench.training.train import Run
from ncfbench.training.trained import restore_trained
from ncfbench.training.turns import Turns

SHORT = {"encoder": "mf", "epochs": 1}
LONG = pytest.mark.long


def test_a_run_leaves_its_records(whole, tiny):
    tables = {"curve", "evaluation", "timing", "ledger", "summary"}
    files = {"config.json", "environment.json", "checkpoints", ".lock"}
    files |= {f"{name}.parquet" for name in tables}
    assert {path.name for path in whole.folder.iterdir()} == files
    ends, summary = ends_of(tiny), whole.summary
    names = ("status", "iterations", "planned_iterations")
    assert [summary[name] for name in names] == ["finished", ends[-1], ends[-1]]
    evaluated = {
        row["iteration"]: row["epoch"]
        for row in whole.curve
        if row["test_recall_at_50"] is not None
    }
    assert evaluated == dict(zip(ends, (1, 2, 3), strict=True))
    iterations = [row["iteration"] for row in whole.curve]
    assert iterations == sorted({0, *iterations})
    assert whole.curve[-1]["probe_loss"] < 0.9 * whole.curve[0]["probe_loss"]
    assert summary["data_fingerprint"] == tiny.fingerprint
    assert summary["environment_key"] == whole.environment["key"]
    full = [row for row in whole.timing if row["kind"] == "full"]
    assert sum(row["iterations"] for row in full) == ends[-1]
    assert summary["train_seconds"] == pytest.approx(sum(row["seconds"] for row in full))
    assert sum(row["kind"] == "step" for row in whole.timing) == 3
    assert {row["kind"] for row in whole.timing} >= {"compile", "probe", "evaluation", "checkpoint"}
    assert summary["full_iteration_seconds"] > 0 < summary["step_iteration_seconds"]


def test_a_run_of_free_vectors(data_dir, tmp_path):
    """It warns first that nothing can be ranked."""
    record = train(data_dir, tmp_path, progress=(said := Said()), probe_every=1, **SHORT)
    assert "nothing can be ranked: mf learns" in said.texts[0]
    assert "--hold-out links, or train with --encoder bow." in said.texts[0]
    assert record.summary["test_recall_at_50"] is None
    assert "held-out items have none" in record.summary["recall_reason"]


def test_again_alone_replaces_a_run(data_dir, tmp_path, monkeypatch):
    """With the same numbers, and times that are measured anew; another seed has other numbers."""
    first, said = train(data_dir, tmp_path, **SHORT), Said()
    with monkeypatch.context() as patch:
        patch.setattr("ncfbench.training.train.Run", None)
        assert train(data_dir, tmp_path, progress=said, **SHORT).folder == first.folder
    assert said.texts == [f"Already finished: {first.folder}. To train it again, use --again."]
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
        train(data_dir, tmp_path, progress=Said(5), **small)
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
    data, changes = "f" * 64, ({}, {}, {"devices": 2}, {"learning_rate": 0.5})
    folders = [runs.path_of(tmp_path, complete(SMALL | more), data) for more in changes]
    assert folders[0].name.startswith("tiny-bow-sg-strat-ns-seed0-")
    assert len({*folders, runs.path_of(tmp_path, complete(SMALL), "0" * 64)}) == 4


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


@contextmanager
def turns_of(dataset, config, locations):
    """Open a run that stops at its probes alone and may not fail."""
    content = DeviceContent.of(dataset, [config])
    with Turns(dataset, content, locations, lambda: False, pytest.fail) as turns:
        turns.open("", config, stops_at_epochs=False)
        yield turns, turns.runs[""]


@pytest.mark.usefixtures("by_row")
@pytest.mark.parametrize("optimizer", ["row-adam", pytest.param("adam", marks=LONG)])
def test_turns_by_the_clock_change_no_number(tiny, data_dir, tmp_path, monkeypatch, optimizer):
    """Cut, evaluated and continued, it ends as one that trained alone; turns take 1/16 s a step."""
    skippable_clock(monkeypatch, lambda config: 1 / 16)
    settings = SMALL | {"sampler": "ns", "optimizer": optimizer, "user_tower": "history"}
    alone, config = train(data_dir, tmp_path / "alone", **settings), complete(settings)
    stops = (0.0, 0.2, 0.01, 0.0, 0.4)
    for cut in (7, 10**3):
        with turns_of(tiny, config, Locations(data_dir, tmp_path / "turns")) as (turns, run):
            for turn in range(cut):
                seconds, before = stops[turn % len(stops)], run.iteration
                if turns.take("", methodcaller("train_for", seconds)):
                    break
                assert run.iteration - before == max(round(16 * seconds), 1)
                if turn % 3 == 0:
                    turns.take("", Run.evaluate)
                    assert run.is_evaluated
            turns.save()
            if turns.runs:
                assert_kept_best(runs.read(run.recorder.folder), tiny)
    ended = runs.read(run.recorder.folder)
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


def test_a_run_stops_at_its_probes_alone(tiny, tmp_path, data_dir):
    """It is evaluated where it is asked to, once, and at its end."""
    every, *_, last = ends_of(tiny)
    config = complete(SMALL | {"sampler": "ns", "probe_every": every})
    with turns_of(tiny, config, Locations(data_dir, tmp_path)) as (turns, run):
        while turns.runs:
            turns.take("", lambda run: next(loops.train(run)))
            for _ in range(2 if run.iteration == 2 * every else 0):
                turns.take("", Run.evaluate)
    record = runs.read(run.recorder.folder)
    recalls = {row["iteration"]: row["test_recall_at_50"] for row in record.curve}
    assert list(recalls) == [*range(0, last, every), last]
    assert [at for at in recalls if recalls[at] is not None] == [2 * every, last]
    kinds = [row["kind"] for row in record.timing]
    assert kinds.count("evaluation") == 2
    assert "step" not in kinds


def test_a_run_stops_patience_after_its_best(tmp_path):
    """Its curve is the beginning of a longer run's, bit for bit; so too where it was cut."""
    prepare("synthetic", name="tiny", data_dir=tmp_path, users=120, items=900, links=4000)
    fast, said = {"epochs": 0, "patience": 2, "learning_rate": 0.3}, Said()
    record = train(tmp_path, tmp_path / "a", progress=said, **fast)
    epochs = int(record.summary["epochs"])
    assert (record.summary["status"], epochs) == ("finished", record.summary["reported_epoch"] + 2)
    stopped = f"Stopped after epoch {epochs}: validation recall has not risen for 2 epochs."
    assert said.texts.count(stopped) == 1
    longer = train(tmp_path, tmp_path / "b", progress=said, **fast | {"epochs": epochs + 1})
    assert said.texts.count(stopped) == 1
    interrupt(tmp_path, tmp_path / "c", record.curve[-2]["iteration"] + 1, **fast)
    resumed = train(tmp_path, tmp_path / "c", **fast)
    curve, other, again = (
        [row["probe_loss"] for row in run.curve] for run in (record, longer, resumed)
    )
    assert curve == other[: len(curve)] == again
    assert longer.summary["reported_epoch"] == record.summary["reported_epoch"]


# Refused before a folder is made: by plans, or once JAX is there


@pytest.mark.parametrize(("features", "is_read"), [("add", True), ("ignore", False)])
def test_a_run_keeps_the_seconds_of_derived_features(tmp_path, features, is_read):
    sizes = {"users": 60, "items": 90, "links": 900, "topics": 5, "vocabulary_size": 70}
    data = prepare("synthetic", name="x", data_dir=tmp_path, say=lambda text: None, lsa=4, **sizes)
    config = complete(SMALL | {"dataset": "x", "features": features})
    with runs.held(tmp_path / "runs", config, data) as folder:
        document = tables.read_json(folder / "config.json")
    assert document.get("feature_seconds") == (data.feature_seconds if is_read else None)


def test_missing_devices_make_no_folder(data_dir, tmp_path):
    plan = RunPlan.of(complete(SMALL | {"devices": 16}), Locations(data_dir, tmp_path / "runs"))
    with pytest.raises(UsageError, match="JAX has 8 cpu here. Use --devices 8"):
        training.run(plan)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "more", [{}, {"optimizer": "row-adam"}, {"user_tower": "history"}, {"devices": 8}], ids=str
)
def test_a_state_that_exceeds_the_memory_is_refused(tiny, monkeypatch, more):
    """To the byte: state, gradients and content."""
    config = complete(SMALL | more)
    trainer, state = Trainer.create(config, tiny)
    devices = jax.devices() if config.devices > 1 else jax.devices()[:1]
    needed = max(
        sum(
            shard.data.nbytes
            for leaf in [*jax.tree.leaves(state), *jax.tree.leaves(state.parameters)]
            for shard in leaf.addressable_shards
            if shard.device == device
        )
        for device in devices
    )
    for path, leaf in jax.tree_util.tree_leaves_with_path(state.parameters):
        needed -= leaf.nbytes * (tuple(key.key for key in path) in trainer.optimizer.tables)
    needed += sum(array.nbytes for array in jax.tree.leaves(DeviceContent.of(tiny, [config])))
    monkeypatch.setattr(limits, "memory_limit", lambda: needed)
    limits.layout_for(config, tiny)
    monkeypatch.setattr(limits, "memory_limit", lambda: needed - 1)
    with pytest.raises(UsageError, match="Use a smaller --dimension"):
        limits.layout_for(config, tiny)


def test_shapes_need_no_memory(tiny):
    """A table of 2^31 numbers for the users is refused without making it."""
    huge = replace(complete(SMALL | {"encoder": "mf"}), dimension=2**31 // tiny.n_users)
    shapes = state_shapes(huge, tiny)
    assert sum(leaf.size for leaf in jax.tree.leaves(shapes.parameters)) >= 2**31


def test_several_processes_need_the_command(data_dir, tmp_path, monkeypatch):
    monkeypatch.setattr(ProcessGroup, "current", lambda: ProcessGroup(index=1, count=2))
    with pytest.raises(UsageError, match="ncfbench run --coordinator"):
        training.train(data_dir=data_dir, runs_dir=tmp_path, **SMALL)
