"""Checkpoints: whole or absent, also after damage; and of which epoch the parameters are that a run
hands out.
"""

import errno
import json
import os
import re
import weakref
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pyarrow.parquet as pq
import pytest
from flax import nnx
from support.training import SMALL, Said, ends_of, interrupt, recall_of_lists, recommend, train

from ncfbench import prepare
from ncfbench.errors import DataError
from ncfbench.models.encoders.bow import BagOfWords
from ncfbench.runs import folder as runs
from ncfbench.training.checkpoint import KEPT, Best, Checkpoints
from ncfbench.training.export import BEST
from ncfbench.training.state import TrainState

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
OTHER_MODELS = {
    "a twin renamed": (
        {"b": B, "z": A},
        "it has no .parameters['z']; it has no .optimizer['z']; the model has no"
        " .parameters['a']; and 1 more",
    ),
    "a layer less": ({"a": A}, "the model has no .parameters['b'];"),
    "another shape": (
        {"a": A, "b": B[:1]},
        ".parameters['b'] is float32[2, 2] there and float32[1, 2] in the model;",
    ),
    "another type": (
        {"a": A, "b": B.astype(jnp.int32)},
        ".parameters['b'] is float32[2, 2] there and int32[2, 2] in the model;",
    ),
    "moved": ({"a": A, "b": {"b": B}}, "it has no .parameters['b']['b'];"),
}


@pytest.mark.parametrize(("now", "difference"), OTHER_MODELS.values(), ids=OTHER_MODELS)
def test_a_checkpoint_of_another_model_is_refused(tmp_path, now, difference):
    """With what differs; nothing is deleted, and an older one is not taken in its place."""
    checkpoints = Checkpoints(tmp_path)
    for iteration, parameters in ((7, now), (8, {"a": A, "b": B})):
        checkpoints.save(TrainState(parameters, parameters, jnp.uint32(iteration), {}), PROGRESS)
    before = files(tmp_path)
    with pytest.raises(DataError, match=f"8.npz does not fit the model: {re.escape(difference)}"):
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

SETTINGS = SMALL | {"epochs": 2, "learning_rate": 0.03}


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


def test_an_edited_encoder_is_refused(data_dir, tmp_path, monkeypatch):
    """By all that read a checkpoint; all works once the edit is undone."""
    cut = interrupt(data_dir, tmp_path / "cut", 30, **SETTINGS)
    whole = train(data_dir, tmp_path / "whole", **SETTINGS).folder
    expected = pq.read_table(recommend(whole, data_dir=data_dir) / BEST)
    build = BagOfWords.__init__

    def edited(bag, *given, **more):
        build(bag, *given, **more)
        bag.more = nnx.Param(jnp.zeros(2))

    with monkeypatch.context() as patch:
        patch.setattr(BagOfWords, "__init__", edited)
        for reading in (
            lambda: recommend(whole, data_dir=data_dir),
            lambda: recommend(cut, data_dir=data_dir),
            lambda: train(data_dir, tmp_path / "cut", **SETTINGS),
        ):
            with pytest.raises(DataError, match=r"has no \.parameters\['encoder'\]\['more'\]"):
                reading()
    train(data_dir, tmp_path / "cut", **SETTINGS)
    for folder in (whole, cut):
        assert pq.read_table(recommend(folder, data_dir=data_dir) / BEST).equals(expected)
