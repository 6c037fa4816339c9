"""Checkpoints: whole or absent, also on full disks and after damage."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ncfbench.errors import DataError
from ncfbench.training.checkpoint import KEPT, Checkpoints
from ncfbench.training.state import TrainState

PROGRESS = {"item_slots": 64, "pending_losses": [0.5]}


def state(iteration: int) -> TrainState:
    table = jnp.arange(6.0).reshape(3, 2) + iteration
    return TrainState({"users": {"embedding": table}}, ({"mu": -table},), jnp.uint32(iteration))


def save(checkpoints: Checkpoints, *iterations: int) -> None:
    for iteration in iterations:
        checkpoints.save(iteration, state(iteration), PROGRESS)


def damage(checkpoint: Path, kind: str) -> None:
    if kind == "progress":
        (checkpoint / "progress.json").write_text("{")
    elif kind == "incomplete progress":
        (checkpoint / "progress.json").write_text("{}")
    elif kind == "no arrays":
        shutil.rmtree(checkpoint / "state")
    elif kind == "another iteration":
        shutil.rmtree(checkpoint)
        shutil.copytree(checkpoint.parent / "20", checkpoint)
    else:
        for path in checkpoint.rglob("state/**/*"):
            if path.is_file():
                path.write_bytes(b"damaged")


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


@pytest.mark.parametrize(
    "kind", ["arrays", "progress", "no arrays", "incomplete progress", "another iteration"]
)
def test_damage_falls_back_and_is_said(tmp_path: Path, kind: str) -> None:
    """To the older checkpoint, then to none."""
    said: list[str] = []
    checkpoints = Checkpoints(tmp_path, said.append)
    save(checkpoints, 20, 30)
    damage(tmp_path / "30", kind)
    found = checkpoints.restore(state(0))
    assert found is not None
    assert int(found[0].iteration) == 20
    assert len(said) == 1
    assert "Checkpoint 30 cannot be read and is removed: " in said[0]
    assert checkpoints.iterations() == [20]
    damage(tmp_path / "20", "arrays")
    assert checkpoints.restore(state(0)) is None
    assert checkpoints.iterations() == []


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
    full: Any = shutil.disk_usage(tmp_path)._replace(free=1000)
    monkeypatch.setattr("ncfbench.training.checkpoint.shutil.disk_usage", lambda path: full)
    with pytest.raises(DataError, match=r"No space left on device. Free some space"):
        save(checkpoints, 30)
    assert [path.name for path in tmp_path.iterdir()] == ["20"]


@pytest.mark.parametrize("error", [ValueError("OUT_OF_RANGE"), RuntimeError("closed")])
def test_a_write_that_fails_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """As TensorStore fails, in the middle of its files."""

    def fail(folder: Path, arrays: Any) -> None:
        folder.mkdir()
        (folder / "0000").write_bytes(b"half")
        raise error

    checkpoints = Checkpoints(tmp_path)
    save(checkpoints, 20)
    monkeypatch.setattr(checkpoints._orbax, "save", fail)
    with pytest.raises(DataError, match=f"Cannot write .*30: {error}"):
        save(checkpoints, 30)
    assert [path.name for path in tmp_path.iterdir()] == ["20"]


LIMITED = """
import resource, sys
from pathlib import Path
import jax.numpy as jnp, numpy as np
from ncfbench.errors import DataError
from ncfbench.training.checkpoint import Checkpoints
from ncfbench.training.state import TrainState
numbers = np.random.default_rng(0).normal(size=(64, 64)).astype(np.float32)
state = TrainState({"embedding": jnp.asarray(numbers)}, (), jnp.uint32(30))
checkpoints = Checkpoints(Path(sys.argv[1]))
resource.setrlimit(resource.RLIMIT_FSIZE, (500, 500))
try:
    checkpoints.save(30, state, {})
except DataError as error:
    print("refused:", error)
"""


@pytest.mark.long
def test_a_quota_is_a_data_error(tmp_path: Path) -> None:
    """In another process: a limit on the size of files meets Orbax's own threads too."""
    command = [sys.executable, "-c", LIMITED, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "refused: Cannot write" in done.stdout
    assert list(tmp_path.iterdir()) == []
