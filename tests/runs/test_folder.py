"""Which run a command continues, among folders that are written from literals."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path
from typing import Any

from folders import ENVIRONMENT, write_run

from ncfbench.config import RunConfig
from ncfbench.runs import folder as runs
from ncfbench.storage import locks, tables
from ncfbench.sweeps.grid import read_status

DATA = "f" * 64


def write_on(runs_dir: Path, devices: int, status: str, **more: Any) -> tuple[Path, RunConfig]:
    """A run that was last on so many devices, with a checkpoint; and its settings there."""
    folder = write_run(runs_dir, "ns", [9, 5], 10, status=status, devices=devices, **more)
    if devices > 1:
        mesh = {"devices": devices, "shard_tables": False, "simulated": True}
        environment = ENVIRONMENT | {"interleaved": more.get("interleaved", [None]), "mesh": mesh}
        tables.write_json(folder / "environment.json", environment)
    (folder / "checkpoints" / "100").mkdir(parents=True)
    return folder, runs.read(folder).config


def on(config: RunConfig, devices: int) -> RunConfig:
    return dataclasses.replace(config, devices=devices)


def test_an_interrupted_run_continues_elsewhere(tmp_path: Path) -> None:
    """Unless another process trains it, it has no checkpoint, or it takes turns with others."""
    folder, config = write_on(tmp_path, 1, "interrupted", interleaved=[None])
    assert runs.find(tmp_path, config, DATA) == folder
    assert runs.find(tmp_path, on(config, 2), DATA) == folder
    assert runs.find(tmp_path, config, "0" * 64) is None
    with locks.held(folder, "writing"):
        assert runs.find(tmp_path, on(config, 2), DATA) is None
        assert runs.find(tmp_path, config, DATA) == folder, "to say that it is trained now"
    shutil.rmtree(folder / "checkpoints")
    assert runs.find(tmp_path, on(config, 2), DATA) is None, "there is nothing to go on from"
    shutil.rmtree(folder)
    folder, config = write_on(tmp_path, 1, "interrupted", interleaved=["an id"])
    assert runs.find(tmp_path, on(config, 2), DATA) is None
    assert runs.find(tmp_path, config, DATA) == folder


def test_a_finished_run_counts_on_its_devices(tmp_path: Path) -> None:
    folder, config = write_on(tmp_path, 4, "finished")
    assert config.devices == 4
    assert runs.find(tmp_path, config, DATA) == folder
    assert runs.find(tmp_path, on(config, 2), DATA) is None, "it would have other times"
    assert runs.find(tmp_path, on(config, 2), DATA, anywhere=True) == folder
    begun = runs.create(tmp_path, on(config, 2), DATA)
    assert begun != folder, "one that was killed at once"
    assert runs.find(tmp_path, on(config, 2), DATA, anywhere=True) == folder
    assert runs.find(tmp_path, on(config, 2), DATA) == begun


def test_a_run_is_a_cell_of_its_last_devices(tmp_path: Path) -> None:
    folder, config = write_on(tmp_path, 2, "interrupted")
    states = read_status(tmp_path, [on(config, 1), config], {config.dataset: DATA}).states
    assert (states[on(config, 1)].folder, states[config].folder) == (None, folder)
