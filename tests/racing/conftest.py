"""Races that end soon."""

from __future__ import annotations

from pathlib import Path

import pytest

from ncfbench.racing import field as fields
from ncfbench.racing import pipeline


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """No second look at other programs, and little time to end."""
    monkeypatch.setattr(pipeline.OtherPrograms, "describe", lambda _: None)
    monkeypatch.setattr(fields, "GRACE_SECONDS", 0.3)


@pytest.fixture(autouse=True)
def runs_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Races are kept below the test's own folder."""
    monkeypatch.setenv("NCFBENCH_RUNS_DIR", str(tmp_path / "runs"))
