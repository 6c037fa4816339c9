"""Sweeps that are killed end as those that never were."""

import os
import signal
import subprocess
import sys

import pytest
from processes import KILLED, compiled_once
from swept import ARMS, SMALL, assert_same, records

SCRIPT = f"""{KILLED}
from pathlib import Path
from ncfbench.sweeps.grid import Cell
from ncfbench.sweeps.sweep import exit_code, train_cells
from ncfbench.training import train
from ncfbench.config import Locations, complete
from ncfbench.data.store import load
from ncfbench.sweeps.progress import SweepProgress
train.CHECKPOINT_SECONDS = 0.0
data_dir, runs_dir = map(Path, sys.argv[1:3])
settings = {SMALL | {"epochs": 12}!r}
cells = [Cell(complete(settings | {{"sampler": sampler}})) for sampler in {ARMS!r}]
datasets, locations = {{"tiny": load(data_dir, "tiny")}}, Locations(data_dir, runs_dir)
train_cells(cells, datasets, locations, SweepProgress())
sys.exit(exit_code(cells))
"""


@pytest.mark.long
@pytest.mark.parametrize("files", [[90], [7, 40, 150, 33, 101]])
def test_a_killed_sweep_ends_the_same(tiny, data_dir, tmp_path, files):
    """SIGKILL before files of these numbers take their names; then what is left is trained, and
    equals what was never killed.
    """

    def train(folder, file=0):
        words = [sys.executable, "-c", SCRIPT, str(data_dir), str(folder), str(file)]
        return subprocess.run(words, env=os.environ | compiled_once(), check=False).returncode

    assert train(tmp_path / "whole") == 0
    expected, folder = records(tmp_path / "whole"), tmp_path / "cut"
    assert [train(folder, file) for file in files] == [-signal.SIGKILL] * len(files)
    assert train(folder) == 0
    assert records(folder).keys() == expected.keys()
    for key, record in records(folder).items():
        assert_same(record, expected[key], tiny)
    assert not list(folder.glob("*/checkpoints/.*"))
