"""Checkpoints: whole or absent, also after damage."""

import errno
import os
import re
import weakref
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ncfbench.errors import DataError
from ncfbench.training.checkpoint import KEPT, Best, Checkpoints
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
