"""Races that end soon."""

import pytest

from ncfbench.racing import arm as arms
from ncfbench.racing import pipeline


@pytest.fixture
def quick(monkeypatch):
    """No second look at other programs, and little time to end."""
    monkeypatch.setattr(pipeline.OtherPrograms, "describe", lambda _: None)
    monkeypatch.setattr(arms, "GRACE_SECONDS", 0.3)


@pytest.fixture(autouse=True)
def runs_dir(tmp_path, monkeypatch):
    """Races are kept below the test's own folder."""
    monkeypatch.setenv("NCFBENCH_RUNS_DIR", str(tmp_path / "runs"))
