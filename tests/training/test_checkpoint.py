"""Checkpoints, whole or absent, also after damage; the parameters that a run hands out; runs
that were interrupted or killed, which end with the curve of a run that was left alone.
"""

import errno
import gc
import itertools
import json
import os
import signal
import subprocess
import sys
import weakref
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pyarrow.parquet as pq
import pytest
from flax import nnx
from support.processes import KILLED, compiled_once
from support.training import Said, ends_of, figures, interrupt, recall_of_lists, recommend, train

from ncfbench import prepare
from ncfbench.errors import DataError
from ncfbench.models.encoders.bow import BagOfWords
from ncfbench.runs import folder as runs
from ncfbench.training import checkpoint, loop
from ncfbench.training import train as loops
from ncfbench.training.checkpoint import KEPT, Best, Checkpoints
from ncfbench.training.export import BEST
from ncfbench.training.state import TrainState
from ncfbench.training.trained import open_data, restore_trained

PROGRESS = {"item_slots": 64, "pending_losses": [0.5]}


def state(iteration):
    """Twins, of which only the names differ, and numbers of 16 bits."""
    table = jnp.arange(6.0).reshape(3, 2) + iteration
    parameters = {"b": table, "a": -table, "half": jnp.arange(5, dtype=jnp.bfloat16)}
    return TrainState(parameters, ({"mu": 2 * table},), jnp.uint32(iteration), {})


def save(checkpoints, *iterations):
    for iteration in iterations:
        checkpoints.save(state(iteration), PROGRESS)


