"""Checkpoints: whole or absent, also on full disks and after damage."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import IO, Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ncfbench.errors import DataError
from ncfbench.training.checkpoint import KEPT, Best, Checkpoints
from ncfbench.training.state import TrainState

PROGRESS = {"item_slots": 64, "pending_losses": [0.5]}


def state(iteration: int) -> TrainState:
    table = jnp.arange(6.0).reshape(3, 2) + iteration
    parameters, moments = {"users": {"embedding": table}}, ({"mu": -table},)
    return TrainState(parameters, moments, jnp.uint32(iteration), None, {})


def save(checkpoints: Checkpoints, *iterations: int) -> None:
    for iteration in iterations:
        checkpoints.save(state(iteration), PROGRESS)


def test_the_newest_state_comes_back(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path / "runs [old] *{x}")
    assert checkpoints.restore(state(0)) is None
    save(checkpoints, 10, 20, 30)
    assert checkpoints.iterations() == [20, 30]
    assert len(checkpoints.iterations()) == KEPT
    found, progress, _ = Checkpoints(checkpoints.folder).restore(state(0)) or (None, None, None)
    assert progress == PROGRESS
    for leaf, wanted in zip(jax.tree.leaves(found), jax.tree.leaves(state(30)), strict=True):
        assert leaf.dtype == wanted.dtype
        assert np.array_equal(leaf, wanted)


def test_types_of_16_bits_come_back(tmp_path: Path) -> None:
    half = state(3)._replace(parameters=jnp.arange(5, dtype=jnp.bfloat16))
    Checkpoints(tmp_path).save(half, PROGRESS)
    found = Checkpoints(tmp_path).restore(half)
    assert found is not None
    assert found.state.parameters.dtype == jnp.bfloat16
    assert found.state.parameters.tolist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("best", [20, 10])
def test_the_reported_parameters_come_back(tmp_path: Path, best: int) -> None:
    """Those of the state are written once."""
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(state(20), PROGRESS, Best(best, jax.device_get(state(best).parameters)))
    found = checkpoints.restore(state(0))
    assert found is not None
    for iteration, expected in ((None, 20), (best, best)):
        reported = found.reported(iteration)
        assert reported.iteration == expected
        table = reported.parameters["users"]["embedding"]
        assert np.array_equal(table, state(expected).parameters["users"]["embedding"])
    with np.load(checkpoints.path(20)) as file:
        assert ("best/0000" in file) == (best == 10)


@pytest.mark.parametrize("kind", ["no archive", "cut", "a bit", "empty"])
def test_damage_falls_back_and_is_said(tmp_path: Path, kind: str) -> None:
    """To the older checkpoint, then to none."""
    said: list[str] = []
    checkpoints = Checkpoints(tmp_path, said.append)
    save(checkpoints, 20, 30)
    for iteration, left in ((30, [20]), (20, [])):
        path = checkpoints.path(iteration)
        whole = bytearray(path.read_bytes())
        whole[250] ^= 1
        damaged = {"no archive": b"damaged", "cut": whole[:700], "a bit": whole, "empty": b""}[kind]
        path.write_bytes(damaged)
        found = checkpoints.restore(state(0))
        assert (found and int(found.state.iteration)) == (left[0] if left else None)
        assert checkpoints.iterations() == left
        assert f"Checkpoint {iteration} cannot be read and is removed: " in said[-1]


def test_an_array_of_another_shape_is_refused(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path)
    save(checkpoints, 20)
    like = state(0)._replace(parameters={"users": {"embedding": jnp.zeros((4, 2))}})
    assert checkpoints.restore(like) is None


def test_a_full_disk_keeps_older_checkpoints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoints = Checkpoints(tmp_path)
    save(checkpoints, 20)

    def fail(file: IO[bytes], **arrays: Any) -> None:
        file.write(b"half")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(np, "savez", fail)
    with pytest.raises(DataError, match=r"No space left on device. Free some space"):
        save(checkpoints, 30)
    assert [path.name for path in tmp_path.iterdir()] == ["20.npz"]
