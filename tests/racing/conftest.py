"""Races below the test's own folder, and races in virtual time."""

from functools import partial

import pytest
from support.processes import World

from ncfbench.racing import arm, pipeline


@pytest.fixture(autouse=True)
def runs_dir(tmp_path, monkeypatch):
    monkeypatch.setenv("NCFBENCH_RUNS_DIR", str(tmp_path / "runs"))


@pytest.fixture
def world(monkeypatch):
    world = World()
    monkeypatch.setattr("time.perf_counter", lambda: world.now)
    monkeypatch.setattr(arm, "Process", world.start)
    monkeypatch.setattr(pipeline, "Field", partial(arm.Field, ends=world))
    return world