def files(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_the_newest_state_comes_back(tmp_path):
    checkpoints = Checkpoints(tmp_path / "runs [old] *{x}")
    assert checkpoints.restore(state(0)) is None
    save(checkpoints, 10, 20, 30)
    assert checkpoints.iterations() == [20, 30]
    assert KEPT == 2
    saved = Checkpoints(checkpoints.folder).restore(state(0))
    assert saved.progress == PROGRESS
    for leaf, wanted in zip(*map(jax.tree.leaves, (saved.state, state(30))), strict=True):
        assert leaf.dtype == wanted.dtype
        assert np.array_equal(leaf, wanted)


@pytest.mark.parametrize("best", [20, 10])
def test_the_reported_parameters_come_back(tmp_path, best):
    """Those of the state are written once."""
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(state(20), PROGRESS, Best(best, jax.device_get(state(best).parameters)))
    saved = checkpoints.restore(state(0)).best
    assert saved.iteration == best
    assert np.array_equal(saved.parameters["b"], state(best).parameters["b"])
    with np.load(checkpoints.path(20)) as file:
        assert any(name.startswith("best") for name in file) == (best == 10)


def test_torn_files_are_skipped_and_kept(tmp_path):
    """Cut at any length, or with any byte changed: the older one is read, and nothing deleted."""
    said = []
    checkpoints = Checkpoints(tmp_path, said.append)
    save(checkpoints, 20, 30)
    newest = checkpoints.path(30)
    whole = newest.read_bytes()
    at = {*range(0, len(whole), 41), *range(1, 13), *range(len(whole) - 12, len(whole))}
    flipped = (whole[:n] + bytes([whole[n] ^ 1 << n % 8]) + whole[n + 1 :] for n in at)
    for damaged in [*(whole[:n] for n in at), *flipped, b"damaged", bytes(10), whole + b"\0"]:
        newest.write_bytes(damaged)
        before = files(tmp_path)
        assert int(checkpoints.restore(state(0)).state.iteration) == 20
        assert said.pop() == f"Checkpoint 30 is damaged, and is skipped: {newest}."
        assert files(tmp_path) == before
    checkpoints.path(20).write_bytes(whole[:-1])
    assert checkpoints.restore(state(0)) is None
    assert checkpoints.iterations() == [20, 30]


def test_a_save_replaces_torn_files(tmp_path):
    """Of the iteration saved, and of earlier and later ones: two whole ones stay."""
    checkpoints = Checkpoints(tmp_path)
    save(checkpoints, 10, 20)
    for torn in (15, 20, 40):
        checkpoints.path(torn).write_bytes(b"torn")
    assert int(checkpoints.restore(state(0)).state.iteration) == 10
    save(checkpoints, 20)
    assert checkpoints.iterations() == [10, 20]
    assert int(checkpoints.restore(state(0)).state.iteration) == 20


@pytest.mark.parametrize(
    ("owner", "name", "number"),
    [(Path, "open", errno.EMFILE), (np, "load", errno.EIO), (Path, "iterdir", errno.EACCES)],
)
def test_a_refusal_of_the_system_is_no_damage(tmp_path, monkeypatch, owner, name, number):
    """It is an error, and neither skips nor deletes a checkpoint."""
    checkpoints = Checkpoints(tmp_path)
    save(checkpoints, 20, 30)
    before = files(tmp_path)

    def refuse(*args, **more):
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patched:
        patched.setattr(owner, name, refuse)
        with pytest.raises(DataError, match=f"Cannot read .*{os.strerror(number)}"):
            checkpoints.restore(state(0))
    assert files(tmp_path) == before


A, B = (jnp.full((2, 2), value) for value in (1.0, 2.0))
TABLE = r".parameters\['b'\] is float32\[2, 2\] there and"
OTHER_MODELS = {
    "a twin renamed": ({"b": B, "z": A}, r"it has no .*\['z'\];.* no .*\['a'\]; and 1 more"),
    "a layer less": ({"a": A}, r"the model has no .parameters\['b'\];"),
    "another shape": ({"a": A, "b": B[:1]}, rf"{TABLE} float32\[1, 2\] in the model;"),
    "another type": ({"a": A, "b": B.astype(jnp.int32)}, rf"{TABLE} int32\[2, 2\] in the model;"),
    "moved": ({"a": A, "b": {"b": B}}, r"it has no .parameters\['b'\]\['b'\];"),
}


@pytest.mark.parametrize(("now", "difference"), OTHER_MODELS.values(), ids=OTHER_MODELS)
def test_a_checkpoint_of_another_model_is_refused(tmp_path, now, difference):
    """With what differs; nothing is deleted, and an older one is not taken in its place."""
    checkpoints = Checkpoints(tmp_path)
    for iteration, parameters in ((7, now), (8, {"a": A, "b": B})):
        checkpoints.save(TrainState(parameters, parameters, jnp.uint32(iteration), {}), PROGRESS)
    before = files(tmp_path)
    with pytest.raises(DataError, match=f"8.npz does not fit the model: {difference}"):
        checkpoints.restore(TrainState(now, now, jnp.uint32(7), {}))
    assert files(tmp_path) == before


def test_arrays_are_read_one_by_one(tmp_path):
    """Memory never holds more than the state and one array read."""
    many = TrainState([jnp.full(1000, at) for at in range(50)], (), jnp.uint32(1), {})
    Checkpoints(tmp_path).save(many, {})
    held = []

    def put(array):
        assert not any(earlier() is not None for earlier in held)
        held.append(weakref.ref(array))
        return jnp.array(array)

    assert Checkpoints(tmp_path).restore(many, put) is not None
    assert len(held) == 51


# The parameters that a run hands out

SETTINGS = {"epochs": 2, "learning_rate": 0.03}


@pytest.mark.long
def test_a_run_on_two_devices(data_dir, tiny, tmp_path):
    record = train(data_dir, tmp_path, **SETTINGS | {"devices": 2})
    recall = recall_of_lists(recommend(record.folder, data_dir=data_dir), tiny)
    assert recall == pytest.approx(record.curve[-1]["test_recall_at_50"], abs=1e-12)


def test_the_reported_epoch_is_recommended_from(data_dir, tmp_path, tiny, monkeypatch):
    """An earlier one than the last, of a run that is interrupted after it and trained on."""
    monkeypatch.setattr("ncfbench.runs.reported.MEASURE", "validation_recall_at_10")
    monkeypatch.setattr("ncfbench.training.train.CHECKPOINT_SECONDS", 0.0)
    more = SETTINGS | {"epochs": 5, "learning_rate": 0.3, "loss": "mse"}
    interrupt(data_dir, tmp_path, ends_of(tiny, 5)[3] + 2, **more)
    record = train(data_dir, tmp_path, **more)
    at = record.reported_iteration
    assert at in ends_of(tiny, 5)[:3], "the data no longer peak early: choose other settings"
    folder = recommend(record.folder, count=10, data_dir=data_dir)
    recall, table = recall_of_lists(folder, tiny), pq.read_table(folder / BEST)
    assert recall == pytest.approx(record.summary["test_recall_at_10"], abs=1e-12)
    assert table.schema.metadata[b"iteration"] == str(at).encode()
    # A torn last checkpoint does not matter: an older one has these parameters too.
    last = record.folder / "checkpoints" / f"{ends_of(tiny, 5)[-1]}.npz"
    last.write_bytes(last.read_bytes()[:-99])
    recommend(record.folder, count=10, data_dir=data_dir)
    assert pq.read_table(folder / BEST).equals(table)


def test_without_validation_a_cut_epoch_is_left_out(tmp_path, tiny_options):
    """The last whole epoch is reported, and its parameters are handed out, not those of the cut."""
    options = vars(tiny_options) | {"validation_fraction": 0.0}
    tiny = prepare("synthetic", name="tiny", data_dir=tmp_path, say=lambda text: None, **options)
    assert not tiny.holds_out("validation")
    more, runs_dir = SETTINGS | {"epochs": 4}, tmp_path / "runs"
    folder = interrupt(tmp_path, runs_dir, ends_of(tiny, 4)[1] + 3, **more)
    record = runs.read(folder)
    assert record.summary["reported_epoch"] == 2 < record.summary["epochs"]
    recall = recall_of_lists(recommend(folder, data_dir=tmp_path), tiny)
    assert recall == pytest.approx(record.summary["test_recall_at_50"], abs=1e-12)
    meta = json.loads((folder / "vectors/meta.json").read_text())
    assert (meta["iteration"], meta["parameters"]) == (ends_of(tiny, 4)[1], "of the reported epoch")


def test_parameters_without_recall_are_said_to_be(data_dir, tmp_path):
    """Cut in the first epoch, nothing was evaluated: output and metadata say so. A torn end too."""
    folder = interrupt(data_dir, tmp_path, 7, **SETTINGS)
    said = Said()
    lists = pq.read_table(recommend(folder, data_dir=data_dir, said=said) / BEST)
    assert said.texts[0].endswith("its last iteration, 7, and no recall belongs to them.")
    assert lists.schema.metadata[b"parameters"] == b"of the last iteration, never evaluated"
    assert lists.schema.metadata[b"iteration"] == b"7"
    last = folder / "checkpoints" / "7.npz"
    last.write_bytes(last.read_bytes()[:-99])
    with pytest.raises(DataError, match="final checkpoint .* is missing"):
        recommend(folder, data_dir=data_dir, said=said)
    assert said.texts[-1] == f"Checkpoint 7 is damaged, and is skipped: {last}."
    assert last.exists()


class Bag(BagOfWords):
    """A plug-in, which an edit gives one more parameter."""

    is_edited = False

    def __init__(self, *given, rngs):
        super().__init__(*given, rngs=rngs)
        self.more = nnx.Param(jnp.zeros(2)) if self.is_edited else None


def test_an_edited_encoder_is_refused(data_dir, tmp_path, monkeypatch):
    """By all that read a checkpoint; all works once the edit is undone."""
    more = SETTINGS | {"encoder": f"{__name__}:Bag"}
    cut = interrupt(data_dir, tmp_path / "cut", 30, **more)
    whole = train(data_dir, tmp_path / "whole", **more).folder
    expected = pq.read_table(recommend(whole, data_dir=data_dir) / BEST)
    with monkeypatch.context() as patch:
        patch.setattr(Bag, "is_edited", True)
        for reading in (
            lambda: recommend(whole, data_dir=data_dir),
            lambda: recommend(cut, data_dir=data_dir),
            lambda: train(data_dir, tmp_path / "cut", **more),
        ):
            with pytest.raises(DataError, match=r"has no \.parameters\['encoder'\]\['more'\]"):
                reading()
    train(data_dir, tmp_path / "cut", **more)
    for folder in (whole, cut):
        assert pq.read_table(recommend(folder, data_dir=data_dir) / BEST).equals(expected)


# Runs that were interrupted or killed

ROWS = {"sampler": "neg", "loss": "hinge", "negatives": 2, "epochs": 1}
ROWS |= {"optimizer": "row-adam", "weight_decay": 0.1}
RIVALS = {"sampler": "ns", "loss": "softmax-logq", "batch_size": 24}
RIVALS |= {"item_block": 8, "epochs": 1, "coupling": "regularised"}


@pytest.mark.long
@pytest.mark.usefixtures("by_row")
@pytest.mark.parametrize(
    ("more", "stops"),
    [
        ({"sampler": "iid"}, (17,)),
        ({"sampler": "strat-ns"}, (20, 36, 47)),
        (ROWS, (6, 12)),
        (RIVALS, (5,)),
    ],
)
def test_an_interrupted_run_ends_with_the_same_curve(data_dir, tmp_path, more, stops):
    """Inside a block, at a probe, at an epoch's end; rows at rest; free item vectors."""
    whole = train(data_dir, tmp_path / "whole", **more)
    assert len(whole.environment["updated_by_row"]) == 2 * (more is ROWS)
    assert whole.curve[-1]["probe_loss"] < whole.curve[0]["probe_loss"]
    runs_dir = tmp_path / "runs [old] *{x}"
    for began_at, stop in itertools.pairwise((0, *stops)):
        said = Said(stop)
        summary = runs.read(interrupt(data_dir, runs_dir, stop, progress=said, **more)).summary
        assert said.began_at == began_at
        assert (summary["status"], summary["iterations"]) == ("interrupted", stop)
    resumed = train(data_dir, runs_dir, **more)
    assert len(list(runs_dir.iterdir())) == 1
    assert figures(resumed) == figures(whole)
    full = [row for row in resumed.timing if row["kind"] == "full"]
    assert sum(row["iterations"] for row in full) == whole.summary["iterations"]
    wall = sum(row["seconds"] for row in resumed.ledger if row["thread"] == "main")
    assert wall == pytest.approx(resumed.summary["wall_seconds"])


@pytest.mark.usefixtures("by_row")
def test_parameters_of_a_run_that_was_cut_are_up_to_date(data_dir, tmp_path):
    """Inside a block, rows updated one by one wait for momentum and decay, but not whole tables."""
    both = []
    for name in ("adam", "row-adam"):
        more = {"optimizer": name, "weight_decay": 0.1, "batch_size": 16, "sampler": "ns"}
        record = runs.read(interrupt(data_dir, tmp_path / name, 7, **more))
        assert record.curve[-1]["iteration"] < record.summary["iterations"] == 7
        _, best = restore_trained(record, open_data(record, data_dir, print), print)
        both.append(best.parameters)
    jax.tree.map(partial(np.testing.assert_allclose, rtol=0, atol=1e-5), *both)


@pytest.mark.parametrize("file", [40, pytest.param(21, marks=pytest.mark.long)])
def test_a_killed_run_ends_with_the_same_curve(data_dir, tmp_path, file):
    """SIGKILL before a file takes its name; then it is left to finish."""
    more, cut = {"dataset": "tiny", "encoder": "mf", "dimension": 8}, tmp_path / "cut"
    more |= {"batch_size": 64, "epochs": 8}
    script = (
        f"{KILLED}from ncfbench.training import run, train; train.CHECKPOINT_SECONDS = 0.0;"
        f"run.train(data_dir=sys.argv[1], runs_dir=sys.argv[2], **{more!r})"
    )
    words = [sys.executable, "-c", script, str(data_dir), str(cut), str(file)]
    done = subprocess.run(words, env=os.environ | compiled_once(), check=False)
    assert done.returncode == -signal.SIGKILL
    last = max(int(path.stem) for path in cut.glob("*/checkpoints/*.npz"))
    assert list(cut.glob("**/.*.tmp"))
    said = Said()
    record = train(data_dir, cut, progress=said, **more)
    assert said.began_at == last
    whole = train(data_dir, tmp_path / "whole", **more)
    assert figures(record) == figures(whole)
    timed = sum(row["iterations"] for row in record.timing if row["kind"] == "full")
    assert timed == whole.summary["planned_iterations"]
    assert not list(record.folder.glob("checkpoints/.*"))


def test_a_long_block_has_checkpoints_too(data_dir, tmp_path, tiny, monkeypatch):
    """A run that is killed behind one continues from there."""
    more = {"probe_every": 1000, "optimizer": "row-adam", "weight_decay": 0.1}
    expected = train(data_dir, tmp_path / "whole", **more)
    monkeypatch.setattr(loops, "LONG_BLOCK_SECONDS", 0.0)
    saves = Checkpoints.save

    def save(self, state, *rest):
        saves(self, state, *rest)
        if int(state.iteration) == 20:
            raise KeyboardInterrupt  # nothing more is written, as by a kill

    with monkeypatch.context() as killed, pytest.raises(KeyboardInterrupt):
        killed.setattr(Checkpoints, "save", save)
        train(data_dir, tmp_path / "cut", **more)
    said = Said()
    resumed = train(data_dir, tmp_path / "cut", progress=said, **more)
    assert said.began_at == 20
    assert ends_of(tiny)[0] < 20 < ends_of(tiny)[1]
    assert figures(resumed) == figures(expected)


def test_a_resumed_run_holds_one_state(data_dir, tmp_path, monkeypatch):
    """While the checkpoint is read, device memory has no initial state beside the one restored."""
    more = {"encoder": "mf", "dimension": 512}
    interrupt(data_dir, tmp_path, 30, **more)
    read, live = checkpoint._array, []

    def held():
        return sum(array.nbytes for array in jax.live_arrays())

    def watched(*args):
        live.append(held())
        return read(*args)

    gc.collect()
    before = held()
    monkeypatch.setattr(checkpoint, "_array", watched)
    record = train(data_dir, tmp_path, **more)
    saved = Checkpoints(record.folder / "checkpoints").path(record.summary["iterations"])
    assert max(live) - before < 1.1 * saved.stat().st_size


def test_a_state_that_has_no_room_twice_is_trained(data_dir, tmp_path, whole, monkeypatch):
    """Nothing copies it, the step account is left out with a word, and no number changes."""
    monkeypatch.setattr(loop, "free_bytes", lambda: 0)
    monkeypatch.setattr(loop, "copy_state", None)
    said = Said()
    record = train(data_dir, tmp_path, progress=said)
    assert figures(record) == figures(whole)
    assert record.summary["step_iteration_seconds"] is None
    assert record.summary["full_iteration_seconds"] > 0
    assert sum(text.startswith("Steps are not timed") for text in said.texts) == 1


def test_a_damaged_checkpoint_costs_no_number(data_dir, tmp_path, tiny, whole, monkeypatch):
    """Nor does another interruption before the damaged one."""
    monkeypatch.setattr(loops, "CHECKPOINT_SECONDS", 0.0)
    folder = interrupt(data_dir, tmp_path, 42)
    probe = ends_of(tiny)[1] + 4  # checkpoints are written at probes within an epoch too
    checkpoints = folder / "checkpoints"
    assert {path.name for path in checkpoints.iterdir()} == {f"{probe}.npz", "42.npz"}
    (checkpoints / "42.npz").write_bytes(b"damaged")
    said = Said(41)
    interrupt(data_dir, tmp_path, 41, progress=said)
    assert any("Checkpoint 42 is damaged, and is skipped" in text for text in said.texts)
    assert said.began_at == probe
    assert runs.read(folder).summary["iterations"] == 41
    assert {path.name for path in checkpoints.iterdir()} == {f"{probe}.npz", "41.npz"}
    assert figures(train(data_dir, tmp_path)) == figures(whole)
