"""Sweeps that are killed end as those that never were."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from processes import compiled_once
from swept import ARMS, SMALL, assert_same, records

from ncfbench.data.store import Dataset

KILLED_EPOCHS = 12
SCRIPT = """
import sys
from pathlib import Path
from ncfbench.runs import recorder
from ncfbench.sweeps import runner
from ncfbench.sweeps.cells import Cell, exit_code
from ncfbench.training import session
from ncfbench.config import Locations, complete
from ncfbench.data.store import load
from ncfbench.sweeps.progress import SweepProgress
session.CHECKPOINT_SECONDS = recorder.TABLES_SECONDS = 0.0
class Announced(SweepProgress):
    def begin(self, cells):
        super().begin(cells)
        print("begun", flush=True)
data_dir, runs_dir = map(Path, sys.argv[1:3])
cells = [Cell(complete({settings!r} | {{"sampler": sampler}})) for sampler in {arms!r}]
datasets, locations = {{"tiny": load(data_dir, "tiny")}}, Locations(data_dir, runs_dir)
runner.train(cells, datasets, locations, Announced())
sys.exit(exit_code(cells))
"""


@pytest.mark.long
@pytest.mark.parametrize("kills", [1, 5])
def test_a_killed_sweep_ends_the_same(
    tiny: Dataset, data_dir: Path, tmp_path: Path, kills: int
) -> None:
    """SIGKILL at random moments after the beginning; then what is left is trained, and equals what
    was never killed.
    """
    script = SCRIPT.format(settings=SMALL | {"epochs": KILLED_EPOCHS}, arms=ARMS)

    def begin(folder: Path) -> subprocess.Popen[str]:
        words = [sys.executable, "-c", script, str(data_dir), str(folder)]
        process = subprocess.Popen(
            words, stdout=subprocess.PIPE, text=True, env=os.environ | compiled_once()
        )
        assert process.stdout is not None
        assert process.stdout.readline() == "begun\n"
        return process

    def end(process: subprocess.Popen[str]) -> int:
        process.communicate()
        return process.returncode

    never_killed = begin(tmp_path / "whole")
    started = time.monotonic()
    assert end(never_killed) == 0
    longest = time.monotonic() - started
    expected = records(tmp_path / "whole")
    moments = random.Random(kills)
    rounds = 0
    while kills:
        folder = tmp_path / f"cut{rounds}"
        rounds += 1
        while kills:
            process = begin(folder)
            time.sleep(moments.uniform(0.0, 0.8 * longest))
            process.kill()
            if end(process) == 0:
                break  # it was over before it was killed: the next round begins anew
            assert process.returncode == -signal.SIGKILL
            kills -= 1
        assert end(begin(folder)) == 0
        assert records(folder).keys() == expected.keys()
        for key, record in records(folder).items():
            assert_same(record, expected[key], tiny)
        assert not list(folder.glob("*/checkpoints/.*"))
