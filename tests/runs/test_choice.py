"""Which run a command continues, among folders that are written from literals."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path
from typing import Any

import pytest
from folders import ENVIRONMENT, write_run

from ncfbench.config import RunConfig, complete
from ncfbench.runs import choice
from ncfbench.runs import folder as runs
from ncfbench.storage import locks, tables
from ncfbench.sweeps.cells import Cell, read_progress

DATA = "f" * 64


def write_on(runs_dir: Path, devices: int, status: str, **more: Any) -> tuple[Path, RunConfig]:
    """A run that was last on so many devices, with a checkpoint; and its settings there."""
    folder = write_run(runs_dir, "ns", [9, 5], 10, status=status, devices=devices, **more)
    if devices > 1:
        mesh = {"devices": devices, "simulated": True}
        environment = ENVIRONMENT | {"interleaved": more.get("interleaved", [None]), "mesh": mesh}
        tables.write_json(folder / "environment.json", environment)
    (folder / "checkpoints" / "100").mkdir(parents=True)
    return folder, runs.read(folder).config


def on(config: RunConfig, devices: int) -> RunConfig:
    return dataclasses.replace(config, devices=devices)


def test_an_interrupted_run_continues_elsewhere(tmp_path: Path) -> None:
    """Unless another process trains it, or it has no checkpoint."""
    folder, config = write_on(tmp_path, 1, "interrupted", interleaved=[None])
    assert choice.find(tmp_path, config, DATA) == folder
    assert choice.find(tmp_path, on(config, 2), DATA) == folder
    assert choice.find(tmp_path, config, "0" * 64) is None
    with locks.held(folder, "writing"):
        assert choice.find(tmp_path, on(config, 2), DATA) is None
        assert choice.find(tmp_path, config, DATA) == folder, "to say that it is trained now"
    shutil.rmtree(folder / "checkpoints")
    assert choice.find(tmp_path, on(config, 2), DATA) is None, "there is nothing to go on from"


def test_a_finished_run_counts_on_its_devices(tmp_path: Path) -> None:
    folder, config = write_on(tmp_path, 4, "finished")
    assert config.devices == 4
    assert choice.find(tmp_path, config, DATA) == folder
    assert choice.find(tmp_path, on(config, 2), DATA) is None, "it would have other times"
    begun = runs.create(tmp_path, on(config, 2), DATA)
    assert begun != folder, "one that was killed at once"
    assert choice.find(tmp_path, on(config, 2), DATA) == begun


@pytest.mark.parametrize(("revisions", "is_found"), [({}, True), ({"loss": 2}, False)])
def test_a_run_of_another_revision_does_not_count(
    tmp_path: Path, revisions: dict[str, int], is_found: bool
) -> None:
    config = complete({"dataset": "citeulike", "sampler": "ns"})
    folder = runs.create(tmp_path, config, DATA)
    document = tables.read_json(folder / "config.json") | {"revisions": revisions}
    tables.write_json(folder / "config.json", document)
    cell = Cell(config)
    assert choice.find(tmp_path, config, DATA) == (folder if is_found else None)
    assert read_progress([cell], tmp_path, {config.dataset: DATA}) == []
    assert cell.folder == (folder if is_found else None)


def test_a_run_is_a_cell_of_its_last_devices(tmp_path: Path) -> None:
    folder, config = write_on(tmp_path, 2, "interrupted")
    cells = [Cell(on(config, 1)), Cell(config)]
    assert read_progress(cells, tmp_path, {config.dataset: DATA}) == []
    assert [cell.folder for cell in cells] == [None, folder]


def test_a_repeated_command_finds_its_finished_run(tmp_path: Path) -> None:
    """On as many devices; one that was begun counts if there is something to continue."""
    begun, config = write_on(tmp_path, 1, "interrupted", interleaved=[None])
    assert choice.find_trained(tmp_path, config, DATA) == (None, begun)
    assert choice.find_trained(tmp_path, on(config, 2), DATA) == (None, None)
    finished, _ = write_on(tmp_path, 1, "finished")
    assert choice.find_trained(tmp_path, config, DATA) == (finished, begun)
    assert choice.find_trained(tmp_path, config, "0" * 64) == (None, None)
    shutil.rmtree(begun / "checkpoints")
    assert choice.find_trained(tmp_path, config, DATA) == (finished, None)
    with locks.held(begun, "writing"):
        assert choice.find_trained(tmp_path, config, DATA) == (finished, begun)
