"""Modules of benchmarks/, which is no package, by their names, and races that end soon."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from ncfbench.racing import field as fields
from ncfbench.racing import pipeline

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """No second look at other programs, and little time to end."""
    monkeypatch.setattr(pipeline.OtherPrograms, "describe", lambda _: None)
    monkeypatch.setattr(fields, "GRACE_SECONDS", 0.3)
